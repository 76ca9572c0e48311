//! The data directory: its format, its role and its identity.
//!
//! The file `PARTITA` holds the layout's version and the role; `NODE` holds the random number by which a node or a
//! member of meta's group is known, and the number that meta gave it. A directory of another version or role, or
//! one with other contents, is refused before anything in it is touched.

use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use partita_proto::access::Secrets;
use partita_proto::id::NodeId;

/// Version of the layout: raised when an older binary could not read what a newer one wrote.
const FORMAT: u32 = 1;
/// Permissions of a data directory: only its owner may read the rows.
const OWNER_ONLY: u32 = 0o700;
/// Permission bits of the group and of others.
const OTHERS: u32 = 0o077;
/// The file that marks a data directory.
const MARKER: &str = "PARTITA";
/// The file with the node's identity and number.
const NODE: &str = "NODE";

/// Role of a process, and of its data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// All roles in one process.
    Standalone,
    /// A member of meta's group.
    Meta,
    /// A node that holds replicas.
    Datanode,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Meta => "meta",
            Self::Datanode => "datanode",
        }
    }
}

/// Makes sure that `dir` is a data directory of this version and role; a new one is created.
///
/// # Errors
/// If the directory is not writable, is not empty and not Partita's, or is of another version or role.
pub(crate) fn prepare(dir: &Path, role: Role) -> anyhow::Result<()> {
    create(dir).with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let marker = dir.join(MARKER);
    match std::fs::read_to_string(&marker) {
        Ok(text) => check(dir, &text, role)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut entries = std::fs::read_dir(dir)
                .with_context(|| format!("cannot read the data directory {}", dir.display()))?;
            if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "lost+found")) {
                bail!(
                    "{} is not empty and is not a Partita data directory; choose another with --data-dir",
                    dir.display()
                );
            }
            write(dir, &marker, &format!("format {FORMAT}\nrole {}\n", role.name()))
                .with_context(|| format!("cannot write to the data directory {}", dir.display()))?;
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", marker.display()));
        }
    }
    close_to_others(dir).with_context(|| {
        format!("cannot read the permissions of the data directory {}", dir.display())
    })?;
    // A directory that became read-only is detected now, not at the first write.
    let probe = dir.join(".writable");
    std::fs::write(&probe, b"")
        .and_then(|()| std::fs::remove_file(&probe))
        .with_context(|| format!("cannot write to the data directory {}", dir.display()))
}

/// Creates the directory with access for its owner only.
fn create(dir: &Path) -> std::io::Result<()> {
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(OWNER_ONLY).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        created => created,
    }
}

/// Restricts the directory to its owner, if others may enter it. If that is not permitted, as on some mounted
/// volumes, it logs a warning.
fn close_to_others(dir: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(dir)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let was = format!("{mode:04o}");
    match std::fs::set_permissions(dir, std::fs::Permissions::from_mode(OWNER_ONLY)) {
        Ok(()) => {
            tracing::info!(dir = %dir.display(), was, "restricted the data directory to its owner");
        }
        Err(error) => {
            tracing::warn!(dir = %dir.display(), was, %error, "others can read the data directory");
        }
    }
    Ok(())
}

fn check(dir: &Path, text: &str, role: Role) -> anyhow::Result<()> {
    let mut lines = text.lines();
    let format = lines.next().and_then(|line| line.strip_prefix("format ")?.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(version) => bail!(
            "the data directory {} has format {version}, this version of Partita reads format {FORMAT}",
            dir.display()
        ),
        None => {
            bail!("{} does not name the format of the data directory", dir.join(MARKER).display())
        }
    }
    // Directories from before there were several roles have no such line.
    let standalone = Role::Standalone.name();
    let role_name = lines.next().map_or(Some(standalone), |line| line.strip_prefix("role "));
    if role_name != Some(role.name()) {
        bail!(
            "the data directory {} belongs to a {}, not to a {}, according to its file {MARKER}; choose another \
             with --data-dir",
            dir.display(),
            role_name.unwrap_or("process of another kind"),
            role.name()
        );
    }
    Ok(())
}

/// Identity of a directory: a random number, generated at the first call.
///
/// # Errors
/// If it cannot be read or written.
pub(crate) fn identity(dir: &Path) -> anyhow::Result<u64> {
    if let Some((identity, _)) = read_node(dir)? {
        return Ok(identity);
    }
    let identity = random().max(1);
    write_node(dir, identity, None)?;
    Ok(identity)
}

/// Gives a directory another identity: data written under the old one do not belong to it any more.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn take_identity(dir: &Path, identity: u64) -> anyhow::Result<()> {
    write_node(dir, identity, None)
}

/// A random number.
pub(crate) fn random() -> u64 {
    // The standard library seeds its hashers with random keys.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Random keys for a new cluster, from the operating system.
///
/// # Errors
/// If its source of randomness cannot be read.
pub(crate) fn random_secrets() -> anyhow::Result<Secrets> {
    use std::io::Read;
    let mut secrets = Secrets::default();
    let mut source = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    for key in [&mut secrets.mock_salts, &mut secrets.cookies] {
        source.read_exact(key).context("cannot read /dev/urandom")?;
    }
    Ok(secrets)
}

/// Number that meta gave to the directory's node, if any.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn node(dir: &Path) -> anyhow::Result<Option<NodeId>> {
    Ok(read_node(dir)?.and_then(|(_, node)| node))
}

