//! Fields of a certificate that are shown, or that name a client. None of them decides whom to trust.

use chrono::{DateTime, Utc};
use rustls::pki_types::CertificateDer;
use x509_certificate::X509Certificate;

/// Fields of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    /// First common name of the subject.
    pub(crate) common_name: Option<String>,
    /// End of the validity.
    pub(crate) expires: DateTime<Utc>,
    /// Public key without its algorithm.
    pub(crate) public_key: Vec<u8>,
}

/// Reads the fields of a certificate, unless it is malformed.
pub(crate) fn fields(certificate: &CertificateDer<'_>) -> Option<Fields> {
    let certificate = X509Certificate::from_der(certificate).ok()?;
    Some(Fields {
        common_name: certificate.subject_common_name(),
        expires: certificate.validity_not_after(),
        public_key: certificate.public_key_data().to_vec(),
    })
}
