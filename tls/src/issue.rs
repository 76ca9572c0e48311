//! The cluster's certificate authority: a directory of files, which `partita certs` works on.
//!
//! ```text
//! DIR/ca.pem            authorities that are trusted: one, two during a rotation
//! DIR/ca-key.pem        private key of the authority that issues (mode 0600)
//! DIR/next-ca-key.pem   private key of the next authority, while a rotation has trusted but not issued
//! DIR/NAME/             certificate of NAME: ca.pem, cert.pem, key.pem, and REQUEST, from which it is issued anew
//!
//! rotate:  trust (ca.pem: old, next)  ->  issue (by next; all certificates)  ->  drop (ca.pem: next)
//! ```
//!
//! Invariants:
//! - At each moment of a rotation a process with the files before a step and one with those after it trust each other.
//!   The files have to reach every process, and be loaded, before the next step.
//! - A step that was interrupted is repeated: what decides which step is next is written last.

mod authority;
mod request;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};

pub use self::request::Request;

use self::authority::Authority;
use crate::certificate::fields;
use crate::error::TlsError;
use crate::files::{self, Certificate, Certificates, invalid, unreadable, unwritable};
use crate::identity::{AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE};
use crate::role::Role;

/// Private key of the authority.
const AUTHORITY_KEY_FILE: &str = "ca-key.pem";
/// Private key of the next authority.
const NEXT_KEY_FILE: &str = "next-ca-key.pem";
/// Request of a certificate, beside it.
const REQUEST_FILE: &str = "REQUEST";
/// Age of new certificates: clocks of other machines may be behind.
const CLOCK_SKEW_S: u64 = 3600;
const DAY_S: u64 = 86_400;
/// Validity of an authority.
const AUTHORITY_DAYS: u32 = 3650;

/// Step that a rotation has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The next authority is trusted besides the old one.
    Trusted,
    /// All certificates were issued anew by the next authority; their names.
    Issued(Vec<String>),
    /// The old authority is not trusted any more; the rotation is finished.
    Dropped,
}

/// A certificate of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Common name.
    pub name: String,
    /// Role that the certificate proves; none for authorities.
    pub role: Option<Role>,
    /// Host names and addresses.
    pub hosts: Vec<String>,
    /// End of the validity; none if the certificate is malformed.
    pub expires: Option<DateTime<Utc>>,
}

/// Creates an authority in a directory that has none.
///
/// # Errors
/// If there is one, or the files cannot be written.
pub fn init(dir: &Path) -> Result<(), TlsError> {
    files::create_dir(dir)?;
    let (bundle, key) = (dir.join(AUTHORITIES_FILE), dir.join(AUTHORITY_KEY_FILE));
    for path in [&bundle, &key] {
        let exists = path.try_exists().map_err(|cause| unreadable(path, cause))?;
        if exists {
            return Err(TlsError::Exists(path.clone()));
        }
    }
    let authority = Authority::create(&validity(AUTHORITY_DAYS))?;
    files::write_key(&key, &authority.key_pem())?;
    files::write_public(&bundle, &authority::certificates_pem(&[authority.certificate().clone()]))
}

/// Issues a certificate, or issues it anew, and returns its directory.
///
/// # Errors
/// If the request is invalid, there is no authority, or the files cannot be written.
pub fn issue(dir: &Path, request: &Request) -> Result<PathBuf, TlsError> {
    issue_between(dir, request, &validity(request.days))
}

/// Issues a certificate that is valid between two times, in seconds since 1970, whatever the request says.
///
/// # Errors
/// As [`issue`].
pub fn issue_between(
    dir: &Path,
    request: &Request,
    valid: &Range<u64>,
) -> Result<PathBuf, TlsError> {
    request.check()?;
    let (bundle, authority) = open(dir)?;
    let member = dir.join(&request.name);
    let previous = member.join(REQUEST_FILE);
    if previous.exists() {
        let role = Request::read(&previous, &request.name)?.role;
        if role != request.role {
            return Err(TlsError::InvalidRequest(format!(
                "certificate \"{}\" is for role {role}, not {}; choose another name",
                request.name, request.role
            )));
        }
    }
    write_member(dir, &bundle, &authority, request, valid)?;
    Ok(member)
}

/// Takes the next step of a rotation of the authority; the first step begins one.
///
/// # Errors
/// If there is no authority, or the files cannot be written.
pub fn rotate(dir: &Path) -> Result<Rotation, TlsError> {
    let bundle = files::authorities(&dir.join(AUTHORITIES_FILE))?;
    let next_key = dir.join(NEXT_KEY_FILE);
    if next_key.exists() {
        // A key that the bundle does not know is left of an interrupted first step: another one replaces it.
        if let Some(next) = Authority::find(&next_key, &bundle)? {
            return issue_all(dir, &bundle, &next);
        }
    } else if bundle.len() > 1 {
        let (_, authority) = open(dir)?;
        write_bundle(dir, &[authority.certificate().clone()])?;
        return Ok(Rotation::Dropped);
    }
    let (_, current) = open(dir)?;
    let next = Authority::create(&validity(AUTHORITY_DAYS))?;
    files::write_key(&next_key, &next.key_pem())?;
    write_bundle(dir, &[current.certificate().clone(), next.certificate().clone()])?;
    Ok(Rotation::Trusted)
}

