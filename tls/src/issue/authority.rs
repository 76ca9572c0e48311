//! An authority: its key, its certificate, and the certificates that it signs.
//!
//! Invariant: the name of an authority follows from its public key. Two authorities never have the same name, and the
//! issuer of a certificate can be written without parsing the authority's.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};

use super::request::Request;
use crate::certificate::fields;
use crate::error::TlsError;
use crate::files::{self, Certificate, invalid};
use crate::role::Role;

/// Bytes of the public key in the name of its authority.
const NAME_KEY_BYTES: usize = 8;

/// Key and certificate of an authority.
pub(super) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Generates a key and signs its certificate, which is valid between two times in seconds since 1970.
    pub(super) fn create(valid: &Range<u64>) -> Result<Self, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(&key);
        set_validity(&mut params, valid);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Reads a key and finds its certificate in a bundle, if it is there.
    pub(super) fn find(path: &Path, bundle: &[Certificate]) -> Result<Option<Self>, TlsError> {
        let key = files::private_key(path)?;
        let key = KeyPair::try_from(&key).map_err(|error| invalid(path, error.to_string()))?;
        let name = authority_name(&key);
        let belongs = |certificate: &&Certificate| {
            fields(certificate).is_some_and(|fields| {
                fields.public_key == key.public_key_raw()
                    && fields.common_name.as_deref() == Some(name.as_str())
            })
        };
        let certificate = bundle.iter().find(belongs).cloned();
        Ok(certificate.map(|certificate| {
            let params = params(&key);
            Self { certificate, issuer: Issuer::new(params, key) }
        }))
    }

    /// The authority's own certificate.
    pub(super) fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Private key of the authority in PEM.
    pub(super) fn key_pem(&self) -> String {
        encode("PRIVATE KEY", self.issuer.key().serialized_der())
    }

    /// Issues a certificate for a new key; returns it with the key in PEM.
    pub(super) fn issue(
        &self,
        request: &Request,
        valid: &Range<u64>,
    ) -> Result<(Certificate, String), TlsError> {
        let expires = fields(&self.certificate).map(|fields| fields.expires.timestamp());
        let expires = expires.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        if valid.end > expires {
            return Err(TlsError::InvalidRequest(
                "the certificate would be valid for longer than its authority; use fewer days, or rotate the \
                 authority"
                    .to_owned(),
            ));
        }
        let mut names = vec![request.role.dns_name().to_owned()];
        names.extend(request.hosts.iter().cloned());
        let mut params = CertificateParams::new(names)?;
        set_validity(&mut params, valid);
        params.distinguished_name = subject(&request.name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if request.role != Role::Admin {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.der().clone(), encode("PRIVATE KEY", key.serialized_der())))
    }
}

/// Encodes certificates in PEM.
pub(super) fn certificates_pem(certificates: &[Certificate]) -> String {
    certificates.iter().map(|certificate| encode("CERTIFICATE", certificate)).collect()
}

/// Parameters of an authority's certificate, without its validity.
fn params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&authority_name(key));
    // It signs certificates of processes, never another authority's.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn authority_name(key: &KeyPair) -> String {
    // The first byte says how the point is encoded.
    let bytes = key.public_key_raw().iter().skip(1).take(NAME_KEY_BYTES);
    let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
    format!("Partita cluster CA {hex}")
}

fn subject(common_name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    subject
}

fn set_validity(params: &mut CertificateParams, valid: &Range<u64>) {
    params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(valid.start);
    params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(valid.end);
}

fn encode(tag: &str, der: &[u8]) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(tag, der), config)
}
