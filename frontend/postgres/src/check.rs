//! Checks of a client's messages before the protocol library parses them.
//!
//! The library trusts the lengths and counts in a message: one that is too short ends the task with a panic, and text
//! that is not UTF-8 is replaced silently. So each message is checked here first, whole and by itself.
//!
//! A message whose parts do not fit ends the connection, because its meaning is unknown; one that is well formed but
//! has an impossible content is refused with an error, and the connection continues, as in PostgreSQL.
//!
//! Source: PostgreSQL's documentation, Message Formats.

use std::fmt;

/// Maximum length of a startup message in bytes.
const STARTUP_BYTES_MAX: usize = 10_000;
/// Maximum number of settings in a startup message.
const STARTUP_SETTINGS_MAX: usize = 256;
/// Maximum number of parameters of a statement, as in the protocol.
const PARAMETERS_MAX: u16 = 32_767;
/// The code of a cancel request, in place of a version.
const CANCEL_REQUEST: u32 = 80_877_102;
/// Length of the process number and the key of a cancel request in bytes: four for each, or a longer key.
const CANCEL_BYTES: std::ops::RangeInclusive<usize> = 8..=260;

/// A fault of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) sqlstate: &'static str,
    pub(crate) message: String,
    /// True if the connection must end.
    pub(crate) is_fatal: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

fn malformed<T>(message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { sqlstate: "08P01", message: message.into(), is_fatal: true })
}

fn refused<T>(sqlstate: &'static str, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { sqlstate, message: message.into(), is_fatal: false })
}

/// Checks a message by its type and the bytes after its length.
///
/// # Errors
/// When it is malformed, or has an impossible content.
pub(crate) fn check(kind: u8, body: &[u8]) -> Result<(), Fault> {
    let mut parts = Parts { rest: body };
    match kind {
        b'Q' => check_text(parts.last_text()?),
        b'P' => check_parse(parts),
        b'B' => check_bind(parts),
        b'D' | b'C' => {
            let target = parts.byte()?;
            let name = parts.last_text()?;
            if !matches!(target, b'S' | b'P') {
                return refused("08P01", format!("invalid subtype {target} of a message"));
            }
            check_text(name)
        }
        b'E' => {
            let portal = parts.text()?;
            parts.number()?;
            parts.end()?;
            check_text(portal)
        }
        b'f' => check_text(parts.last_text()?),
        b'c' | b'H' | b'S' | b'X' => parts.end(),
        // Rows are checked by COPY, and responses of an authentication by `sign_in.rs`.
        b'd' | b'p' => Ok(()),
        b'F' => malformed("function calls are not supported; use SELECT"),
        unknown => malformed(format!("invalid frontend message type {unknown}")),
    }
}

/// Checks a message before the session starts: `code` is its second number, `body` the bytes after it.
///
/// # Errors
/// When it is malformed.
pub(crate) fn check_startup(code: u32, body: &[u8]) -> Result<(), Fault> {
    if code == CANCEL_REQUEST {
        return if CANCEL_BYTES.contains(&body.len()) {
            Ok(())
        } else {
            malformed("invalid length of a cancel request")
        };
    }
    if body.len() > STARTUP_BYTES_MAX {
        return malformed(format!("the startup message is longer than {STARTUP_BYTES_MAX} bytes"));
    }
    let mut parts = Parts { rest: body };
    for _ in 0..=STARTUP_SETTINGS_MAX {
        let name = parts.text()?;
        if name.is_empty() {
            return parts.end();
        }
        for text in [name, parts.text()?] {
            if std::str::from_utf8(text).is_err() {
                return malformed("the startup message is not UTF-8");
            }
        }
    }
    malformed(format!("the startup message names more than {STARTUP_SETTINGS_MAX} settings"))
}

/// The first answer to an offer of SASL mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitialResponse<'a> {
    pub(crate) mechanism: &'a [u8],
    /// The first message of the mechanism, if the client has sent it along.
    pub(crate) data: Option<&'a [u8]>,
}

/// Reads the body of a SASLInitialResponse, whose type it shares with passwords and further responses.
///
/// # Errors
/// When it is malformed.
pub(crate) fn initial_response(body: &[u8]) -> Result<InitialResponse<'_>, Fault> {
    let mut parts = Parts { rest: body };
    let mechanism = parts.text()?;
    let data = match parts.number()? {
        -1 => None,
        length => match usize::try_from(length) {
            Ok(length) => Some(parts.take(length)?),
            Err(_) => return malformed(format!("invalid length {length} of a SASL response")),
        },
    };
    parts.end()?;
    Ok(InitialResponse { mechanism, data })
}

fn check_parse(mut parts: Parts<'_>) -> Result<(), Fault> {
    let (name, query) = (parts.text()?, parts.text()?);
    let count = parts.count()?;
    parts.take(usize::from(count) * 4)?;
    parts.end()?;
    if count > PARAMETERS_MAX {
        return refused(
            "54023",
            format!("a statement can have at most {PARAMETERS_MAX} parameters"),
        );
    }
    check_text(name)?;
    check_text(query)
}

