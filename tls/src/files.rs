//! Certificates and keys in files.
//!
//! Invariant: a file is replaced at once (a new file is renamed onto it), so that a reader finds the old or the new
//! contents. A certificate and its key are two files: between them a reader may find a pair that does not match, and
//! tries again.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use crate::error::TlsError;
use crate::options::provider;

/// A certificate in DER.
pub(crate) type Certificate = CertificateDer<'static>;
/// Authorities, or the certificate of a process and those above it.
pub(crate) type Certificates = Vec<Certificate>;

/// Mode of private keys.
const KEY_MODE: u32 = 0o600;
/// Mode of everything else.
const PUBLIC_MODE: u32 = 0o644;
/// Mode of directories with keys.
const DIR_MODE: u32 = 0o700;
/// Permission bits of group and others.
const SHARED_BITS: u32 = 0o077;

/// Reads the certificates of a PEM file, of which there is at least one.
pub(crate) fn certificates(path: &Path) -> Result<Certificates, TlsError> {
    let bytes = fs::read(path).map_err(|cause| unreadable(path, cause))?;
    let certificates: Result<Certificates, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|error| invalid(path, error.to_string()))?;
    if certificates.is_empty() {
        return Err(invalid(path, "it contains no certificate"));
    }
    Ok(certificates)
}

/// Reads certificates that are trusted.
pub(crate) fn authorities(path: &Path) -> Result<Certificates, TlsError> {
    let certificates = certificates(path)?;
    roots(&certificates).map_err(|error| invalid(path, error.to_string()))?;
    Ok(certificates)
}

/// Makes a store of trusted certificates.
pub(crate) fn roots(
    authorities: &[CertificateDer<'static>],
) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(roots)
}

/// Reads a private key, which only its owner may be able to read.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let read = || -> std::io::Result<(u32, Vec<u8>)> {
        let mut file = File::open(path)?;
        let mode = file.metadata()?.permissions().mode() & 0o7777;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((mode, bytes))
    };
    let (mode, bytes) = read().map_err(|cause| unreadable(path, cause))?;
    if mode & SHARED_BITS != 0 {
        return Err(TlsError::KeyMode { path: path.to_owned(), mode });
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| invalid(path, error.to_string()))
}

/// Reads a certificate with those above it, and its key.
pub(crate) fn pair(
    certificate: &Path,
    key: &Path,
) -> Result<(Certificates, PrivateKeyDer<'static>), TlsError> {
    let (chain, private) = (certificates(certificate)?, private_key(key)?);
    match CertifiedKey::from_der(chain.clone(), private.clone_key(), &provider()) {
        Ok(_) => Ok((chain, private)),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::KeyMismatch { key: key.to_owned(), certificate: certificate.to_owned() })
        }
        Err(rustls::Error::InvalidCertificate(error)) => {
            Err(invalid(certificate, rustls::Error::InvalidCertificate(error).to_string()))
        }
        Err(error) => Err(invalid(key, error.to_string())),
    }
}

/// Writes a file that everybody may read.
pub(crate) fn write_public(path: &Path, text: &str) -> Result<(), TlsError> {
    replace(path, text, PUBLIC_MODE).map_err(|cause| unwritable(path, cause))
}

/// Writes a file that only its owner may read.
pub(crate) fn write_key(path: &Path, text: &str) -> Result<(), TlsError> {
    replace(path, text, KEY_MODE).map_err(|cause| unwritable(path, cause))
}

fn replace(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let new = path.with_extension("new");
    // The remains of an interrupted run may have another mode.
    if let Err(error) = fs::remove_file(&new)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Creates a directory that only its owner may enter. An existing one is left as it is.
pub(crate) fn create_dir(dir: &Path) -> Result<(), TlsError> {
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(DIR_MODE).create(dir);
    created.map_err(|cause| unwritable(dir, cause))
}

pub(crate) fn unreadable(path: &Path, cause: std::io::Error) -> TlsError {
    TlsError::Read { path: path.to_owned(), cause }
}

pub(crate) fn unwritable(path: &Path, cause: std::io::Error) -> TlsError {
    TlsError::Write { path: path.to_owned(), cause }
}

pub(crate) fn invalid(path: &Path, reason: impl Into<String>) -> TlsError {
    TlsError::Invalid { path: path.to_owned(), reason: reason.into() }
}
