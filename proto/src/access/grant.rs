//! Grants: the record of an object that says which roles may do what with it.
//!
//! ```text
//!   owner ── SELECT with grant option ──▶ alice ── SELECT ──▶ bob
//!     └───── SELECT ────────────────────▶ PUBLIC
//! ```
//!
//! The owner is a field of the object, not of the record, and has every right without an entry.
//!
//! Invariants, as in PostgreSQL:
//! - an entry is unique by grantee and grantor, sorted, and not empty; its grant options are among its actions;
//! - every grantor is the owner, or holds the grant options for what it granted by a chain of grants from the owner; so
//!   revoking an option revokes what was granted by it (CASCADE) or fails;
//! - PUBLIC has no grant options, and options are never granted back to those that they came from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::chunks::{Chunked, chunk_of};
use crate::error::Error;
use crate::id::{DatabaseId, RoleId, SequenceId, TableId};

/// SQLSTATE of a grant that would contradict others.
const INVALID_GRANT_OPERATION: &str = "0LP01";
/// SQLSTATE of a revocation that needs CASCADE.
const DEPENDENT_PRIVILEGES: &str = "2BP01";

/// Action on an object. The order is that of the bits in records: it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Read rows.
    Select,
    /// Write new rows.
    Insert,
    /// Change rows.
    Update,
    /// Delete rows.
    Delete,
    /// Remove all rows of a table.
    Truncate,
    /// Create an object in this one.
    Create,
    /// Use a database in a session, or the numbers of a sequence, which SQL calls USAGE.
    Connect,
    /// Alter or drop an object, and grant rights on it.
    Own,
    /// Do work on an object that changes no rows, such as a compaction.
    Maintain,
    /// Give orders to the cluster.
    Admin,
    /// See the state of the cluster and the statements of others.
    Monitor,
    /// Create, alter and drop roles.
    CreateRole,
    /// Create, change and drop tokens.
    ManageToken,
    /// Create, alter and drop organisations.
    ManageOrg,
    /// Create, alter and drop tasks.
    Task,
    /// Begin a session, or become a role.
    Login,
}

impl Action {
    /// All actions, in the order of their bits.
    pub const ALL: [Self; 16] = [
        Self::Select,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::Truncate,
        Self::Create,
        Self::Connect,
        Self::Own,
        Self::Maintain,
        Self::Admin,
        Self::Monitor,
        Self::CreateRole,
        Self::ManageToken,
        Self::ManageOrg,
        Self::Task,
        Self::Login,
    ];

    /// Name in SQL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Truncate => "TRUNCATE",
            Self::Create => "CREATE",
            Self::Connect => "CONNECT",
            Self::Own => "OWN",
            Self::Maintain => "MAINTAIN",
            Self::Admin => "ADMIN",
            Self::Monitor => "MONITOR",
            Self::CreateRole => "CREATE ROLE",
            Self::ManageToken => "MANAGE TOKEN",
            Self::ManageOrg => "MANAGE ORGANISATION",
            Self::Task => "TASK",
            Self::Login => "LOGIN",
        }
    }

    /// The action with this name; `None` if no action has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of actions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Actions(u16);

impl Actions {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Every action.
    pub const ALL: Self = Self(u16::MAX);
    /// Actions that can be granted on a table.
    pub const TABLE: Self = Self::of(&[
        Action::Select,
        Action::Insert,
        Action::Update,
        Action::Delete,
        Action::Truncate,
        Action::Maintain,
    ]);
    /// Actions that can be granted on a database. Those of tables hold for every table in it, later ones included.
    pub const DATABASE: Self =
        Self::TABLE.union(Self::of(&[Action::Create, Action::Connect, Action::Task]));
    /// Actions that can be granted on a sequence; CONNECT is USAGE.
    pub const SEQUENCE: Self = Self::of(&[Action::Select, Action::Update, Action::Connect]);
    /// Actions that can be granted on the cluster.
    pub const CLUSTER: Self = Self::of(&[
        Action::Create,
        Action::Admin,
        Action::Monitor,
        Action::CreateRole,
        Action::ManageToken,
        Action::ManageOrg,
        Action::Task,
    ]);

    /// The set of these actions.
    #[must_use]
    pub const fn of(actions: &[Action]) -> Self {
        let mut bits = 0;
        let mut position = 0;
        while position < actions.len() {
            bits |= actions[position].bit();
            position += 1;
        }
        Self(bits)
    }

