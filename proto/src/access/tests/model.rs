//! The check of tables against a model that says its rules in the most direct way.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ROLES: usize = 5;
const TABLES: usize = 3;
/// One action that tables have, one that they have not, and those that tokens part.
const ACTIONS: [Action; 5] =
    [Action::Select, Action::Insert, Action::Own, Action::Maintain, Action::Login];

/// A small world: tables 0 and 1 are in database 0, table 2 is in database 1.
#[derive(Clone, Debug)]
struct World {
    superuser: Vec<bool>,
    /// From a member to a group: inherited or not.
    memberships: Vec<(usize, usize, bool)>,
    table_owner: Vec<usize>,
    database_owner: Vec<usize>,
    /// On a table, or on the database after the tables; to a role, or to all after the roles.
    grants: Vec<(usize, usize, bool)>,
    login: usize,
    acting: Option<usize>,
    /// Of the login's token: may read and write each database, or everything.
    token: Option<(Vec<(bool, bool)>, bool)>,
}

fn world() -> impl Strategy<Value = World> {
    let role = 0..ROLES;
    let owners = |count: usize| vec(0..ROLES, count);
    let token = (vec(any::<(bool, bool)>(), 2), proptest::bool::weighted(0.2));
    let identity = (role.clone(), proptest::option::of(role.clone()), proptest::option::of(token));
    (
        vec(proptest::bool::weighted(0.1), ROLES),
        // In one direction, as there are no cycles.
        vec((role.clone(), role, any::<bool>()), 0..6),
        owners(TABLES),
        owners(2),
        vec((0..TABLES + 2, 0..=ROLES, any::<bool>()), 0..6),
        identity,
    )
        .prop_map(|(superuser, memberships, table_owner, database_owner, grants, identity)| {
            World {
                superuser,
                memberships: memberships.into_iter().filter(|(from, to, _)| from < to).collect(),
                table_owner,
                database_owner,
                grants,
                login: identity.0,
                acting: identity.1,
                token: identity.2,
            }
        })
}

fn database_of(table: usize) -> usize {
    usize::from(table == 2)
}

fn id(number: usize) -> u32 {
    u32::try_from(number).unwrap()
}

/// Roles have numbers from 1 here: none of them is the bootstrap role.
fn role_id(number: usize) -> RoleId {
    RoleId(id(number) + 1)
}

fn granted_action(reads: bool) -> Action {
    if reads { Action::Select } else { Action::Insert }
}

impl World {
    /// True if there is a way of memberships from one role to another; by repeating the definition.
    fn reaches(&self, from: usize, to: usize, inherited_only: bool) -> bool {
        from == to
            || self.memberships.iter().any(|(member, group, inherit)| {
                *member == from
                    && (*inherit || !inherited_only)
                    && self.reaches(*group, to, inherited_only)
            })
    }

    /// None: the identity is not valid.
    fn allows(&self, table: usize, action: Action) -> Option<bool> {
        let current = self.acting.unwrap_or(self.login);
        if !self.superuser[self.login] && !self.reaches(self.login, current, false) {
            return None;
        }
        let database = database_of(table);
        let whole = self.token.as_ref().is_none_or(|(_, everything)| *everything);
        if self.superuser[current] && whole {
            return Some(true);
        }
        let has = |role: usize| self.superuser[current] || self.reaches(current, role, true);
        let is_owner = has(self.table_owner[table]) || has(self.database_owner[database]);
        let is_granted = self.grants.iter().any(|(target, grantee, reads)| {
            let is_here = *target == table || *target == TABLES + database;
            let is_theirs = *grantee == ROLES || has(*grantee);
            is_here && is_theirs && granted_action(*reads) == action
        });
        let by_role = if is_owner { action != Action::Login } else { is_granted };
        let by_token = whole
            || self.token.as_ref().is_some_and(|(buckets, _)| {
                let (reads, writes) = buckets[database];
                reads && action == Action::Select || writes && action == Action::Insert
            });
        Some(by_role && by_token)
    }

    fn access(&self) -> Access {
        let mut access = Access::default();
        for (number, superuser) in self.superuser.iter().enumerate() {
            let memberships = self.memberships.iter().filter(|(member, ..)| *member == number);
            let member_of: Vec<_> =
                memberships.map(|(_, group, inherit)| (role_id(*group), *inherit)).collect();
            let role = user(role_id(number), &member_of);
            access.put_role(Role { superuser: *superuser, ..role });
        }
        for (target, grantee, reads) in &self.grants {
            let target = if *target < TABLES {
                Target::Table(TableId(id(*target)))
            } else {
                Target::Database(DatabaseId(id(*target - TABLES)))
            };
            let grantee = match *grantee {
                ROLES => Grantee::Public,
                role => Grantee::Role(role_id(role)),
            };
            let actions = Actions::of(&[granted_action(*reads)]);
            grant_to(&mut access, target, grantee, actions);
        }
        if let Some((buckets, everything)) = &self.token {
            let mut permissions = Vec::new();
            if *everything {
                permissions.push(Permission { mode: Mode::Both, scope: Scope::Everything });
            }
            for (number, (reads, writes)) in buckets.iter().enumerate() {
                let mode = match (reads, writes) {
                    (true, true) => Mode::Both,
                    (true, false) => Mode::Read,
                    (false, true) => Mode::Write,
                    (false, false) => continue,
                };
                let database = DatabaseId(id(number));
                permissions
                    .push(Permission { mode, scope: Scope::Bucket { database, rows: None } });
            }
            access.put_token(token(7, role_id(self.login).0, permissions));
        }
        access
    }
}

proptest! {
    #[test]
    fn the_check_agrees_with_the_model(small in world()) {
        let access = small.access();
        let who = Identity {
            acting: small.acting.map(role_id),
            token: small.token.as_ref().and_then(|_| TokenId::new(7)),
            ..session(role_id(small.login))
        };
        let databases: Vec<_> =
            (0..2).map(|number| database(id(number), role_id(small.database_owner[number]))).collect();
        let tables: Vec<_> = (0..TABLES)
            .map(|number| {
                let owner = role_id(small.table_owner[number]);
                table(id(number), id(database_of(number)), owner)
            })
            .collect();
        let catalog = catalog(&databases, &tables);
        let seen = visible(&catalog, &access, &who, NOW);
        for (number, table) in tables.iter().enumerate() {
            let database = &databases[database_of(number)];
            for action in ACTIONS {
                let need = Need::new(action, object(database, table));
                let result = check(&access, &who, NOW, &[need]);
                let expected = small.allows(number, action);
                match &result {
                    Ok(_) => prop_assert_eq!(expected, Some(true)),
                    Err(Denied::Ended(_)) => prop_assert_eq!(expected, None),
                    Err(_) => prop_assert_eq!(expected, Some(false)),
                }
                // Hidden is what nothing may be done with, and it is not listed.
                let hidden = matches!(result, Err(Denied::NotVisible { .. }));
                let listed = seen.table(&table.database, &table.name).is_some();
                prop_assert_eq!(expected.is_some() && !hidden, listed);
            }
            let reads = small.allows(number, Action::Select) == Some(true);
            let sight = sight(&access, &who, NOW, database, table);
            prop_assert_eq!(sight == Sight::All, reads);
        }
    }
}
