//! Files that are refused, each by a message that names it.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let dir = authority();
    let member = issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
    let key = member.join("key.pem");
    for mode in [0o640, 0o604, 0o620] {
        set_mode(&key, mode);
        let text = message(Identity::load(&member));
        assert!(text.contains("key.pem"), "{text}");
        assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
        assert!(text.contains("must have mode 0600"), "{text}");
    }
    for mode in [0o400, 0o600] {
        set_mode(&key, mode);
        Identity::load(&member).unwrap();
    }
    set_mode(&dir.path().join("ca-key.pem"), 0o644);
    let text = message(issue(dir.path(), &request(Role::Meta, "m2")));
    assert!(text.contains("ca-key.pem"), "{text}");
}

#[test]
fn missing_empty_and_mixed_up_files_are_named() {
    let dir = authority();
    let member = issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
    let other = issue(dir.path(), &request(Role::Meta, "m2")).unwrap();
    let certificate = std::fs::read(member.join("cert.pem")).unwrap();

    std::fs::copy(other.join("cert.pem"), member.join("cert.pem")).unwrap();
    let text = message(Identity::load(&member));
    assert!(text.contains("does not match"), "{text}");
    for contents in
        ["", "rubbish", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        std::fs::write(member.join("cert.pem"), contents).unwrap();
        let text = message(Identity::load(&member));
        assert!(text.contains("cert.pem"), "{text}");
    }
    std::fs::write(member.join("cert.pem"), certificate).unwrap();
    Identity::load(&member).unwrap();

    std::fs::write(member.join("ca.pem"), "").unwrap();
    assert!(message(Identity::load(&member)).contains("ca.pem"));
    std::fs::remove_file(member.join("ca.pem")).unwrap();
    assert!(message(Identity::load(&member)).contains("could not read"));
}