    /// The set of a mask; bit n is the n-th action of [`Action::ALL`].
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The mask of the set.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// True if the action is in the set.
    #[must_use]
    pub const fn contains(self, action: Action) -> bool {
        self.0 & action.bit() != 0
    }

    /// True if all of these actions are in the set.
    #[must_use]
    pub const fn includes(self, actions: Self) -> bool {
        actions.0 & !self.0 == 0
    }

    /// True if there is no action in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The actions that are in either set.
    #[must_use]
    pub const fn union(self, actions: Self) -> Self {
        Self(self.0 | actions.0)
    }

    /// The actions that are in both sets.
    #[must_use]
    pub const fn intersection(self, actions: Self) -> Self {
        Self(self.0 & actions.0)
    }

    /// The actions of this set that are not in the other.
    #[must_use]
    pub const fn without(self, actions: Self) -> Self {
        Self(self.0 & !actions.0)
    }

    /// The actions, in the order of their bits.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ALL.into_iter().filter(move |action| self.contains(*action))
    }
}

impl fmt::Display for Actions {
    /// For example `SELECT, INSERT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Action::name).collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actions({self})")
    }
}

/// Object that rights are granted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The whole cluster.
    Cluster,
    /// A database, and the tables in it.
    Database(DatabaseId),
    /// A single table.
    Table(TableId),
    /// A single sequence.
    Sequence(SequenceId),
}

impl Chunked for Target {
    fn chunk(&self) -> u64 {
        match self {
            Self::Cluster => chunk_of(0, 0),
            Self::Database(id) => chunk_of(1, id.0),
            Self::Table(id) => chunk_of(2, id.0),
            Self::Sequence(id) => chunk_of(3, id.0),
        }
    }
}

impl Target {
    /// Actions that can be granted on the object.
    #[must_use]
    pub const fn grantable(self) -> Actions {
        match self {
            Self::Cluster => Actions::CLUSTER,
            Self::Database(_) => Actions::DATABASE,
            Self::Table(_) => Actions::TABLE,
            Self::Sequence(_) => Actions::SEQUENCE,
        }
    }

    /// Name in SQL of an action on the object.
    #[must_use]
    pub const fn name_of(self, action: Action) -> &'static str {
        match (self, action) {
            (Self::Sequence(_), Action::Connect) => "USAGE",
            _ => action.name(),
        }
    }

    /// Names in SQL of actions on the object, for example `SELECT, INSERT`.
    #[must_use]
    pub fn names_of(self, actions: Actions) -> String {
        let names: Vec<&str> = actions.iter().map(|action| self.name_of(action)).collect();
        names.join(", ")
    }
}

/// Receiver of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grantee {
    /// Every role, later ones included.
    Public,
    /// One role, and the roles that inherit it.
    Role(RoleId),
}

/// Rights that one role granted to another, or to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantEntry {
    /// Receiver of the rights.
    pub grantee: Grantee,
    /// Actions that the grantee may do.
    pub actions: Actions,
    /// Those of the actions that the grantee may grant to others.
    pub grantable: Actions,
    /// Role that granted them: the owner of the object, or a role with grant options.
    pub grantor: RoleId,
}

/// Rights that REVOKE takes from a grantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Role, or PUBLIC, that loses rights.
    pub grantee: Grantee,
    /// Actions that it loses.
    pub actions: Actions,
    /// Role that granted them; what other roles granted stays.
    pub grantor: RoleId,
    /// True for GRANT OPTION FOR: the actions stay, the grant options go.
    pub options_only: bool,
    /// True for CASCADE: what the grantee granted by the lost options goes too.
    pub cascade: bool,
}

/// All rights granted on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    target: Target,
    /// Sorted by grantee, then grantor.
    entries: Vec<GrantEntry>,
}

