//! Descriptions of changes and orders for the audit: action, object and detail, by the names of the catalog before the
//! change.
//!
//! Invariant: attributes are named without their values; of keys, defaults, settings and secrets there is no text.

use partita_proto::access::{AccessChange, Grantee, RoleEdit, Target, TokenEdit};
use partita_proto::catalog::Catalog;
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, OrgId, RoleId, SequenceId, TaskId};
use partita_proto::materialized::{CopyChange, Steering};
use partita_proto::sequence::SequenceChange;
use partita_proto::service::{AdminOrder, Ddl, TableChange};
use partita_proto::task::{TaskChange, TaskEdit};
use partita_proto::wide::FamilyChange;

use super::entry::Event;
use crate::privileges::role_name;

/// A change or an order, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    /// Kind of the event.
    pub(crate) event: Event,
    /// Action, in the words of SQL.
    pub(crate) action: &'static str,
    /// Database of the object.
    pub(crate) database: Option<String>,
    /// Kind and name of the object.
    pub(crate) object: Option<String>,
    /// More about the action.
    pub(crate) detail: Option<String>,
}

impl Description {
    fn new(event: Event, action: &'static str, object: String) -> Self {
        Self { event, action, database: None, object: Some(object), detail: None }
    }

    fn within(self, database: &str) -> Self {
        Self { database: Some(database.to_owned()), ..self }
    }

    fn with_detail(self, detail: String) -> Self {
        Self { detail: Some(detail).filter(|detail| !detail.is_empty()), ..self }
    }

    fn of_database(action: &'static str, name: &str) -> Self {
        Self::new(Event::Ddl, action, format!("database {name}")).within(name)
    }

    fn of_table(action: &'static str, database: &str, name: &str) -> Self {
        Self::new(Event::Ddl, action, format!("table {name}")).within(database)
    }

    /// Work on the replicas of a table.
    pub(crate) fn of_maintenance(action: &'static str, database: &str, table: &str) -> Self {
        Self { event: Event::Admin, ..Self::of_table(action, database, table) }
    }

    /// A change of the catalog, which is that before the change.
    pub(crate) fn of_change(catalog: &Catalog, ddl: &Ddl) -> Self {
        match ddl {
            Ddl::CreateDatabase { name, .. } => Self::of_database("CREATE DATABASE", name),
            Ddl::AlterDatabase { name, .. } => Self::of_database("ALTER DATABASE", name),
            Ddl::CommentDatabase { name, .. } => Self::of_database("COMMENT ON DATABASE", name),
            Ddl::MakeExplicit { name } => {
                Self::of_database("ALTER DATABASE", name).with_detail("EXPLICIT SCHEMA".to_owned())
            }
            Ddl::DropDatabase { name, .. } => Self::of_database("DROP DATABASE", name),
            Ddl::CreateTable { table, .. } if table.rekeys => {
                let source = table.copy_of.and_then(|source| catalog.table_by_id(source));
                let name = source.map_or(&table.name, |source| &source.name);
                Self::of_table("ALTER TABLE", &table.database, name)
                    .with_detail("PRIMARY KEY".to_owned())
            }
            Ddl::CreateTable { table, .. } => {
                let action = match (table.copy_of, &table.schema.view) {
                    (Some(_), _) => "CREATE MATERIALIZED COPY",
                    (None, Some(_)) => "CREATE VIEW",
                    (None, None) => "CREATE TABLE",
                };
                Self::of_table(action, &table.database, &table.name)
            }
            Ddl::DropTable { database, name, .. } => {
                let table = catalog.table(database, name);
                let action = match table {
                    Some(table) if table.copy.is_some() => "DROP MATERIALIZED COPY",
                    Some(table) if table.schema.view.is_some() => "DROP VIEW",
                    _ => "DROP TABLE",
                };
                Self::of_table(action, database, name)
            }
            Ddl::TruncateTable { database, name, .. } => {
                Self::of_table("TRUNCATE TABLE", database, name)
            }
            Ddl::AlterTable { database, name, change } => {
                Self::of_table("ALTER TABLE", database, name).with_detail(table_change(change))
            }
            Ddl::Access(change) => of_access(catalog, change),
            Ddl::Task(change) => of_task(catalog, change),
            Ddl::Sequence(change) => of_sequence(catalog, change),
            Ddl::Copy(change) => of_copy(catalog, change),
            Ddl::Checked(checked) => Self::of_change(catalog, &checked.ddl),
        }
    }