/// Stores the number that meta gave.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn keep_node(dir: &Path, node: NodeId) -> anyhow::Result<()> {
    write_node(dir, identity(dir)?, Some(node))
}

fn read_node(dir: &Path) -> anyhow::Result<Option<(u64, Option<NodeId>)>> {
    let path = dir.join(NODE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let identity = field("identity ").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let identity = identity
        .with_context(|| format!("{} has no valid identity of the node", path.display()))?;
    let number = field("number ").map(str::parse::<u64>).transpose();
    let number =
        number.with_context(|| format!("{} has no valid number of the node", path.display()))?;
    let node = number.map(NodeId);
    // Directories from before checksums have none.
    if text != checked_node(identity, node) && text != node_text(identity, node) {
        bail!("{}, the identity of the node, is damaged", path.display());
    }
    Ok(Some((identity, node)))
}

fn write_node(dir: &Path, identity: u64, node: Option<NodeId>) -> anyhow::Result<()> {
    write(dir, &dir.join(NODE), &checked_node(identity, node))
        .with_context(|| format!("cannot write to the data directory {}", dir.display()))
}

fn node_text(identity: u64, node: Option<NodeId>) -> String {
    let number = node.map(|node| format!("number {node}\n")).unwrap_or_default();
    format!("identity {identity:016x}\n{number}")
}

/// Contents of the file `NODE`. The checksum keeps a node from answering under another one's number.
fn checked_node(identity: u64, node: Option<NodeId>) -> String {
    let text = node_text(identity, node);
    let checksum = crc32c::crc32c(text.as_bytes());
    format!("{text}checksum {checksum:08x}\n")
}

/// Writes a small file atomically: after a crash, it has either the old or the new contents.
pub(crate) fn write(dir: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data directories hold these texts: they never change.
    #[test]
    fn small_files_never_change_their_bytes() {
        let text = checked_node(0xdead_beef, Some(NodeId(7)));
        assert_eq!(text, "identity 00000000deadbeef\nnumber 7\nchecksum 2c310fe1\n");
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), Role::Datanode).unwrap();
        let marker = std::fs::read_to_string(dir.path().join(MARKER)).unwrap();
        assert_eq!(marker, "format 1\nrole datanode\n");
    }

    #[test]
    fn a_new_directory_is_marked_and_accepted_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        prepare(&path, Role::Meta).unwrap();
        prepare(&path, Role::Meta).unwrap();
    }

    #[test]
    fn a_directory_is_its_owners_alone_also_one_that_was_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/data");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        prepare(&path, Role::Datanode).unwrap();
        assert_eq!(mode(), OWNER_ONLY);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        prepare(&path, Role::Datanode).unwrap();
        assert_eq!(mode(), OWNER_ONLY);
    }

    #[test]
    fn a_directory_of_another_format_is_refused_by_number() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(MARKER), "format 99\n").unwrap();
        let error = prepare(dir.path(), Role::Standalone).unwrap_err().to_string();
        assert!(error.contains("format 99"), "{error}");
    }

    #[test]
    fn a_directory_that_holds_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.txt"), "precious").unwrap();
        let error = prepare(dir.path(), Role::Standalone).unwrap_err().to_string();
        assert!(error.contains("not a Partita data directory"), "{error}");
    }

    #[test]
    fn a_directory_of_another_role_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), Role::Meta).unwrap();
        let error = prepare(dir.path(), Role::Datanode).unwrap_err().to_string();
        assert!(error.contains("belongs to a meta, not to a datanode"), "{error}");
    }

    #[test]
    fn a_directory_from_before_there_were_roles_is_a_standalone_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(MARKER), "format 1\n").unwrap();
        prepare(dir.path(), Role::Standalone).unwrap();
        assert!(prepare(dir.path(), Role::Datanode).is_err());
    }

    #[test]
    fn a_node_keeps_its_identity_and_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let first = identity(dir.path()).unwrap();
        assert_eq!(node(dir.path()).unwrap(), None);
        keep_node(dir.path(), NodeId(7)).unwrap();
        assert_eq!(identity(dir.path()).unwrap(), first);
        assert_eq!(node(dir.path()).unwrap(), Some(NodeId(7)));
        std::fs::write(dir.path().join(NODE), "rubbish").unwrap();
        assert!(identity(dir.path()).is_err());
    }

    #[test]
    fn a_damaged_identity_or_number_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NODE);
        identity(dir.path()).unwrap();
        keep_node(dir.path(), NodeId(7)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            let error = node(dir.path()).unwrap_err().to_string();
            assert!(error.contains(NODE), "bit {bit}: {error}");
        }
        // The form that older builds wrote.
        std::fs::write(&path, "identity 00000000000000ab\nnumber 7\n").unwrap();
        assert_eq!(node(dir.path()).unwrap(), Some(NodeId(7)));
    }
}