impl Grant {
    /// A record without entries.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self { target, entries: Vec::new() }
    }

    /// A record with these entries, which were valid when they were recorded.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when an entry is empty, out of order, or has actions that the object does not have.
    pub fn from_entries(target: Target, entries: Vec<GrantEntry>) -> Result<Self, Error> {
        let is_sound = |entry: &GrantEntry| {
            !entry.actions.is_empty()
                && target.grantable().includes(entry.actions)
                && entry.actions.includes(entry.grantable)
                && (entry.grantee != Grantee::Public || entry.grantable.is_empty())
        };
        if entries.iter().all(is_sound) && entries.is_sorted_by(|a, b| place(a) < place(b)) {
            return Ok(Self { target, entries });
        }
        Err(Error::Corrupted(format!("the grants on {target:?} are not valid")))
    }

    /// Object of the grants.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// The entries, sorted by grantee, then grantor.
    #[must_use]
    pub fn entries(&self) -> &[GrantEntry] {
        &self.entries
    }

    /// Actions granted to PUBLIC or to one of the roles.
    #[must_use]
    pub fn actions_of(&self, roles: &BTreeSet<RoleId>) -> Actions {
        let is_theirs = |entry: &&GrantEntry| match entry.grantee {
            Grantee::Public => true,
            Grantee::Role(role) => roles.contains(&role),
        };
        let entries = self.entries.iter().filter(is_theirs);
        entries.fold(Actions::NONE, |actions, entry| actions.union(entry.actions))
    }

    /// Actions that a role may grant to others, by entries that name the role itself.
    #[must_use]
    pub fn options_of(&self, role: RoleId) -> Actions {
        let entries = self.entries.iter().filter(|entry| entry.grantee == Grantee::Role(role));
        entries.fold(Actions::NONE, |options, entry| options.union(entry.grantable))
    }

    /// True if a role is named as grantee or grantor, so that it cannot be dropped.
    #[must_use]
    pub fn mentions(&self, role: RoleId) -> bool {
        let is_named =
            |entry: &GrantEntry| entry.grantor == role || entry.grantee == Grantee::Role(role);
        self.entries.iter().any(is_named)
    }

    /// Adds rights to those that the grantor granted to the grantee before.
    ///
    /// # Errors
    /// Nothing has changed then. [`Error::InvalidInput`] when the object does not have one of the actions,
    /// [`Error::NotAllowed`] when the grantor is neither the owner nor holds the grant options, [`Error::Query`] with
    /// SQLSTATE 0LP01 when options would go to PUBLIC or back to those that they came from.
    pub fn grant(&mut self, owner: RoleId, entry: GrantEntry) -> Result<(), Error> {
        let excess = entry.actions.without(self.target.grantable());
        if !excess.is_empty() {
            let excess = self.target.names_of(excess);
            return Err(Error::InvalidInput(format!("{excess} cannot be granted on this object")));
        }
        let options = entry.grantable.intersection(entry.actions);
        let entry = GrantEntry { grantable: options, ..entry };
        let (grantor, is_owner) = (entry.grantor, entry.grantor == owner);
        if !is_owner && !self.options_of(grantor).includes(entry.actions) {
            return Err(Error::NotAllowed("permission denied to grant privileges".to_owned()));
        }
        if !options.is_empty() {
            let Grantee::Role(grantee) = entry.grantee else {
                return Err(contradiction("grant options can only be granted to roles"));
            };
            // The grantor must still hold the options if the grantee had none.
            if !is_owner
                && !self.without_options(owner, grantee).options_of(grantor).includes(options)
            {
                let message = "grant options cannot be granted back to your own grantor";
                return Err(contradiction(message));
            }
        }
        if entry.actions.is_empty() {
            return Ok(());
        }
        match self.entries.binary_search_by_key(&place(&entry), place) {
            Ok(position) => {
                let former = &mut self.entries[position];
                former.actions = former.actions.union(entry.actions);
                former.grantable = former.grantable.union(options);
            }
            Err(position) => self.entries.insert(position, entry),
        }
        Ok(())
    }

    /// Takes rights away. Rights that were never granted are not missed.
    ///
    /// # Errors
    /// [`Error::Query`] with SQLSTATE 2BP01 when other grants depend on the lost options, unless they cascade; nothing
    /// has changed then.
    pub fn revoke(&mut self, owner: RoleId, revocation: Revocation) -> Result<(), Error> {
        let mut reduced = self.clone();
        reduced.reduce(owner, revocation)?;
        *self = reduced;
        Ok(())
    }

    /// Puts a new owner in the place of the former one, also as grantee and grantor.
    pub fn replace_owner(&mut self, former: RoleId, owner: RoleId) {
        let successor = |role: RoleId| if role == former { owner } else { role };
        for entry in std::mem::take(&mut self.entries) {
            let grantee = match entry.grantee {
                Grantee::Role(role) => Grantee::Role(successor(role)),
                Grantee::Public => Grantee::Public,
            };
            let entry = GrantEntry { grantee, grantor: successor(entry.grantor), ..entry };
            match self.entries.binary_search_by_key(&place(&entry), place) {
                Ok(position) => {
                    let twin = &mut self.entries[position];
                    twin.actions = twin.actions.union(entry.actions);
                    twin.grantable = twin.grantable.union(entry.grantable);
                }
                Err(position) => self.entries.insert(position, entry),
            }
        }
    }

    /// The grants that would be left if a role lost all its grant options.
    fn without_options(&self, owner: RoleId, role: RoleId) -> Self {
        let mut reduced = self.clone();
        for entry in &mut reduced.entries {
            if entry.grantee == Grantee::Role(role) {
                entry.grantable = Actions::NONE;
            }
        }
        reduced.drop_unsupported(owner);
        reduced
    }

    /// Takes rights away; after an error, the record is incomplete.
    fn reduce(&mut self, owner: RoleId, revocation: Revocation) -> Result<(), Error> {
        let key = (revocation.grantee, revocation.grantor);
        let Ok(position) = self.entries.binary_search_by_key(&key, place) else { return Ok(()) };
        let entry = &mut self.entries[position];
        entry.grantable = entry.grantable.without(revocation.actions);
        if !revocation.options_only {
            entry.actions = entry.actions.without(revocation.actions);
        }
        if entry.actions.is_empty() {
            self.entries.remove(position);
        }
        if self.drop_unsupported(owner) && !revocation.cascade {
            return Err(Error::Query {
                sqlstate: DEPENDENT_PRIVILEGES.to_owned(),
                message: "dependent privileges exist".to_owned(),
                hint: Some("use CASCADE to revoke them too".to_owned()),
            });
        }
        Ok(())
    }

    /// Drops the rights whose grantors hold no grant option for them any more; true if there were any. Two roles that
    /// granted options to each other do not support each other: every option comes from the owner.
    fn drop_unsupported(&mut self, owner: RoleId) -> bool {
        let options = self.options_from(owner);
        let mut dropped = false;
        self.entries.retain_mut(|entry| {
            let supported = options.get(&entry.grantor).copied().unwrap_or_default();
            dropped |= !supported.includes(entry.actions);
            entry.actions = entry.actions.intersection(supported);
            entry.grantable = entry.grantable.intersection(supported);
            !entry.actions.is_empty()
        });
        dropped
    }

    /// Grant options of each role that come from the owner by a chain of grants.
    fn options_from(&self, owner: RoleId) -> BTreeMap<RoleId, Actions> {
        let mut options = BTreeMap::from([(owner, Actions::ALL)]);
        let mut grows = true;
        while grows {
            grows = false;
            for entry in &self.entries {
                let Grantee::Role(role) = entry.grantee else { continue };
                let of_grantor = options.get(&entry.grantor).copied().unwrap_or_default();
                let passed = of_grantor.intersection(entry.grantable);
                let of_role = options.entry(role).or_default();
                grows |= !of_role.includes(passed);
                *of_role = of_role.union(passed);
            }
        }
        options
    }
}

