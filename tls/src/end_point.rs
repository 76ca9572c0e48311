//! The hash of a server's certificate to which SCRAM binds a channel.
//!
//! Source: RFC 5929 section 4.1. The hash is that of the certificate's signature, but SHA-256 for MD5 and SHA-1.

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_certificate::{SignatureAlgorithm, X509Certificate};

/// Channel binding `tls-server-end-point` of a server with this certificate; none if its signature has no single hash,
/// as with Ed25519.
#[must_use]
pub fn end_point_hash(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = X509Certificate::from_der(certificate).ok()?.signature_algorithm()?;
    let bytes: &[u8] = certificate.as_ref();
    match algorithm {
        SignatureAlgorithm::RsaSha1
        | SignatureAlgorithm::RsaSha256
        | SignatureAlgorithm::EcdsaSha256 => Some(Sha256::digest(bytes).to_vec()),
        SignatureAlgorithm::RsaSha384 | SignatureAlgorithm::EcdsaSha384 => {
            Some(Sha384::digest(bytes).to_vec())
        }
        SignatureAlgorithm::RsaSha512 => Some(Sha512::digest(bytes).to_vec()),
        SignatureAlgorithm::Ed25519 | SignatureAlgorithm::NoSignature(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::{Request, init, issue};
    use crate::{Identity, Role};

    #[test]
    fn the_hash_of_an_issued_certificate_is_sha_256_of_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        init(dir.path()).unwrap();
        let request =
            Request { role: Role::Frontend, name: "f".to_owned(), hosts: Vec::new(), days: 1 };
        let identity = Identity::load(&issue(dir.path(), &request).unwrap()).unwrap();
        let certificate = identity.certificate().unwrap();
        let expected = Sha256::digest(&certificate[..]).to_vec();
        assert_eq!(end_point_hash(certificate), Some(expected));
    }

    #[test]
    fn a_malformed_certificate_has_none() {
        assert_eq!(end_point_hash(&CertificateDer::from(vec![0x30, 0x00])), None);
    }
}