    /// An operator's order.
    pub(crate) fn of_order(order: &AdminOrder) -> Self {
        let describe = |action, object| Self::new(Event::Admin, action, object);
        match order {
            AdminOrder::Drain { node, on } => {
                describe(if *on { "DRAIN NODE" } else { "UNDRAIN NODE" }, format!("node {node}"))
            }
            AdminOrder::MoveReplica { partition, from, to } => {
                describe("MOVE REPLICA", format!("partition {partition}"))
                    .with_detail(format!("FROM node {from} TO node {to}"))
            }
            AdminOrder::TransferLeader { partition, to } => {
                describe("TRANSFER LEADER", format!("partition {partition}"))
                    .with_detail(format!("TO node {to}"))
            }
            AdminOrder::SplitPartition { partition, .. } => {
                describe("SPLIT PARTITION", format!("partition {partition}"))
            }
            AdminOrder::MergePartitions { left, right } => {
                describe("MERGE PARTITIONS", format!("partition {left}"))
                    .with_detail(format!("WITH partition {right}"))
            }
            AdminOrder::RemoveNode { node } => describe("REMOVE NODE", format!("node {node}")),
        }
    }
}

fn table_change(change: &TableChange) -> String {
    match change {
        TableChange::AddColumns { columns, .. } => {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            format!("ADD COLUMN {}", names.join(", "))
        }
        TableChange::DropColumn(name) => format!("DROP COLUMN {name}"),
        TableChange::RenameColumn { from, to } => format!("RENAME COLUMN {from} TO {to}"),
        TableChange::SetType { column, .. } => format!("ALTER COLUMN {column} TYPE"),
        TableChange::DropNotNull(column) => format!("ALTER COLUMN {column} DROP NOT NULL"),
        TableChange::SetDefault { column, default } => {
            let verb = if default.is_some() { "SET" } else { "DROP" };
            format!("ALTER COLUMN {column} {verb} DEFAULT")
        }
        TableChange::SetIndex { column, index, .. } => {
            format!("ALTER COLUMN {column} SET {} INDEX {}", index.options.kind().sql(), index.name)
        }
        TableChange::DropIndex { column, kind } => {
            format!("ALTER COLUMN {column} UNSET {} INDEX", kind.sql())
        }
        TableChange::SetOptions(_) | TableChange::ChangeOptions { .. } => "SET options".to_owned(),
        TableChange::ChangeFamilies(changes) => {
            let change = |change: &FamilyChange| match change {
                FamilyChange::Create(family) => format!("ADD FAMILY {}", family.name),
                FamilyChange::Update(family) => format!("ALTER FAMILY {}", family.name),
                FamilyChange::Drop(name) => format!("DROP FAMILY {name}"),
                FamilyChange::Cleared(family) => format!("FREE FAMILY {}", family.name),
            };
            changes.iter().map(change).collect::<Vec<_>>().join(", ")
        }
        TableChange::SetView { .. } => "AS query".to_owned(),
        TableChange::MoveColumn { column, after: Some(predecessor) } => {
            format!("COLUMN {column} AFTER {predecessor}")
        }
        TableChange::MoveColumn { column, after: None } => format!("COLUMN {column} FIRST"),
        TableChange::AddCheck(check) => format!("ADD CONSTRAINT {} CHECK", check.name),
        TableChange::DropCheck(name) => format!("DROP CONSTRAINT {name}"),
        TableChange::SetComment { column, .. } => format!("COMMENT ON COLUMN {column}"),
        TableChange::Rename(name) => format!("RENAME TO {name}"),
        TableChange::TakePlace(replaced) => format!("ADD PRIMARY KEY (replaces table {replaced})"),
        TableChange::Repartition { .. } => "PARTITION BY".to_owned(),
    }
}