fn check_bind(mut parts: Parts<'_>) -> Result<(), Fault> {
    // All parts are read first: a message that does not end with them is malformed.
    let (portal, statement) = (parts.text()?, parts.text()?);
    let formats = parts.formats()?;
    let count = parts.count()?;
    for _ in 0..count {
        match parts.number()? {
            -1 => {}
            length => match usize::try_from(length) {
                Ok(length) => parts.take(length).map(drop)?,
                Err(_) => return malformed(format!("invalid parameter length {length}")),
            },
        }
    }
    let result_formats = parts.formats()?;
    parts.end()?;
    // Then counts and codes are compared.
    if count > PARAMETERS_MAX {
        return refused(
            "54023",
            format!("a statement can have at most {PARAMETERS_MAX} parameters"),
        );
    }
    if formats.len() > 2 && formats.len() != 2 * usize::from(count) {
        let formats = formats.len() / 2;
        return refused(
            "08P01",
            format!("bind message has {formats} parameter formats but {count} parameters"),
        );
    }
    for format in formats.chunks_exact(2).chain(result_formats.chunks_exact(2)) {
        if !matches!(format, [0, 0 | 1]) {
            let code = i16::from_be_bytes([format[0], format[1]]);
            return refused("22023", format!("unsupported format code: {code}"));
        }
    }
    check_text(portal)?;
    check_text(statement)
}

/// Refuses text that is not UTF-8: it would be stored as something else than the client means.
fn check_text(text: &[u8]) -> Result<(), Fault> {
    let Err(error) = std::str::from_utf8(text) else { return Ok(()) };
    let start = error.valid_up_to();
    let end = text.len().min(start + error.error_len().unwrap_or(text.len() - start));
    let bytes: Vec<String> = text[start..end].iter().map(|byte| format!("0x{byte:02x}")).collect();
    let bytes = bytes.join(" ");
    refused("22021", format!("invalid byte sequence for encoding \"UTF8\": {bytes}"))
}

