//! Files of COPY on the server, all of them below one directory that its operator allows (`--copy-directory`).
//!
//! ```text
//!   path ── lexical check ── canonical path ── below the canonical directory? ── open
//! ```
//!
//! Invariants:
//! - no file outside of the directory is opened: neither by `..` nor through a symbolic link. The first check is of the
//!   path alone, so that its errors tell nothing about files elsewhere;
//! - only regular files are read: nothing waits for the other end of a pipe;
//! - a file that is written appears under its name at once and whole, or not at all.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::path::{Component, Path, PathBuf};

use crate::access::random;
use crate::error::{DISK_FULL, FEATURE_NOT_SUPPORTED, IO_ERROR, SqlError};

const UNDEFINED_FILE: &str = "58P01";
const DUPLICATE_FILE: &str = "58P02";
const INSUFFICIENT_PRIVILEGE: &str = "42501";
const WRONG_OBJECT_TYPE: &str = "42809";
const INVALID_NAME: &str = "42602";

/// The directory below which COPY may use files.
pub(crate) struct CopyDirectory {
    /// As the operator wrote it.
    written: PathBuf,
    canonical: PathBuf,
}

impl CopyDirectory {
    /// The directory of a frontend's options.
    ///
    /// # Errors
    /// Fails if there is none, or it cannot be found.
    pub(crate) fn new(directory: Option<&Path>) -> Result<Self, SqlError> {
        let Some(directory) = directory else {
            let message = "COPY with files of the server is not enabled";
            return Err(SqlError::new(FEATURE_NOT_SUPPORTED, message).with_hint(
                "start the server with --copy-directory, or use STDIN or STDOUT; psql's \\copy reads and writes \
                 files of the client",
            ));
        };
        match directory.canonicalize() {
            Ok(canonical) => Ok(Self { written: directory.to_owned(), canonical }),
            Err(error) => {
                let name = directory.display();
                let message = format!("could not find directory \"{name}\" of --copy-directory");
                Err(SqlError::new(IO_ERROR, message).with_detail(error.to_string()))
            }
        }
    }

    /// Opens a file for reading; `path` is absolute, or begins in the directory.
    ///
    /// # Errors
    /// Fails if the file is missing, elsewhere, or no regular file.
    pub(crate) fn open(&self, path: &str) -> Result<File, SqlError> {
        let failed = |error: &Error| not_opened(path, "reading", error);
        let canonical = self.below(path)?.canonicalize().map_err(|error| failed(&error))?;
        self.check_below(&canonical, path)?;
        // Before it is opened: that of a pipe would wait for a writer.
        check_regular(&canonical.metadata().map_err(|error| failed(&error))?, path)?;
        let file = File::open(&canonical).map_err(|error| failed(&error))?;
        check_regular(&file.metadata().map_err(|error| failed(&error))?, path)?;
        Ok(file)
    }

    /// Begins a file, in place of one that exists. It appears when [`NewFile::finish`] is called.
    ///
    /// # Errors
    /// Fails if its directory is missing or elsewhere, or the path is that of a directory.
    pub(crate) fn create(&self, path: &str) -> Result<(NewFile, File), SqlError> {
        let failed = |error: &Error| not_opened(path, "writing", error);
        let target = self.below(path)?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(outside(path));
        };
        let parent = parent.canonicalize().map_err(|error| failed(&error))?;
        self.check_below(&parent, path)?;
        let target = parent.join(name);
        if let Ok(existing) = target.symlink_metadata()
            && !existing.is_symlink()
        {
            check_regular(&existing, path)?;
        }
        let mut partial = name.to_os_string();
        partial.push(format!(".{:016x}.partial", u64::from_be_bytes(random::bytes()?)));
        let partial = parent.join(partial);
        let created = OpenOptions::new().write(true).create_new(true).open(&partial);
        let file = created.map_err(|error| failed(&error))?;
        Ok((NewFile { partial, target, parent, is_finished: false }, file))
    }

    /// The path below the directory, by its text alone.
    fn below(&self, path: &str) -> Result<PathBuf, SqlError> {
        if path.is_empty() || path.contains('\0') {
            return Err(SqlError::new(INVALID_NAME, "the path of a file is empty or invalid"));
        }
        let mut relative = Path::new(path);
        if relative.is_absolute() {
            relative = relative.strip_prefix(&self.written).unwrap_or(relative);
        }
        let joined = self.canonical.join(relative);
        let climbs = joined.components().any(|component| component == Component::ParentDir);
        if climbs || !joined.starts_with(&self.canonical) || joined == self.canonical {
            return Err(outside(path));
        }
        Ok(joined)
    }

    /// Checks a canonical path.
    fn check_below(&self, canonical: &Path, path: &str) -> Result<(), SqlError> {
        if canonical.starts_with(&self.canonical) { Ok(()) } else { Err(outside(path)) }
    }
}

/// A file that does not have its name yet; dropped before [`NewFile::finish`], it is removed.
pub(crate) struct NewFile {
    partial: PathBuf,
    target: PathBuf,
    parent: PathBuf,
    is_finished: bool,
}

impl NewFile {
    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// Fails if the file cannot be written to disk or renamed.
    pub(crate) fn finish(mut self, file: &File) -> Result<(), SqlError> {
        file.sync_all().map_err(|error| not_written(&error))?;
        std::fs::rename(&self.partial, &self.target).map_err(|error| not_written(&error))?;
        self.is_finished = true;
        let parent = File::open(&self.parent).and_then(|parent| parent.sync_all());
        parent.map_err(|error| not_written(&error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.partial) {
            tracing::warn!(%error, file = %self.partial.display(), "cannot remove an unfinished file");
        }
    }
}

/// The error of a read of a file.
pub(crate) fn not_read(path: &str, error: &Error) -> SqlError {
    SqlError::new(IO_ERROR, format!("could not read file \"{path}\": {error}"))
}

/// The error of a write to the file of a COPY.
pub(crate) fn not_written(error: &Error) -> SqlError {
    let sqlstate = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DISK_FULL,
        _ => IO_ERROR,
    };
    SqlError::new(sqlstate, format!("could not write to COPY file: {error}"))
}