/// Lists the authorities, then the certificates by name.
///
/// # Errors
/// If the directory cannot be read.
pub fn list(dir: &Path) -> Result<Vec<Listed>, TlsError> {
    let mut listed = Vec::new();
    for authority in files::authorities(&dir.join(AUTHORITIES_FILE))? {
        let fields = fields(&authority);
        listed.push(Listed {
            name: fields.as_ref().and_then(|fields| fields.common_name.clone()).unwrap_or_default(),
            role: None,
            hosts: Vec::new(),
            expires: fields.map(|fields| fields.expires),
        });
    }
    for request in requests(dir)? {
        let chain = files::certificates(&dir.join(&request.name).join(CERTIFICATE_FILE))?;
        let certificate = chain.first();
        listed.push(Listed {
            role: certificate.and_then(Role::of),
            expires: certificate.and_then(fields).map(|fields| fields.expires),
            name: request.name,
            hosts: request.hosts,
        });
    }
    Ok(listed)
}

/// Opens the authority that issues, and reads all that are trusted.
fn open(dir: &Path) -> Result<(Certificates, Authority), TlsError> {
    let bundle_path = dir.join(AUTHORITIES_FILE);
    let bundle = files::authorities(&bundle_path)?;
    let key = dir.join(AUTHORITY_KEY_FILE);
    let authority = Authority::find(&key, &bundle)?.ok_or_else(|| {
        invalid(
            &bundle_path,
            format!("it has no authority of \"partita certs\" for {}", key.display()),
        )
    })?;
    Ok((bundle, authority))
}

/// Issues all certificates anew; the authority is the one that issues from then on.
fn issue_all(
    dir: &Path,
    bundle: &[Certificate],
    authority: &Authority,
) -> Result<Rotation, TlsError> {
    let mut names = Vec::new();
    for request in requests(dir)? {
        write_member(dir, bundle, authority, &request, &validity(request.days))?;
        names.push(request.name);
    }
    let (next_key, key) = (dir.join(NEXT_KEY_FILE), dir.join(AUTHORITY_KEY_FILE));
    std::fs::rename(&next_key, &key).map_err(|cause| unwritable(&key, cause))?;
    Ok(Rotation::Issued(names))
}

/// Issues a certificate and writes its directory.
fn write_member(
    dir: &Path,
    bundle: &[Certificate],
    authority: &Authority,
    request: &Request,
    valid: &Range<u64>,
) -> Result<(), TlsError> {
    let (certificate, key) = authority.issue(request, valid)?;
    let member = dir.join(&request.name);
    files::create_dir(&member)?;
    files::write_public(&member.join(AUTHORITIES_FILE), &authority::certificates_pem(bundle))?;
    files::write_key(&member.join(KEY_FILE), &key)?;
    let certificate = authority::certificates_pem(&[certificate]);
    files::write_public(&member.join(CERTIFICATE_FILE), &certificate)?;
    // Last: a directory without it is no certificate's yet.
    files::write_public(&member.join(REQUEST_FILE), &request.to_text())
}

/// Writes the trusted authorities beside each certificate, then beside the authority's key.
fn write_bundle(dir: &Path, authorities: &[Certificate]) -> Result<(), TlsError> {
    let text = authority::certificates_pem(authorities);
    for request in requests(dir)? {
        files::write_public(&dir.join(request.name).join(AUTHORITIES_FILE), &text)?;
    }
    files::write_public(&dir.join(AUTHORITIES_FILE), &text)
}

/// Requests of all certificates of the directory, by name.
fn requests(dir: &Path) -> Result<Vec<Request>, TlsError> {
    let mut requests = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|cause| unreadable(dir, cause))? {
        let entry = entry.map_err(|cause| unreadable(dir, cause))?;
        let path = entry.path().join(REQUEST_FILE);
        if path.exists()
            && let Some(name) = entry.file_name().to_str()
        {
            requests.push(Request::read(&path, name)?);
        }
    }
    requests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(requests)
}

/// Seconds since 1970 between which a certificate of so many days is valid.
fn validity(days: u32) -> Range<u64> {
    let time =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |duration| duration.as_secs());
    time.saturating_sub(CLOCK_SKEW_S)..time + u64::from(days) * DAY_S
}
