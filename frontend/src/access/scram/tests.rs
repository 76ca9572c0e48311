//! Tests of the exchange: the RFC's example, the client of tokio-postgres, and messages that were tampered with.

use std::num::NonZeroU32;

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use postgres_protocol::password::scram_sha_256;
use proptest::prelude::*;

use super::*;

static HASH: [u8; 32] = [5; 32];

fn verifier(password: &str) -> Verifier {
    Verifier::new(password, [1; 16], NonZeroU32::new(1).unwrap())
}

fn credentials() -> Credentials {
    Credentials::new(verifier("secret"))
}

fn nonce() -> Nonce {
    Nonce::new([2; NONCE_BYTES])
}

fn exchange(mechanism: Mechanism, end_point_hash: Option<&[u8]>) -> Exchange {
    let end_point_hash = end_point_hash.map(<[u8]>::to_vec);
    Exchange::begin(mechanism, credentials(), end_point_hash, nonce()).unwrap()
}

/// Runs an exchange with the client of tokio-postgres; the client's messages pass through the two functions.
fn run(
    exchange: Exchange,
    mut client: ScramSha256,
    change_first: impl Fn(String) -> String,
    change_last: impl Fn(String) -> String,
) -> Result<(), Failed> {
    let message = |client: &ScramSha256| String::from_utf8(client.message().to_vec()).unwrap();
    let (challenge, server_first) = exchange.first(change_first(message(&client)).as_bytes())?;
    client.update(server_first.as_bytes()).expect("the client accepts the nonce");
    let server_last = challenge.last(change_last(message(&client)).as_bytes())?;
    client.finish(server_last.as_bytes()).expect("the client accepts the signature");
    Ok(())
}

fn run_unchanged(exchange: Exchange, client: ScramSha256) -> Result<(), Failed> {
    run(exchange, client, |first| first, |last| last)
}

fn bound(hash: &[u8]) -> ScramSha256 {
    ScramSha256::new(b"secret", ChannelBinding::tls_server_end_point(hash.to_vec()))
}

/// A client that does not support channel binding.
fn unbound(password: &str) -> ScramSha256 {
    ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported())
}

/// A client that supports channel binding, and believes that the server does not.
fn unoffered() -> ScramSha256 {
    ScramSha256::new(b"secret", ChannelBinding::unrequested())
}