/// The position of an entry among others.
fn place(entry: &GrantEntry) -> (Grantee, RoleId) {
    (entry.grantee, entry.grantor)
}

fn contradiction(message: &str) -> Error {
    Error::Query {
        sqlstate: INVALID_GRANT_OPERATION.to_owned(),
        message: message.to_owned(),
        hint: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWNER: RoleId = RoleId(1);
    const READ: Actions = Actions::of(&[Action::Select]);

    #[test]
    fn chunks_of_objects_are_in_the_order_of_the_objects() {
        let mut targets = [
            Target::Sequence(SequenceId(300)),
            Target::Sequence(SequenceId(0)),
            Target::Table(TableId(u32::MAX)),
            Target::Table(TableId(300)),
            Target::Table(TableId(0)),
            Target::Database(DatabaseId(u32::MAX)),
            Target::Database(DatabaseId(0)),
            Target::Cluster,
        ];
        targets.sort_unstable();
        assert!(targets.is_sorted_by_key(Chunked::chunk));
        assert_eq!(targets[0], Target::Cluster);
    }

    #[test]
    fn a_sequence_is_used_where_a_database_is_connected_to() {
        let sequence = Target::Sequence(SequenceId(1));
        assert_eq!(sequence.names_of(sequence.grantable()), "SELECT, UPDATE, USAGE");
        let connect = Actions::of(&[Action::Connect]);
        assert_eq!(Target::Database(DatabaseId(1)).names_of(connect), "CONNECT");
        let mut grant = Grant::new(sequence);
        let excess = GrantEntry {
            grantee: Grantee::Public,
            actions: Actions::of(&[Action::Insert]),
            grantable: Actions::NONE,
            grantor: OWNER,
        };
        assert!(grant.grant(OWNER, excess).is_err());
        grant.grant(OWNER, GrantEntry { actions: connect, ..excess }).unwrap();
        assert_eq!(grant.actions_of(&BTreeSet::new()), connect);
    }

    fn entry(grantor: u32, grantee: u32, grantable: Actions) -> GrantEntry {
        GrantEntry {
            grantee: Grantee::Role(RoleId(grantee)),
            actions: READ,
            grantable,
            grantor: RoleId(grantor),
        }
    }

    fn revocation(grantor: u32, grantee: u32, cascade: bool) -> Revocation {
        Revocation {
            grantee: Grantee::Role(RoleId(grantee)),
            actions: READ,
            grantor: RoleId(grantor),
            options_only: false,
            cascade,
        }
    }

    fn record(entries: &[GrantEntry]) -> Grant {
        let mut grant = Grant::new(Target::Table(TableId(1)));
        for entry in entries {
            grant.grant(OWNER, *entry).unwrap();
        }
        grant
    }

    fn holds(grant: &Grant, role: u32) -> bool {
        grant.actions_of(&BTreeSet::from([RoleId(role)])).contains(Action::Select)
    }

    #[test]
    fn bits_and_names_of_actions_never_change() {
        let names: Vec<&str> = Action::ALL.iter().map(|action| action.name()).collect();
        assert_eq!(
            names.join(" | "),
            "SELECT | INSERT | UPDATE | DELETE | TRUNCATE | CREATE | CONNECT | OWN | MAINTAIN | ADMIN | MONITOR | \
             CREATE ROLE | MANAGE TOKEN | MANAGE ORGANISATION | TASK | LOGIN"
        );
        for (position, action) in Action::ALL.into_iter().enumerate() {
            assert_eq!(Actions::of(&[action]).bits(), 1 << position);
            assert_eq!(Action::named(action.name()), Some(action));
        }
        assert_eq!(Actions::of(&Action::ALL), Actions::ALL);
        assert_eq!(Actions::TABLE.bits(), 0x011f);
        assert_eq!(Actions::DATABASE.bits(), 0x417f);
        assert_eq!(Actions::CLUSTER.bits(), 0x7e20);
        assert_eq!(
            format!("{:?}", Actions::of(&[Action::Insert, Action::Select])),
            "Actions(SELECT, INSERT)"
        );
    }

    #[test]
    fn a_grant_by_a_lost_option_is_lost_too() {
        let chain = [entry(1, 2, READ), entry(2, 3, READ), entry(3, 4, Actions::NONE)];
        let mut grant = record(&chain);
        let refused = grant.revoke(OWNER, revocation(1, 2, false)).unwrap_err();
        assert_eq!(refused.sqlstate(), "2BP01");
        assert_eq!(grant, record(&chain));
        grant.revoke(OWNER, revocation(1, 2, true)).unwrap();
        assert!(grant.entries().is_empty(), "{grant:?}");
    }

    #[test]
    fn a_right_from_two_grantors_survives_one_of_them() {
        let mut grant =
            record(&[entry(1, 2, READ), entry(1, 3, READ), entry(3, 2, READ), entry(2, 4, READ)]);
        grant.revoke(OWNER, revocation(1, 2, false)).unwrap();
        assert!(holds(&grant, 2) && holds(&grant, 4));
        grant.revoke(OWNER, revocation(3, 2, true)).unwrap();
        assert!(!holds(&grant, 2) && !holds(&grant, 4) && holds(&grant, 3));
    }

    #[test]
    fn two_roles_do_not_keep_each_others_options() {
        let mut grant =
            record(&[entry(1, 2, READ), entry(1, 3, READ), entry(2, 3, READ), entry(3, 2, READ)]);
        grant.revoke(OWNER, revocation(1, 3, false)).unwrap();
        assert!(holds(&grant, 2) && holds(&grant, 3));
        let before = grant.clone();
        assert!(grant.revoke(OWNER, revocation(1, 2, false)).is_err());
        assert_eq!(grant, before);
        grant.revoke(OWNER, revocation(1, 2, true)).unwrap();
        assert!(grant.entries().is_empty(), "{grant:?}");
    }

    #[test]
    fn revoking_the_option_keeps_the_right() {
        let mut grant = record(&[entry(1, 2, READ), entry(2, 3, Actions::NONE)]);
        let options = Revocation { options_only: true, ..revocation(1, 2, true) };
        grant.revoke(OWNER, options).unwrap();
        assert!(holds(&grant, 2) && !holds(&grant, 3));
        assert!(grant.options_of(RoleId(2)).is_empty());
    }

    #[test]
    fn grants_that_contradict_are_refused() {
        let mut grant = record(&[entry(1, 2, READ), entry(2, 3, READ)]);
        let before = grant.clone();
        assert_eq!(grant.grant(OWNER, entry(3, 2, READ)).unwrap_err().sqlstate(), "0LP01");
        assert_eq!(grant.grant(OWNER, entry(3, 3, READ)).unwrap_err().sqlstate(), "0LP01");
        let public = GrantEntry { grantee: Grantee::Public, ..entry(1, 0, READ) };
        assert_eq!(grant.grant(OWNER, public).unwrap_err().sqlstate(), "0LP01");
        assert_eq!(grant.grant(OWNER, entry(4, 5, Actions::NONE)).unwrap_err().sqlstate(), "42501");
        let login = GrantEntry { actions: Actions::of(&[Action::Login]), ..entry(1, 2, READ) };
        assert_eq!(grant.grant(OWNER, login).unwrap_err().sqlstate(), "22023");
        assert_eq!(grant, before);
        // Without the option, a right may go anywhere.
        grant.grant(OWNER, entry(3, 2, Actions::NONE)).unwrap();
    }

    #[test]
    fn a_new_owner_takes_over_what_the_former_one_granted() {
        let mut grant = record(&[entry(1, 2, READ), entry(2, 3, READ)]);
        grant.replace_owner(OWNER, RoleId(2));
        let expected = [entry(2, 2, READ), entry(2, 3, READ)];
        assert_eq!(grant.entries(), expected);
        assert!(grant.mentions(RoleId(3)) && !grant.mentions(OWNER));
    }

    #[test]
    fn damaged_records_are_refused() {
        let target = Target::Table(TableId(1));
        let read = |entries: &[GrantEntry]| Grant::from_entries(target, entries.to_vec());
        let valid = [entry(1, 2, READ), entry(1, 3, Actions::NONE)];
        assert_eq!(read(&valid), Ok(record(&valid)));
        let broken = [
            vec![valid[1], valid[0]],
            vec![valid[0], valid[0]],
            vec![GrantEntry { actions: Actions::NONE, ..valid[1] }],
            vec![GrantEntry { actions: Actions::of(&[Action::Insert]), ..valid[0] }],
            vec![GrantEntry { actions: Actions::ALL, ..valid[1] }],
            vec![GrantEntry { grantee: Grantee::Public, ..valid[0] }],
        ];
        for entries in broken {
            assert!(matches!(read(&entries), Err(Error::Corrupted(_))), "{entries:?}");
        }
    }

    proptest! {
        /// After any grants and revocations, every grantor holds the options for what it granted, by a chain from the
        /// owner.
        #[test]
        fn every_grant_comes_from_the_owner(
            steps in proptest::collection::vec((1..6_u32, 1..6_u32, 0..4_u8), 0..30),
        ) {
            let mut grant = Grant::new(Target::Table(TableId(1)));
            for (grantor, grantee, kind) in steps {
                // Most of random steps are refused; then nothing changes.
                drop(match kind {
                    0 => grant.grant(OWNER, entry(grantor, grantee, Actions::NONE)),
                    1 => grant.grant(OWNER, entry(grantor, grantee, READ)),
                    2 => grant.revoke(OWNER, revocation(grantor, grantee, false)),
                    _ => grant.revoke(OWNER, revocation(grantor, grantee, true)),
                });
                prop_assert!(Grant::from_entries(grant.target(), grant.entries().to_vec()).is_ok());
                let mut reached = BTreeSet::from([OWNER]);
                for _ in 0..grant.entries().len() {
                    for entry in grant.entries() {
                        if let Grantee::Role(role) = entry.grantee
                            && reached.contains(&entry.grantor)
                            && !entry.grantable.is_empty()
                        {
                            reached.insert(role);
                        }
                    }
                }
                let all_reached = grant.entries().iter().all(|entry| reached.contains(&entry.grantor));
                prop_assert!(all_reached, "{:?}", grant);
            }
        }
    }
}
