//! Certificate of this process for its links to other processes of the cluster.

use std::path::PathBuf;

use anyhow::{Context, bail};
use partita_tls::{IdentityFiles, Links, Role};
use tokio_util::sync::CancellationToken;

/// Files of the certificate.
#[derive(clap::Args, Clone, Debug, Default)]
// Flattened into the options of several commands: the groups would have the same name.
#[group(skip)]
pub(crate) struct Options {
    /// Directory with ca.pem, cert.pem and key.pem of this process, as `partita certs issue` writes it. Changed files
    /// are used without a restart.
    #[arg(long, env = "PARTITA_CERTS", value_name = "DIR")]
    certs: Option<PathBuf>,
    /// Authorities of the cluster, in place of ca.pem in --certs.
    #[arg(long, env = "PARTITA_CLUSTER_CA", value_name = "FILE")]
    cluster_ca: Option<PathBuf>,
    /// Certificate of this process in the cluster, in place of cert.pem in --certs.
    #[arg(long, env = "PARTITA_CLUSTER_CERT", value_name = "FILE")]
    cluster_cert: Option<PathBuf>,
    /// Private key of this process in the cluster, in place of key.pem in --certs.
    #[arg(long, env = "PARTITA_CLUSTER_KEY", value_name = "FILE")]
    cluster_key: Option<PathBuf>,
}

impl Options {
    /// The files, if this process has a certificate.
    ///
    /// # Errors
    /// If only some of them are named.
    pub(crate) fn files(&self) -> anyhow::Result<Option<IdentityFiles>> {
        if let Some(dir) = &self.certs {
            let files = IdentityFiles::of(dir);
            return Ok(Some(IdentityFiles {
                authorities: self.cluster_ca.clone().unwrap_or(files.authorities),
                certificate: self.cluster_cert.clone().unwrap_or(files.certificate),
                key: self.cluster_key.clone().unwrap_or(files.key),
            }));
        }
        match (&self.cluster_ca, &self.cluster_cert, &self.cluster_key) {
            (None, None, None) => Ok(None),
            (Some(authorities), Some(certificate), Some(key)) => Ok(Some(IdentityFiles {
                authorities: authorities.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
            })),
            _ => bail!(
                "--cluster-ca, --cluster-cert and --cluster-key must be used together, or with --certs"
            ),
        }
    }

    /// Links of this process: by its certificate, which must be for the role, or plain.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub(crate) fn links(&self, role: Option<Role>) -> anyhow::Result<Links> {
        let Some(files) = self.files()? else { return Ok(Links::plain()) };
        Links::load(&files, role).context("cannot use the certificate of this process")
    }
}

/// Uses changed files in a task, until `stop`.
pub(crate) fn follow(links: &Links, stop: CancellationToken) {
    if links.role().is_some() {
        tokio::spawn(links.clone().follow(stop));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use partita_tls::issue::{self, Request};

    use super::*;

    /// Options with the directory of a new certificate.
    pub(crate) fn issued(dir: &Path, role: Role) -> Options {
        if !dir.join("ca.pem").exists() {
            issue::init(dir).unwrap();
        }
        let hosts = vec!["127.0.0.1".to_owned()];
        let request = Request { role, name: role.as_str().to_owned(), hosts, days: 30 };
        let certs = issue::issue(dir, &request).unwrap();
        Options { certs: Some(certs), ..Options::default() }
    }

    #[test]
    fn a_process_uses_a_directory_or_three_files() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Options::default().links(Some(Role::Meta)).unwrap().role(), None);
        let by_dir = issued(dir.path(), Role::Meta);
        assert_eq!(by_dir.links(Some(Role::Meta)).unwrap().role(), Some(Role::Meta));
        let files = by_dir.files().unwrap().unwrap();
        let mut by_file = Options {
            cluster_ca: Some(files.authorities),
            cluster_cert: Some(files.certificate),
            cluster_key: Some(files.key),
            certs: None,
        };
        assert_eq!(by_file.links(None).unwrap().role(), Some(Role::Meta));
        by_file.cluster_key = None;
        let text = by_file.links(None).unwrap_err().to_string();
        assert!(text.contains("--cluster-key"), "{text}");
    }

    #[test]
    fn a_certificate_of_another_role_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = issued(dir.path(), Role::Datanode).links(Some(Role::Meta)).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("is for role datanode, but role meta is required"), "{text}");
    }
}