fn of_access(catalog: &Catalog, change: &AccessChange) -> Description {
    let access = &catalog.access;
    let describe = |action, object| Description::new(Event::Access, action, object);
    let role = |id: RoleId| format!("role {}", role_name(access, id));
    let org = |id: OrgId| match access.org(id) {
        Some(org) => format!("organisation {}", org.name),
        None => format!("organisation {id}"),
    };
    let grantee = |grantee: Grantee| match grantee {
        Grantee::Public => "PUBLIC".to_owned(),
        Grantee::Role(id) => role_name(access, id),
    };
    match change {
        AccessChange::CreateRole { name, edit, .. } => {
            describe("CREATE ROLE", format!("role {name}")).with_detail(attributes(edit))
        }
        AccessChange::AlterRole { role: id, edit } => {
            describe("ALTER ROLE", role(*id)).with_detail(attributes(edit))
        }
        AccessChange::DropRole { role: id } => describe("DROP ROLE", role(*id)),
        AccessChange::GrantRole { group, member, admin_option, .. } => {
            let option = if *admin_option { " WITH ADMIN OPTION" } else { "" };
            describe("GRANT", role(*group))
                .with_detail(format!("TO {}{option}", role_name(access, *member)))
        }
        AccessChange::RevokeRole { group, member, admin_option_only } => {
            let option = if *admin_option_only { "ADMIN OPTION " } else { "" };
            describe("REVOKE", role(*group))
                .with_detail(format!("{option}FROM {}", role_name(access, *member)))
        }
        AccessChange::Grant { target, entry } => {
            let option = if entry.grantable.is_empty() { "" } else { " WITH GRANT OPTION" };
            let detail = format!("{} TO {}{option}", entry.actions, grantee(entry.grantee));
            of_target(catalog, "GRANT", *target).with_detail(detail)
        }
        AccessChange::Revoke { target, revocation } => {
            let option = if revocation.options_only { "GRANT OPTION FOR " } else { "" };
            let detail =
                format!("{option}{} FROM {}", revocation.actions, grantee(revocation.grantee));
            of_target(catalog, "REVOKE", *target).with_detail(detail)
        }
        AccessChange::SetOwner { target, owner } => of_target(catalog, "ALTER OWNER", *target)
            .with_detail(format!("TO {}", role_name(access, *owner))),
        AccessChange::CreateToken(token) => describe("CREATE TOKEN", format!("token {}", token.id))
            .with_detail(format!("FOR {}", role_name(access, token.owner))),
        AccessChange::AlterToken { id, edit } => {
            describe("ALTER TOKEN", format!("token {id}")).with_detail(token_fields(edit))
        }
        AccessChange::DropToken(id) => describe("DROP TOKEN", format!("token {id}")),
        AccessChange::CreateOrg(created) => {
            describe("CREATE ORGANISATION", format!("organisation {}", created.name))
        }
        AccessChange::AlterOrg(changed) => describe("ALTER ORGANISATION", org(changed.id)),
        AccessChange::DropOrg(id) => describe("DROP ORGANISATION", org(*id)),
        AccessChange::SetInitialPassword(_) => {
            describe("ALTER ROLE", role(BOOTSTRAP_ROLE)).with_detail("PASSWORD".to_owned())
        }
    }
}

