//! The file `GENERATION` of a data directory ([`partita_proto::generation`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::generation::{Claim, ClaimFile, Generations};

use crate::data_dir;

/// The file in the data directory.
const FILE: &str = "GENERATION";

struct DirectoryFile {
    dir: PathBuf,
}

impl ClaimFile for DirectoryFile {
    fn read(&self) -> Result<Claim, Error> {
        let path = self.dir.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Claim::default());
            }
            Err(error) => return Err(failed(&path, &error)),
        };
        let claim = std::str::from_utf8(&bytes).ok().and_then(Claim::from_text);
        Ok(claim.unwrap_or_else(|| {
            let path = path.display();
            tracing::error!(%path, "the file is damaged: the data directory counts as an older copy");
            Claim::default()
        }))
    }

    fn write(&self, claim: &Claim) -> Result<(), Error> {
        let path = self.dir.join(FILE);
        data_dir::write(&self.dir, &path, &claim.to_text()).map_err(|error| failed(&path, &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::DiskFull(message),
        _ => Error::Unavailable(message),
    }
}

/// Opens the generations of a data directory.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn open(dir: &Path) -> Result<Generations, Error> {
    Generations::open(Arc::new(DirectoryFile { dir: dir.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_outlive_the_process_and_a_damaged_file_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let generations = open(dir.path()).unwrap();
        assert_eq!(generations.claim(), Claim::default());
        let claim = generations.begin(7).unwrap();
        assert_eq!(open(dir.path()).unwrap().claim(), claim);
        std::fs::write(dir.path().join(FILE), "acknowledged 1").unwrap();
        assert_eq!(open(dir.path()).unwrap().claim(), Claim::default());
    }
}
