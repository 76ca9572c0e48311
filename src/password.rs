//! The first password of the superuser: from a file, or made by the first start beyond loopback.
//!
//! Invariant: a password that exists is never replaced. Meta decides that, so several frontends may start at once.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use partita_frontend::access::authenticator::{given_verifier, verifier_of};
use partita_frontend::access::random;
use partita_proto::access::{AccessChange, Role, Verifier};
use partita_proto::catalog::Catalog;
use partita_proto::error::Error;
use partita_proto::id::BOOTSTRAP_ROLE;
use partita_proto::service::{Ddl, MetaService};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// Pause before meta is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Time after which a start that waits for the superuser says so.
const COMPLAIN_AFTER: Duration = Duration::from_secs(10);
/// Random bytes of a made password: it is typed at least once.
const MADE_BYTES: usize = 15;
/// Permission bit of others to read.
const WORLD_READABLE: u32 = 0o004;

/// Origin of the first password.
pub(crate) enum First {
    /// None is set.
    None,
    /// Content of a file: a password or a SCRAM-SHA-256 verifier.
    Given(Verifier),
    /// A random one is made.
    Made,
}

impl First {
    /// Reads the file, if there is one; otherwise a password is made where the doors are reachable from other machines.
    ///
    /// # Errors
    /// If the file cannot be read, or has no password.
    pub(crate) fn of(file: Option<&Path>, is_exposed: bool) -> anyhow::Result<Self> {
        match file {
            Some(file) => Ok(Self::Given(read(file)?)),
            None if is_exposed => Ok(Self::Made),
            None => Ok(Self::None),
        }
    }

    /// Has meta record the password, unless the superuser has or had one. Waits until meta answers.
    ///
    /// # Errors
    /// If meta refuses, or no password can be made.
    pub(crate) async fn set(self, meta: &dyn MetaService) -> anyhow::Result<()> {
        match self {
            Self::None => {}
            Self::Given(verifier) => {
                if record(meta, &verifier).await? {
                    info!("the password of the superuser was set from the file");
                }
            }
            Self::Made => {
                if superuser(&meta.catalog().borrow()).is_some_and(has_had_password) {
                    return Ok(());
                }
                let password = make()?;
                let verifier = verifier_of(&password)?;
                // Before it is recorded: a password that nobody has seen would lock everybody out.
                show(&password);
                if !record(meta, &verifier).await? {
                    show_unused();
                }
            }
        }
        Ok(())
    }
}

/// Waits until the catalog has the superuser: before that, an open server would ask its clients for a password.
///
/// # Errors
/// If meta stops.
pub(crate) async fn until_superuser(meta: &dyn MetaService) -> anyhow::Result<()> {
    let mut catalog = meta.catalog();
    let has_superuser = |catalog: &Arc<Catalog>| catalog.access.role(BOOTSTRAP_ROLE).is_some();
    let early = timeout(COMPLAIN_AFTER, catalog.wait_for(has_superuser)).await.is_ok();
    if !early {
        warn!("waiting for meta to publish the superuser; clients cannot connect yet");
    }
    // Returns at once if it was there in time.
    catalog.wait_for(has_superuser).await.context("meta stopped before it had a superuser")?;
    Ok(())
}

fn superuser(catalog: &Catalog) -> Option<&Role> {
    catalog.access.role(BOOTSTRAP_ROLE).map(|role| &**role)
}

fn has_had_password(role: &Role) -> bool {
    role.verifier.is_some() || role.secret_version > 0
}

/// True if the catalog, once it has a password of the superuser, has this one.
async fn is_recorded(meta: &dyn MetaService, verifier: &Verifier) -> bool {
    let mut catalog = meta.catalog();
    let is_set = |catalog: &Arc<Catalog>| superuser(catalog).is_some_and(has_had_password);
    let set = timeout(COMPLAIN_AFTER, catalog.wait_for(is_set)).await;
    set.is_ok_and(|set| {
        set.is_ok_and(|catalog| {
            superuser(&catalog).is_some_and(|role| role.verifier.as_ref() == Some(verifier))
        })
    })
}

/// True if the password was set; false if there was one.
async fn record(meta: &dyn MetaService, verifier: &Verifier) -> anyhow::Result<bool> {
    let mut is_reported = false;
    loop {
        let change = AccessChange::SetInitialPassword(verifier.clone());
        match meta.change(Ddl::Access(Box::new(change))).await {
            Ok(true) => return Ok(true),
            // An attempt whose answer was lost may have set it.
            Ok(false) => return Ok(is_reported && is_recorded(meta, verifier).await),
            Err(error @ (Error::Unavailable(_) | Error::Timeout(_) | Error::NotLeader { .. })) => {
                if !std::mem::replace(&mut is_reported, true) {
                    warn!(%error, "waiting for meta to record the password of the superuser");
                }
                sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(error).context("cannot set the password of the superuser"),
        }
    }
}

/// Password of a file without the end of its line.
pub(crate) fn text_of(file: &Path) -> anyhow::Result<String> {
    let failed = || format!("cannot read the password file {}", file.display());
    let text = std::fs::read_to_string(file).with_context(failed)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        bail!("the password file {} is empty", file.display());
    }
    let mode = std::fs::metadata(file).with_context(failed)?.permissions().mode();
    if mode & WORLD_READABLE != 0 {
        warn!(file = %file.display(), "the password file is readable by every user of this machine");
    }
    Ok(text.to_owned())
}

fn read(file: &Path) -> anyhow::Result<Verifier> {
    let text = text_of(file)?;
    match given_verifier(&text)? {
        Some(verifier) => Ok(verifier),
        None => Ok(verifier_of(&text)?),
    }
}

fn make() -> anyhow::Result<String> {
    let bytes = random::bytes::<MADE_BYTES>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[expect(clippy::print_stderr, reason = "shown once, and never logged")]
fn show(password: &str) {
    eprintln!(
        "partita: the password of the superuser \"partita\" is {password}\npartita: it is not shown again; change it \
         by ALTER ROLE partita PASSWORD '...'"
    );
}

#[expect(clippy::print_stderr, reason = "belongs to the password that was shown")]
fn show_unused() {
    eprintln!("partita: this password is not used: the superuser already had another one");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_password_or_a_verifier() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "correct horse\r\n").unwrap();
        assert_eq!(text_of(&file).unwrap(), "correct horse");
        let verifier = read(&file).unwrap();
        std::fs::write(&file, verifier.expose()).unwrap();
        assert!(read(&file).unwrap() == verifier);
        std::fs::write(&file, "\n").unwrap();
        assert!(text_of(&file).unwrap_err().to_string().contains("is empty"));
        let error = First::of(Some(&dir.path().join("none")), true).err().unwrap();
        assert!(format!("{error:#}").contains("cannot read the password file"));
    }

    #[test]
    fn a_password_is_made_beyond_loopback_only() {
        assert!(matches!(First::of(None, false), Ok(First::None)));
        assert!(matches!(First::of(None, true), Ok(First::Made)));
        let (one, other) = (make().unwrap(), make().unwrap());
        assert_eq!(one.len(), 2 * MADE_BYTES);
        assert_ne!(one, other);
    }
}