/// A change of a task. Of its statement, token and address there is only the host of the address.
fn of_sequence(catalog: &Catalog, change: &SequenceChange) -> Description {
    let describe = |action: &'static str, name: &str, database: DatabaseId| {
        let mut databases = catalog.databases.values();
        let database = databases.find(|candidate| candidate.id == database);
        let description = Description::new(Event::Ddl, action, format!("sequence {name}"));
        Description { database: database.map(|database| database.name.clone()), ..description }
    };
    let existing = |action: &'static str, id: SequenceId| match catalog.sequences.get(&id) {
        Some(sequence) => describe(action, &sequence.name, sequence.database),
        None => Description::new(Event::Ddl, action, format!("sequence {id}")),
    };
    match change {
        SequenceChange::Create { sequence, .. } => {
            describe("CREATE SEQUENCE", &sequence.name, sequence.database)
        }
        SequenceChange::Alter { sequence, .. } => existing("ALTER SEQUENCE", *sequence),
        SequenceChange::Drop { sequence } => existing("DROP SEQUENCE", *sequence),
        SequenceChange::Set { sequence, .. } => existing("SET SEQUENCE", *sequence),
        SequenceChange::Allot { sequence, .. } => existing("ADVANCE SEQUENCE", *sequence),
    }
}

fn of_task(catalog: &Catalog, change: &TaskChange) -> Description {
    let name_of = |id: DatabaseId| {
        let mut databases = catalog.databases.values();
        databases.find(|database| database.id == id).map(|database| database.name.clone())
    };
    let describe = |action: &'static str, task: &str, database: DatabaseId| {
        let description = Description::new(Event::Ddl, action, format!("task {task}"));
        Description { database: name_of(database), ..description }
    };
    let existing = |action: &'static str, id: TaskId| match catalog.tasks.get(&id) {
        Some(entry) => describe(action, &entry.task.name, entry.task.database),
        None => Description::new(Event::Ddl, action, format!("task {id}")),
    };
    match change {
        TaskChange::Create { task, .. } => {
            let remote = task.remote.as_ref();
            let detail = remote.map(|remote| format!("INTO URL {}", remote.origin()));
            describe("CREATE TASK", &task.name, task.database)
                .with_detail(detail.unwrap_or_default())
        }
        TaskChange::Alter { task, edit } => {
            existing("ALTER TASK", *task).with_detail(task_fields(edit))
        }
        TaskChange::Drop { task } => existing("DROP TASK", *task),
        TaskChange::Step { task, .. } => existing("RUN TASK", *task),
    }
}

/// A change of the state of a copy.
fn of_copy(catalog: &Catalog, change: &CopyChange) -> Description {
    let copy = catalog.table_by_id(change.copy());
    if let CopyChange::Steer { steering, .. } = change {
        let source = copy.and_then(|copy| catalog.table_by_id(copy.copy.as_ref()?.source));
        let detail = match steering {
            Steering::Pause => "PAUSE REKEYING".to_owned(),
            Steering::Resume => "RESUME REKEYING".to_owned(),
            Steering::Throttle(rows_per_second) => format!("THROTTLE REKEYING {rows_per_second}"),
            Steering::Cancel => "CANCEL REKEYING".to_owned(),
        };
        let description = match source {
            Some(table) => Description::of_table("ALTER TABLE", &table.database, &table.name),
            None => Description::new(Event::Ddl, "ALTER TABLE", format!("table {}", change.copy())),
        };
        return description.with_detail(detail);
    }
    let action = match change {
        CopyChange::Take { .. } | CopyChange::Beat { .. } | CopyChange::Finish { .. } => {
            "FILL MATERIALIZED COPY"
        }
        CopyChange::Lose { .. } => "LOSE MATERIALIZED COPY",
        CopyChange::Replace { .. } => "REPLACE MATERIALIZED COPY",
        CopyChange::Steer { .. }
        | CopyChange::Switch { .. }
        | CopyChange::Exchange { .. }
        | CopyChange::Reopened { .. }
        | CopyChange::Discard { .. } => "SWITCH REKEYED TABLE",
    };
    match copy {
        Some(table) => Description::of_table(action, &table.database, &table.name),
        None => Description::new(Event::Ddl, action, format!("table {}", change.copy())),
    }
}

