//! The server's check of a client: a certificate of the cluster's authority, with an allowed role.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use tracing::debug;

use crate::role::Role;

/// Verifies the chain by another verifier, then the role.
#[derive(Debug)]
pub(crate) struct RoleVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    allowed: Vec<Role>,
}

impl RoleVerifier {
    pub(crate) fn new(chain: Arc<dyn ClientCertVerifier>, allowed: &[Role]) -> Self {
        Self { chain, allowed: allowed.to_vec() }
    }
}

impl ClientCertVerifier for RoleVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        true
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        let role = Role::of(end_entity);
        if role.is_some_and(|role| self.allowed.contains(&role)) {
            return Ok(verified);
        }
        debug!(?role, allowed = ?self.allowed, "refused a certificate because of its role");
        // The client is told by the alert `access_denied`.
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