#[test]
fn the_example_of_rfc_7677_passes() {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap().try_into().unwrap();
    let verifier = Verifier::new("pencil", salt, ITERATIONS);
    let nonce = Nonce("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned());
    let exchange =
        Exchange::begin(Mechanism::Plain, Credentials::new(verifier), None, nonce).unwrap();
    let (challenge, server_first) = exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
    assert_eq!(
        server_first,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let client_last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    let server_last = challenge.last(client_last).unwrap();
    assert_eq!(server_last, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

#[test]
fn the_client_of_tokio_postgres_signs_in() {
    let plain = |hash| exchange(Mechanism::Plain, hash);
    assert_eq!(run_unchanged(plain(None), unbound("secret")), Ok(()));
    assert_eq!(run_unchanged(plain(None), unoffered()), Ok(()));
    assert_eq!(run_unchanged(plain(Some(&HASH)), unbound("secret")), Ok(()));
    let plus = exchange(Mechanism::Plus, Some(&HASH));
    assert_eq!(run_unchanged(plus, bound(&HASH)), Ok(()));
    // A SHA-512 certificate has a longer hash.
    let plus = exchange(Mechanism::Plus, Some(&[6; 64]));
    assert_eq!(run_unchanged(plus, bound(&[6; 64])), Ok(()));
}

#[test]
fn verifiers_of_clients_and_prepared_passwords_are_accepted() {
    for (stored, sent) in
        [("secret", "secret"), ("I\u{ad}X", "IX"), ("\u{2168}", "IX"), ("x\u{7}", "x\u{7}")]
    {
        let verifier = Verifier::parse(&scram_sha_256(stored.as_bytes())).unwrap();
        let exchange =
            Exchange::begin(Mechanism::Plain, Credentials::new(verifier), None, nonce()).unwrap();
        assert_eq!(run_unchanged(exchange, unbound(sent)), Ok(()), "{stored:?}");
    }
}

#[test]
fn a_wrong_password_is_refused() {
    for password in ["", "Secret", "secret ", "secre"] {
        let exchange = exchange(Mechanism::Plain, None);
        assert_eq!(run_unchanged(exchange, unbound(password)), Err(Failed::Password));
    }
}

#[test]
fn an_unknown_user_takes_the_same_steps_and_gets_the_same_error() {
    let secret = Key::new([8; 32]);
    let begin = |user: &str| {
        let credentials = Credentials::mock(&secret, user);
        Exchange::begin(Mechanism::Plain, credentials, None, nonce()).unwrap()
    };
    let parameters = |user: &str| {
        let (_, server_first) = begin(user).first(b"n,,n=,r=abc").unwrap();
        server_first.split_once(",s=").unwrap().1.to_owned()
    };
    assert_eq!(parameters("ann"), parameters("ann"), "the salt stays");
    assert_ne!(parameters("ann"), parameters("bob"), "each user has another salt");
    let real = Verifier::new("x", [1; 16], ITERATIONS).parameters();
    let (salt, iterations) = Verifier::mock(&secret, "ann").parameters();
    assert_eq!((salt.len(), iterations), (real.0.len(), real.1), "parameters of the same form");

    let refused = run_unchanged(begin("ann"), unbound("secret"));
    assert_eq!(refused, run_unchanged(exchange(Mechanism::Plain, None), unbound("wrong")));
    assert_eq!(
        refused.unwrap_err().error("ann"),
        SqlError::new("28P01", "password authentication failed for user \"ann\"")
    );
    // Other errors do not depend on the user either.
    let last = |last: String| last.replace("c=biws", "c=eSws");
    let refused = run(begin("ann"), unbound("secret"), |first| first, last);
    assert_eq!(refused, Err(Failed::Binding));
}

#[test]
fn even_matching_keys_of_a_mock_are_refused() {
    let credentials = Credentials { verifier: verifier("secret"), is_mock: Choice::from(1) };
    let exchange = Exchange::begin(Mechanism::Plain, credentials, None, nonce()).unwrap();
    assert_eq!(run_unchanged(exchange, unbound("secret")), Err(Failed::Password));
}

#[test]
fn a_refused_user_has_the_same_parameters_and_no_right_password() {
    let refused = || Credentials::refused(verifier("secret"));
    let first = |credentials| {
        let exchange = Exchange::begin(Mechanism::Plain, credentials, None, nonce()).unwrap();
        exchange.first(b"n,,n=,r=abc").unwrap().1
    };
    assert_eq!(first(refused()), first(credentials()));
    let exchange = Exchange::begin(Mechanism::Plain, refused(), None, nonce()).unwrap();
    assert_eq!(run_unchanged(exchange, unbound("secret")), Err(Failed::Password));
    assert!(credentials().matches("secret") && !credentials().matches("other"));
    assert!(!refused().matches("secret"));
}

#[test]
fn the_mechanism_must_fit_the_flag_and_the_offer() {
    let refused = Exchange::begin(Mechanism::Plus, credentials(), None, nonce());
    assert_eq!(refused.map(drop), Err(Failed::Mechanism));
    let first = |mechanism, hash: Option<&[u8]>, flag: &str| {
        let message = format!("{flag},,n=,r=abc");
        exchange(mechanism, hash).first(message.as_bytes()).map(drop)
    };
    let (plain, plus, hash) = (Mechanism::Plain, Mechanism::Plus, Some(HASH.as_slice()));
    assert_eq!(first(plain, None, "n"), Ok(()));
    assert_eq!(first(plain, None, "y"), Ok(()));
    assert_eq!(first(plain, hash, "n"), Ok(()));
    assert_eq!(first(plain, hash, "y"), Err(Failed::Downgraded));
    assert_eq!(first(plus, hash, "p=tls-server-end-point"), Ok(()));
    for (mechanism, hash, flag) in [
        (plus, hash, "n"),
        (plus, hash, "y"),
        (plain, hash, "p=tls-server-end-point"),
        (plain, None, "p=tls-server-end-point"),
        (plain, None, ""),
        (plain, None, "x"),
        (plain, None, "nn"),
        (plain, None, "p"),
        (plus, hash, "p"),
        (plus, hash, ""),
    ] {
        let refused = first(mechanism, hash, flag);
        assert!(matches!(refused, Err(Failed::Malformed(_))), "{mechanism:?} {flag} {refused:?}");
    }
    for flag in ["p=tls-unique", "p=tls-exporter", "p=", "p=tls-server-end-point "] {
        assert!(matches!(first(plus, hash, flag), Err(Failed::NotSupported(_))), "{flag}");
    }
}

#[test]
fn another_certificate_is_refused() {
    for hash in [[6_u8; 32].as_slice(), &[5; 31], &[5; 33], &[]] {
        let plus = exchange(Mechanism::Plus, Some(&HASH));
        assert_eq!(run_unchanged(plus, bound(hash)), Err(Failed::Binding));
    }
}

#[test]
fn a_removed_offer_is_refused() {
    // A man in the middle turns the flag to one that would pass; the client's last message repeats the true one.
    let plain = exchange(Mechanism::Plain, Some(&HASH));
    let change = |first: String| first.replacen("y,,", "n,,", 1);
    assert_eq!(run(plain, unoffered(), change, |last| last), Err(Failed::Binding));
    // Turning that too changes what the proof is for.
    let plain = exchange(Mechanism::Plain, Some(&HASH));
    let repeat = |last: String| last.replacen("c=eSws", "c=biws", 1);
    assert_eq!(run(plain, unoffered(), change, repeat), Err(Failed::Password));
}

#[test]
fn malformed_first_messages_are_refused() {
    let malformed: [&[u8]; 17] = [
        b"",
        b"n",
        b"n,",
        b"n,,",
        b"n,,n=",
        b"n,,r=abc",
        b"n,,r=abc,n=",
        b"n,,n,r=abc",
        b"n,,n=,r=",
        b"n,,n=,rabc",
        b"n,,n=,r=a c",
        b"n,,n=,r=a\xc3\xa9",
        b"n,,n=,r=\xff",
        b"n,,n=,r=abc,",
        b"n,,n=,r=abc,extension",
        b"n,,n=,r=abc\0",
        b"n,b=x,n=,r=abc",
    ];
    for message in malformed {
        let refused = exchange(Mechanism::Plain, None).first(message).map(drop);
        assert!(matches!(refused, Err(Failed::Malformed(_))), "{message:?} {refused:?}");
    }
    for message in [b"n,a=root,n=,r=abc".as_slice(), b"n,,m=x,n=,r=abc"] {
        let refused = exchange(Mechanism::Plain, None).first(message).map(drop);
        assert!(matches!(refused, Err(Failed::NotSupported(_))), "{message:?} {refused:?}");
    }
    let (_, server_first) =
        exchange(Mechanism::Plain, None).first(b"n,,n=\xc3\xa9=2C,r=abc,x=optional").unwrap();
    assert!(server_first.starts_with("r=abcAgIC"), "{server_first}");
}

#[test]
fn changed_last_messages_are_refused() {
    type Change = fn(String) -> String;
    let changes: [(Change, Failed); 12] = [
        (|last| last.replacen("c=biws", "c=eSws", 1), Failed::Binding),
        (|last| last.replacen("c=biws", "c=", 1), Failed::Binding),
        (|last| last.replacen(",r=", ",r=x", 1), Failed::Nonce),
        (|last| last.replacen(",p=", "x,p=", 1), Failed::Nonce),
        (|last| last.replacen(",p=", ",x=added,p=", 1), Failed::Password),
        (
            |last| format!("{},p={}", last.split_once(",p=").unwrap().0, "A".repeat(43) + "="),
            Failed::Password,
        ),
        (|last| last.replacen("c=biws,", "", 1), Failed::Malformed("")),
        (|last| last.replacen(",p=", ",q=", 1), Failed::Malformed("")),
        (|last| format!("{last},x=added"), Failed::Malformed("")),
        (|last| format!("{last}\0"), Failed::Malformed("")),
        (|last| last[..last.len() - 1].to_owned(), Failed::Malformed("")),
        (|_| String::new(), Failed::Malformed("")),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let refused =
            run(exchange(Mechanism::Plain, None), unbound("secret"), |first| first, change);
        let refused = match refused {
            Err(Failed::Malformed(_)) => Err(Failed::Malformed("")),
            other => other,
        };
        assert_eq!(refused, Err(expected), "change {number}");
    }
}

#[test]
fn a_last_message_of_another_exchange_is_refused() {
    let mut client = unbound("secret");
    let (challenge, server_first) =
        exchange(Mechanism::Plain, None).first(client.message()).unwrap();
    client.update(server_first.as_bytes()).unwrap();
    assert!(challenge.last(client.message()).is_ok());
    let other = Nonce::new([3; NONCE_BYTES]);
    let replayed = Exchange::begin(Mechanism::Plain, credentials(), None, other).unwrap();
    let (challenge, _) = replayed.first(b"n,,n=,r=abc").unwrap();
    assert_eq!(challenge.last(client.message()), Err(Failed::Nonce));
}

#[test]
fn changed_parameters_are_refused() {
    // A man in the middle asks the client for fewer iterations, to guess its password faster.
    let mut client = unbound("secret");
    let verifier = Verifier::new("secret", [1; 16], NonZeroU32::new(3).unwrap());
    let exchange =
        Exchange::begin(Mechanism::Plain, Credentials::new(verifier), None, nonce()).unwrap();
    let (challenge, server_first) = exchange.first(client.message()).unwrap();
    client.update(server_first.replace(",i=3", ",i=1").as_bytes()).unwrap();
    assert_eq!(challenge.last(client.message()), Err(Failed::Password));
}

#[test]
fn each_flipped_bit_is_refused() {
    let mut client = bound(&HASH);
    let client_first = client.message().to_vec();
    let begin = || exchange(Mechanism::Plus, Some(&HASH));
    let (challenge, server_first) = begin().first(&client_first).unwrap();
    client.update(server_first.as_bytes()).unwrap();
    let client_last = client.message().to_vec();
    assert!(challenge.clone().last(&client_last).is_ok());
    let flipped = |message: &[u8], bit: usize| {
        let mut message = message.to_vec();
        message[bit / 8] ^= 1 << (bit % 8);
        message
    };
    for bit in 0..client_last.len() * 8 {
        assert!(challenge.clone().last(&flipped(&client_last, bit)).is_err(), "bit {bit}");
    }
    for bit in 0..client_first.len() * 8 {
        if let Ok((challenge, _)) = begin().first(&flipped(&client_first, bit)) {
            assert!(challenge.last(&client_last).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn debug_output_has_no_keys() {
    let (challenge, _) = exchange(Mechanism::Plain, None).first(b"n,,n=,r=abc").unwrap();
    let output = format!("{:?} {challenge:?}", exchange(Mechanism::Plain, None));
    assert_eq!(output.matches("Key(redacted)").count(), 4, "{output}");
}

proptest! {
    #[test]
    fn any_bytes_are_refused_without_a_panic(
        first in prop::collection::vec(any::<u8>(), 0..100),
        last in prop::collection::vec(any::<u8>(), 0..100),
        is_plus in any::<bool>(),
    ) {
        let mechanism = if is_plus { Mechanism::Plus } else { Mechanism::Plain };
        if let Ok((challenge, _)) = exchange(mechanism, Some(&HASH)).first(&first) {
            prop_assert!(challenge.last(&last).is_err());
        }
        let (challenge, _) = exchange(Mechanism::Plain, None).first(b"n,,n=,r=abc").unwrap();
        prop_assert!(challenge.last(&last).is_err());
    }

    #[test]
    fn nearly_right_messages_are_refused_without_a_panic(
        first in "[nyp](=tls-server-end-point)?,(a=x)?,(m=x,)?(n=[a=,]{0,3})?(,r=[ -~]{0,9})?(,[a-z]=?)?",
        last in "(c=(biws|eSws|[A-Za-z=]{0,5}))?(,r=(abc[A-Za-z0-9]{0,24}))?(,[a-z]=x?)?(,p=[A-Za-z0-9+/=]{40,44})?",
        is_plus in any::<bool>(),
    ) {
        let mechanism = if is_plus { Mechanism::Plus } else { Mechanism::Plain };
        if let Ok((challenge, _)) = exchange(mechanism, Some(&HASH)).first(first.as_bytes()) {
            prop_assert!(challenge.last(last.as_bytes()).is_err());
        }
        let (challenge, _) = exchange(Mechanism::Plain, None).first(b"n,,n=,r=abc").unwrap();
        prop_assert!(challenge.last(last.as_bytes()).is_err());
    }
}