fn of_target(catalog: &Catalog, action: &'static str, target: Target) -> Description {
    let describe = |object| Description::new(Event::Access, action, object);
    match target {
        Target::Cluster => describe("cluster".to_owned()),
        Target::Database(id) => {
            let database = catalog.databases.values().find(|database| database.id == id);
            match database {
                Some(database) => {
                    describe(format!("database {}", database.name)).within(&database.name)
                }
                None => describe(format!("database {id}")),
            }
        }
        Target::Table(id) => match catalog.table_by_id(id) {
            Some(table) => describe(format!("table {}", table.name)).within(&table.database),
            None => describe(format!("table {id}")),
        },
        Target::Sequence(id) => {
            let Some(sequence) = catalog.sequences.get(&id) else {
                return describe(format!("sequence {id}"));
            };
            let described = describe(format!("sequence {}", sequence.name));
            let mut databases = catalog.databases.values();
            match databases.find(|database| database.id == sequence.database) {
                Some(database) => described.within(&database.name),
                None => described,
            }
        }
    }
}

/// Attributes of a role that change, as ALTER ROLE names them.
fn attributes(edit: &RoleEdit) -> String {
    let mut words: Vec<String> = Vec::new();
    let flags = [
        (edit.login, "LOGIN"),
        (edit.superuser, "SUPERUSER"),
        (edit.create_db, "CREATEDB"),
        (edit.create_role, "CREATEROLE"),
        (edit.admin, "ADMIN"),
    ];
    for (flag, name) in flags {
        let Some(flag) = flag else { continue };
        words.push(if flag { name.to_owned() } else { format!("NO{name}") });
    }
    words.extend(edit.name.as_ref().map(|name| format!("RENAME TO {name}")));
    words.extend(edit.org.map(|_| "ORGANISATION".to_owned()));
    words.extend(edit.verifier.as_ref().map(|verifier| match verifier {
        Some(_) => "PASSWORD".to_owned(),
        None => "PASSWORD NULL".to_owned(),
    }));
    words.extend(edit.valid_until_ms.map(|_| "VALID UNTIL".to_owned()));
    for (name, value) in &edit.settings {
        let verb = if value.is_some() { "SET" } else { "RESET" };
        words.push(format!("{verb} {name}"));
    }
    words.join(", ")
}

fn token_fields(edit: &TokenEdit) -> String {
    let mut words = Vec::new();
    words.extend(edit.description.as_ref().map(|_| "DESCRIPTION"));
    words.extend(edit.enabled.map(|is_enabled| if is_enabled { "ENABLE" } else { "DISABLE" }));
    words.extend(edit.expires_ms.map(|_| "EXPIRES"));
    words.join(", ")
}

