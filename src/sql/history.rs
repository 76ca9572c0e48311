//! The history of an interactive session: where it is, and what it must not have.
//!
//! Invariant: no statement with a password or a token is kept, neither in the file nor in memory.

use std::io;
use std::path::{Path, PathBuf};

/// Maximum bytes of an entry; longer ones are not kept.
const ENTRY_BYTES: usize = 64 << 10;
/// Permissions of the file: its owner reads and writes it.
const MODE: u32 = 0o600;

/// Words of statements that have secrets.
const SECRETS: [&str; 4] = ["PASSWORD", "TOKEN", "SECRET", "IDENTIFIED"];

/// File of the history: that of the variable, or else one in the home directory; none if the name is empty.
pub(super) fn path(variable: Option<&str>, home: Option<PathBuf>) -> Option<PathBuf> {
    match variable {
        Some("") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => home.map(|home| home.join(".partita_history")),
    }
}

/// True if the history may have the entry.
pub(super) fn is_kept(entry: &str) -> bool {
    let is_of_word = |letter: char| letter.is_alphanumeric();
    let mut words = entry.split(|letter| !is_of_word(letter)).map(str::to_uppercase);
    !entry.trim().is_empty()
        && entry.len() <= ENTRY_BYTES
        && !words.any(|word| SECRETS.iter().any(|secret| word.contains(secret)))
}

/// Makes the file, if there is none, such that others cannot read it, and takes their rights to one that exists.
///
/// # Errors
/// If the file can neither be made nor changed.
pub(super) fn protect(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).mode(MODE).open(path)?;
    // Devices keep their permissions, such as /dev/null.
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.permissions().mode() & 0o777 != MODE {
        file.set_permissions(std::fs::Permissions::from_mode(MODE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn no_secret_is_kept() {
        for entry in [
            "CREATE ROLE a PASSWORD 'secret'",
            "alter role a\nencrypted password 'secret';",
            "ALTER TASK t SET TOKEN 'secret'",
            "SET my_password = 'x'",
            "CREATE USER a IDENTIFIED BY 'x'",
        ] {
            assert!(!is_kept(entry), "{entry}");
        }
        for entry in ["SELECT 1;", "\\d events", "SELECT passwd FROM t;"] {
            assert!(is_kept(entry), "{entry}");
        }
        assert!(!is_kept(" \n"));
        assert!(!is_kept(&"x".repeat(ENTRY_BYTES + 1)));
    }

    #[test]
    fn the_file_is_read_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        protect(&file).unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::write(&file, "SELECT 1;\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        protect(&file).unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "SELECT 1;\n");
    }

    #[test]
    fn the_file_is_in_the_home_directory_unless_a_variable_names_another() {
        let home = || Some(PathBuf::from("/home/a"));
        assert_eq!(path(None, home()), Some(PathBuf::from("/home/a/.partita_history")));
        assert_eq!(path(Some("h"), home()), Some(PathBuf::from("h")));
        assert_eq!(path(Some(""), home()), None);
        assert_eq!(path(None, None), None);
    }
}