fn not_opened(path: &str, purpose: &str, error: &Error) -> SqlError {
    let sqlstate = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => UNDEFINED_FILE,
        ErrorKind::PermissionDenied => INSUFFICIENT_PRIVILEGE,
        ErrorKind::AlreadyExists => DUPLICATE_FILE,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DISK_FULL,
        _ => IO_ERROR,
    };
    SqlError::new(sqlstate, format!("could not open file \"{path}\" for {purpose}: {error}"))
}

fn outside(path: &str) -> SqlError {
    let message = format!("file \"{path}\" is not below the directory of --copy-directory");
    SqlError::new(INSUFFICIENT_PRIVILEGE, message)
        .with_hint("name a file by a path without \"..\", absolute or relative to that directory")
}

fn check_regular(metadata: &std::fs::Metadata, path: &str) -> Result<(), SqlError> {
    if metadata.is_file() {
        return Ok(());
    }
    let kind = if metadata.is_dir() { "a directory" } else { "not a regular file" };
    Err(SqlError::new(WRONG_OBJECT_TYPE, format!("\"{path}\" is {kind}")))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;

    use super::*;

    fn state(result: Result<impl Sized, SqlError>) -> String {
        result.err().map_or_else(|| "none".to_owned(), |error| error.sqlstate)
    }

    #[test]
    fn files_are_found_below_the_directory_only() {
        let outer = tempfile::tempdir().unwrap();
        let allowed = outer.path().join("allowed");
        std::fs::create_dir_all(allowed.join("sub")).unwrap();
        std::fs::write(outer.path().join("secret"), "s").unwrap();
        std::fs::write(allowed.join("sub/rows"), "r").unwrap();
        std::fs::create_dir(outer.path().join("allowed-too")).unwrap();
        std::fs::write(outer.path().join("allowed-too/rows"), "s").unwrap();
        symlink(outer.path(), allowed.join("up")).unwrap();
        symlink(outer.path().join("secret"), allowed.join("link")).unwrap();
        symlink(allowed.join("sub/rows"), allowed.join("inner")).unwrap();
        let directory = CopyDirectory::new(Some(&allowed)).unwrap();
        let absolute = |name: &str| outer.path().join(name).to_str().unwrap().to_owned();
        for path in ["sub/rows", "./sub/rows", "inner", &absolute("allowed/sub/rows")] {
            let mut text = String::new();
            directory.open(path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "r", "{path}");
        }
        let elsewhere = [
            "../secret".to_owned(),
            "sub/../../secret".to_owned(),
            "link".to_owned(),
            "up/secret".to_owned(),
            absolute("secret"),
            absolute("missing"),
            absolute("allowed-too/rows"),
            ".".to_owned(),
        ];
        for path in &elsewhere {
            assert_eq!(state(directory.open(path)), "42501", "{path}");
        }
        for path in ["../new", "up/new", "/new"] {
            assert_eq!(state(directory.create(path)), "42501", "{path}");
        }
        assert_eq!(state(directory.open("missing")), "58P01");
        assert_eq!(state(directory.create("missing/new")), "58P01");
        assert_eq!(state(directory.open("sub")), "42809");
        assert_eq!(state(directory.create("sub")), "42809");
        assert_eq!(state(directory.open("")), "42602");
    }

    #[test]
    fn files_appear_whole_or_not_at_all() {
        let allowed = tempfile::tempdir().unwrap();
        let directory = CopyDirectory::new(Some(allowed.path())).unwrap();
        let names = || -> Vec<_> {
            let entries = std::fs::read_dir(allowed.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let (new, mut file) = directory.create("rows").unwrap();
        file.write_all(b"whole").unwrap();
        assert!(!allowed.path().join("rows").exists());
        new.finish(&file).unwrap();
        assert_eq!(names(), ["rows"]);
        let (unfinished, mut file) = directory.create("rows").unwrap();
        file.write_all(b"half").unwrap();
        drop(unfinished);
        assert_eq!(names(), ["rows"]);
        assert_eq!(std::fs::read_to_string(allowed.path().join("rows")).unwrap(), "whole");
    }

    #[test]
    fn a_link_to_elsewhere_is_replaced_and_not_followed() {
        let outer = tempfile::tempdir().unwrap();
        let allowed = outer.path().join("allowed");
        std::fs::create_dir(&allowed).unwrap();
        std::fs::write(outer.path().join("secret"), "s").unwrap();
        symlink(outer.path().join("secret"), allowed.join("link")).unwrap();
        let directory = CopyDirectory::new(Some(&allowed)).unwrap();
        let (new, mut file) = directory.create("link").unwrap();
        file.write_all(b"new").unwrap();
        new.finish(&file).unwrap();
        assert_eq!(std::fs::read_to_string(outer.path().join("secret")).unwrap(), "s");
        assert_eq!(std::fs::read_to_string(allowed.join("link")).unwrap(), "new");
    }

    #[test]
    fn without_a_directory_files_are_refused() {
        let error = CopyDirectory::new(None).err().unwrap();
        assert_eq!(error.sqlstate, "0A000");
        assert!(error.hint.unwrap().contains("--copy-directory"));
        assert_eq!(state(CopyDirectory::new(Some(Path::new("/nowhere/at/all")))), "58030");
    }
}
