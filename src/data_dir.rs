//! The data directory: whose it is, and of which format.
//!
//! Its file `PARTITA` says which version of the layout the directory has. A directory of another
//! version, or one that holds something else, is refused before anything in it is touched.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};

/// The layout's version: raises when an older binary could not read what a newer one wrote.
const FORMAT: u32 = 1;
/// The file that marks a data directory.
const MARKER: &str = "PARTITA";

/// Makes sure that `dir` is a data directory of this version, creating it when it is new.
///
/// # Errors
/// Says what is wrong with it: not writable, not empty and not ours, of another version.
pub(crate) fn prepare(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let marker = dir.join(MARKER);
    match std::fs::read_to_string(&marker) {
        Ok(text) => check(dir, &text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut entries = std::fs::read_dir(dir)
                .with_context(|| format!("cannot read the data directory {}", dir.display()))?;
            if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "lost+found")) {
                bail!(
                    "{} is not empty and is not a Partita data directory; choose another with --data-dir",
                    dir.display()
                );
            }
            write_marker(dir, &marker)
                .with_context(|| format!("cannot write to the data directory {}", dir.display()))?;
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", marker.display()));
        }
    }
    // A directory that became read-only is found now, not at the first write.
    let probe = dir.join(".writable");
    std::fs::write(&probe, b"")
        .and_then(|()| std::fs::remove_file(&probe))
        .with_context(|| format!("cannot write to the data directory {}", dir.display()))
}

fn check(dir: &Path, text: &str) -> anyhow::Result<()> {
    let format = text.trim().strip_prefix("format ").and_then(|number| number.parse::<u32>().ok());
    match format {
        Some(FORMAT) => Ok(()),
        Some(other) => bail!(
            "the data directory {} has format {other}, this version of Partita reads format {FORMAT}",
            dir.display()
        ),
        None => bail!("{} does not say which format it has", dir.join(MARKER).display()),
    }
}

fn write_marker(dir: &Path, marker: &Path) -> std::io::Result<()> {
    let new = dir.join("PARTITA.new");
    let mut file = std::fs::File::create(&new)?;
    writeln!(file, "format {FORMAT}")?;
    file.sync_all()?;
    std::fs::rename(&new, marker)?;
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_is_marked_and_accepted_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        prepare(&path).unwrap();
        prepare(&path).unwrap();
    }

    #[test]
    fn a_directory_of_another_format_is_refused_by_number() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(MARKER), "format 99\n").unwrap();
        let error = prepare(dir.path()).unwrap_err().to_string();
        assert!(error.contains("format 99"), "{error}");
    }

    #[test]
    fn a_directory_that_holds_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.txt"), "precious").unwrap();
        let error = prepare(dir.path()).unwrap_err().to_string();
        assert!(error.contains("not a Partita data directory"), "{error}");
    }
}