fn task_fields(edit: &TaskEdit) -> String {
    let mut words = Vec::new();
    words.extend(edit.enabled.map(|is_enabled| if is_enabled { "ENABLE" } else { "DISABLE" }));
    words.extend(edit.schedule.as_ref().map(|_| "SCHEDULE"));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use partita_proto::access::{Access, Action, Actions, GrantEntry, Role, Secrets, Verifier};
    use partita_proto::id::{NodeId, PartitionId, TokenId};
    use partita_proto::index::{Index, IndexKind, IndexOptions};

    use super::*;

    const ANN: RoleId = RoleId(5);
    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    fn catalog() -> Catalog {
        let mut access = Access::bootstrap("partita", Secrets::default());
        access.put_role(Role::new(ANN, "ann"));
        Catalog { access: Arc::new(access), ..Catalog::default() }
    }

    /// Action, object and detail of a change.
    fn words(change: AccessChange) -> [String; 3] {
        let description = Description::of_change(&catalog(), &Ddl::Access(Box::new(change)));
        assert_eq!(description.event, Event::Access);
        [
            description.action.to_owned(),
            description.object.unwrap(),
            description.detail.unwrap_or_default(),
        ]
    }

    #[test]
    fn attributes_are_named_without_their_values() {
        let verifier: Verifier = VERIFIER.parse().unwrap();
        let edit = RoleEdit {
            login: Some(true),
            create_db: Some(false),
            verifier: Some(Some(verifier)),
            valid_until_ms: Some(None),
            settings: vec![("timezone".to_owned(), Some("a value".to_owned()))],
            ..RoleEdit::default()
        };
        assert_eq!(
            words(AccessChange::AlterRole { role: ANN, edit }),
            ["ALTER ROLE", "role ann", "LOGIN, NOCREATEDB, PASSWORD, VALID UNTIL, SET timezone"]
        );
        let edit = TokenEdit { enabled: Some(false), ..TokenEdit::default() };
        let id = TokenId::new(7).unwrap();
        assert_eq!(
            words(AccessChange::AlterToken { id, edit }),
            ["ALTER TOKEN", "token 0000000000000007", "DISABLE"]
        );
    }

    #[test]
    fn grants_name_the_object_and_the_grantee() {
        let entry = GrantEntry {
            grantee: Grantee::Role(ANN),
            actions: Actions::of(&[Action::Select, Action::Insert]),
            grantable: Actions::of(&[Action::Select]),
            grantor: BOOTSTRAP_ROLE,
        };
        let target = Target::Database(DatabaseId(77));
        assert_eq!(
            words(AccessChange::Grant { target, entry }),
            ["GRANT", "database 77", "SELECT, INSERT TO ann WITH GRANT OPTION"]
        );
        let change = AccessChange::GrantRole {
            group: BOOTSTRAP_ROLE,
            member: ANN,
            admin_option: false,
            inherit: true,
        };
        assert_eq!(words(change), ["GRANT", "role partita", "TO ann"]);
        let dropped = AccessChange::DropRole { role: RoleId(9) };
        assert_eq!(words(dropped), ["DROP ROLE", "role unknown (OID=9)", ""]);
    }

    #[test]
    fn changes_of_indexes_name_column_and_kind() {
        let detail = |change: TableChange| {
            let (database, name) = ("public".to_owned(), "t".to_owned());
            let ddl = Ddl::AlterTable { database, name, change };
            Description::of_change(&catalog(), &ddl).detail.unwrap()
        };
        let index = Index { name: "i".to_owned(), options: IndexOptions::Inverted };
        let column = "c".to_owned();
        let set = TableChange::SetIndex { column: column.clone(), index, if_not_exists: false };
        assert_eq!(detail(set), "ALTER COLUMN c SET INVERTED INDEX i");
        let dropped = TableChange::DropIndex { column, kind: IndexKind::Skipping };
        assert_eq!(detail(dropped), "ALTER COLUMN c UNSET SKIPPING INDEX");
    }

    #[test]
    fn tables_and_orders_are_named() {
        let ddl = Ddl::AlterTable {
            database: "public".to_owned(),
            name: "t".to_owned(),
            change: TableChange::RenameColumn { from: "a".to_owned(), to: "b".to_owned() },
        };
        let description = Description::of_change(&catalog(), &ddl);
        assert_eq!(description.database.as_deref(), Some("public"));
        assert_eq!(description.object.as_deref(), Some("table t"));
        assert_eq!(description.detail.as_deref(), Some("RENAME COLUMN a TO b"));
        let dropped = Ddl::Task(Box::new(TaskChange::Drop { task: TaskId(9) }));
        let description = Description::of_change(&catalog(), &dropped);
        assert_eq!((description.event, description.action), (Event::Ddl, "DROP TASK"));
        assert_eq!(description.object.as_deref(), Some("task 9"));
        let order =
            AdminOrder::MoveReplica { partition: PartitionId(7), from: NodeId(1), to: NodeId(2) };
        let description = Description::of_order(&order);
        assert_eq!(description.event, Event::Admin);
        assert_eq!(description.object.as_deref(), Some("partition 7"));
        assert_eq!(description.detail.as_deref(), Some("FROM node 1 TO node 2"));
        let split = AdminOrder::SplitPartition { partition: PartitionId(7), at: None };
        assert_eq!(Description::of_order(&split).detail, None);
    }
}