/// The unread rest of a message.
struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        match self.rest.split_at_checked(len) {
            Some((part, rest)) => {
                self.rest = rest;
                Ok(part)
            }
            None => malformed("insufficient data left in message"),
        }
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    fn count(&mut self) -> Result<u16, Fault> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn number(&mut self) -> Result<i32, Fault> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A count of format codes, and the codes, two bytes each.
    fn formats(&mut self) -> Result<&'a [u8], Fault> {
        let count = self.count()?;
        self.take(usize::from(count) * 2)
    }

    /// Text up to a zero byte, which is taken too.
    fn text(&mut self) -> Result<&'a [u8], Fault> {
        match memchr::memchr(0, self.rest) {
            Some(end) => {
                let text = &self.rest[..end];
                self.rest = &self.rest[end + 1..];
                Ok(text)
            }
            None => malformed("invalid string in message"),
        }
    }

    /// Text that must be the last part.
    fn last_text(&mut self) -> Result<&'a [u8], Fault> {
        let text = self.text()?;
        self.end()?;
        Ok(text)
    }

    fn end(&self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { malformed("invalid message format") }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use bytes::{BufMut, BytesMut};
    use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};
    use proptest::prelude::*;

    use super::*;

    fn bind(formats: &[i16], values: &[Option<&[u8]>], results: &[i16]) -> Vec<u8> {
        let mut body = b"\0s\0".to_vec();
        let codes = |codes: &[i16], body: &mut Vec<u8>| {
            body.extend(u16::try_from(codes.len()).unwrap().to_be_bytes());
            codes.iter().for_each(|code| body.extend(code.to_be_bytes()));
        };
        codes(formats, &mut body);
        body.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
        for value in values {
            match value {
                None => body.extend((-1_i32).to_be_bytes()),
                Some(value) => {
                    body.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
                    body.extend(*value);
                }
            }
        }
        codes(results, &mut body);
        body
    }

    fn well_formed() -> Vec<(u8, Vec<u8>)> {
        vec![
            (b'Q', b"SELECT 1\0".to_vec()),
            (b'Q', b"\0".to_vec()),
            (b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17".to_vec()),
            (b'B', bind(&[], &[], &[])),
            (b'B', bind(&[1], &[Some(b"x"), None, Some(b"")], &[0])),
            (b'B', bind(&[0, 1], &[Some(b"1"), Some(&[0; 8])], &[1, 1, 0])),
            (b'D', b"Ss\0".to_vec()),
            (b'C', b"P\0".to_vec()),
            (b'E', b"\0\0\0\0\0".to_vec()),
            (b'E', b"p\0\xff\xff\xff\xff".to_vec()),
            (b'f', b"stopped\0".to_vec()),
            (b'S', vec![]),
            (b'H', vec![]),
            (b'c', vec![]),
            (b'X', vec![]),
            (b'd', b"anything\xff".to_vec()),
        ]
    }

    fn decoded(kind: u8, body: &[u8]) -> bool {
        let mut bytes = BytesMut::new();
        bytes.put_u8(kind);
        bytes.put_u32(u32::try_from(body.len()).unwrap() + 4);
        bytes.put_slice(body);
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        let message = PgWireFrontendMessage::decode(&mut bytes, &context);
        matches!(message, Ok(Some(_))) && bytes.is_empty()
    }

    #[test]
    fn well_formed_messages_pass_and_are_read_to_their_end() {
        for (kind, body) in well_formed() {
            assert_eq!(check(kind, &body), Ok(()), "{} {body:?}", char::from(kind));
            assert!(decoded(kind, &body), "{} {body:?}", char::from(kind));
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_malformed() {
        for (kind, body) in well_formed() {
            if kind == b'd' {
                continue;
            }
            for len in 0..body.len() {
                let fault = check(kind, &body[..len]).expect_err("cut");
                assert!(fault.is_fatal, "{} {:?}", char::from(kind), &body[..len]);
            }
            let longer = [body.as_slice(), b"x"].concat();
            assert!(check(kind, &longer).expect_err("longer").is_fatal, "{}", char::from(kind));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let of = |kind, body: &[u8]| {
            let fault = check(kind, body).expect_err("refused");
            (fault.sqlstate, fault.is_fatal)
        };
        assert_eq!(of(b'Q', b"SELECT '\xff'\0"), ("22021", false));
        assert_eq!(of(b'Q', b"SELECT 'cut \xe2\x82'\0"), ("22021", false));
        assert_eq!(of(b'Q', b"SELECT '\0'\0"), ("08P01", true), "NUL within a text");
        assert_eq!(of(b'P', b"\xff\0SELECT 1\0\0\0"), ("22021", false));
        assert_eq!(of(b'P', b"s\0SELECT 1\0\xff\xff"), ("08P01", true), "types that are not there");
        let many = [b"s\0x\0\x80\0".as_slice(), &vec![0; 4 * 32_768]].concat();
        assert_eq!(of(b'P', &many), ("54023", false));
        assert_eq!(of(b'B', &bind(&[0, 0], &[None], &[])), ("08P01", false));
        assert_eq!(of(b'B', &bind(&[2], &[None], &[])), ("22023", false));
        assert_eq!(of(b'B', &bind(&[], &[None], &[-1])), ("22023", false));
        assert_eq!(of(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"), ("08P01", true), "length -2");
        assert_eq!(of(b'D', b"Xs\0"), ("08P01", false));
        assert_eq!(of(b'F', b""), ("08P01", true));
        assert_eq!(of(b'?', b""), ("08P01", true));
    }

    #[test]
    fn a_startup_message_is_pairs_of_texts() {
        assert_eq!(check_startup(196_608, b"user\0me\0\0"), Ok(()));
        assert_eq!(check_startup(196_608, b"user\0me\0options\0\0\0"), Ok(()));
        for body in
            [b"".as_slice(), b"user\0", b"user\0me\0", b"user\0me\0\0x", b"us\xffer\0me\0\0"]
        {
            assert!(check_startup(196_608, body).is_err(), "{body:?}");
        }
        assert!(check_startup(196_608, &vec![b'x'; 20_000]).is_err());
        assert!(check_startup(196_608, &[b"a\0b\0".repeat(300), vec![0]].concat()).is_err());
        assert_eq!(check_startup(CANCEL_REQUEST, &[0; 8]), Ok(()));
        assert!(check_startup(CANCEL_REQUEST, &[0; 7]).is_err());
    }

    #[test]
    fn an_initial_response_is_a_mechanism_and_data() {
        let read =
            |body: &'static [u8]| initial_response(body).map(|read| (read.mechanism, read.data));
        assert_eq!(read(b"M\0\0\0\0\x02ab"), Ok((b"M".as_slice(), Some(b"ab".as_slice()))));
        assert_eq!(read(b"M\0\0\0\0\0"), Ok((b"M".as_slice(), Some(b"".as_slice()))));
        assert_eq!(read(b"M\0\xff\xff\xff\xff"), Ok((b"M".as_slice(), None)));
        for body in [
            b"".as_slice(),
            b"M",
            b"M\0",
            b"M\0\0\0\0",
            b"M\0\0\0\0\x02a",
            b"M\0\0\0\0\x02abc",
            b"M\0\xff\xff\xff\xffa",
            b"M\0\xff\xff\xff\xfe",
            b"M\0\x7f\xff\xff\xffa",
        ] {
            assert!(initial_response(body).expect_err("malformed").is_fatal, "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn what_passes_is_read_without_a_panic(
            at in 0..16_usize,
            changes in prop::collection::vec((0..64_usize, any::<u8>()), 0..4),
            cut in 0..64_usize,
            kind in prop::option::of(any::<u8>()),
        ) {
            let (of, mut body) = well_formed().swap_remove(at);
            for (position, byte) in changes {
                if let Some(place) = body.get_mut(position) {
                    *place = byte;
                }
            }
            body.truncate(cut);
            let kind = kind.unwrap_or(of);
            if check(kind, &body).is_ok() && kind != b'p' {
                let read = catch_unwind(|| decoded(kind, &body));
                prop_assert!(matches!(read, Ok(true)), "{kind} {body:?}");
            }
        }
    }
}
