//! Checks the invariants of a catalog: when it is loaded, and in tests after every change.

use std::collections::{BTreeMap, BTreeSet};

use partita_proto::access::{Grantee, Scope, Target};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId, TableId};
use partita_proto::materialized::{CopyOf, copy_key_fits, is_first_key};
use partita_proto::range::Bound;

use super::{PartitionRecord, State, TableRecord};

impl State {
    /// Checks the invariants of this module.
    ///
    /// # Errors
    /// Describes the first violation.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_objects()?;
        self.check_roles()?;
        self.check_tokens()
    }

    /// Checks what needs neither roles nor tokens.
    ///
    /// # Errors
    /// As [`State::check`].
    pub(crate) fn check_objects(&self) -> Result<(), String> {
        let next = self.counters;
        // Names and ids of databases, tables and partitions.
        if self.database_names.len() != self.databases.len() {
            return Err("two databases have one name".to_owned());
        }
        if let Some(id) = self.databases.keys().next_back().filter(|id| **id >= next.database) {
            return Err(format!("database {id} is not below the next id {}", next.database));
        }
        if let Some(id) = self.tables.keys().next_back().filter(|id| **id >= next.table) {
            return Err(format!("table {id} is not below the next id {}", next.table));
        }
        if let Some(id) = self.partitions.keys().next_back().filter(|id| **id >= next.partition) {
            return Err(format!("partition {id} is not below the next id {}", next.partition));
        }
        // A replica's number is used once, counting replicas that a split has yet to create.
        let mut replicas = BTreeSet::new();
        for partition in self.partitions.values() {
            let child_replicas =
                partition.splitting().into_iter().flat_map(|split| split.replicas.keys());
            for replica in partition.all_replicas().keys().chain(child_replicas) {
                if *replica >= next.replica || !replicas.insert(*replica) {
                    return Err(format!("replica {replica} was given twice"));
                }
            }
            check_replicas(partition)?;
        }
        self.check_nodes()?;
        if self.remembered_at.len() != self.remembered.len() {
            return Err("a change is remembered twice".to_owned());
        }
        let name_count = self.tables.values().filter(|table| table.is_named()).count();
        if name_count != self.table_names.values().map(BTreeMap::len).sum::<usize>() {
            return Err("two tables of one database have one name".to_owned());
        }
        // Each partition belongs to one table, or is about to leave after a merge.
        let mut owned = 0;
        for table in self.tables.values() {
            self.check_table(table).map_err(|why| format!("table {}: {why}", table.id))?;
            owned += table.partitions.len();
        }
        owned += self.reshaping().filter(|partition| partition.is_leaving()).count();
        if owned != self.partitions.len() {
            return Err("a partition belongs to no table".to_owned());
        }
        self.check_tasks()?;
        self.check_sequences()?;
        self.check_reshaping()
    }

    /// Checks that roles, grants and owners name what exists, and that one superuser can log in.
    ///
    /// # Errors
    /// As [`State::check`].
    pub(crate) fn check_roles(&self) -> Result<(), String> {
        let access = &self.access;
        let owners = self.databases.values().map(|database| database.owner);
        let tables = self.tables.values().filter(|table| table.is_named());
        let mut owners = owners.chain(tables.map(|table| table.owner));
        if let Some(owner) = owners.find(|owner| !self.may_own(*owner)) {
            return Err(format!("role {owner} owns an object but does not exist"));
        }
        if let Some(task) = self.tasks().find(|task| !self.may_own(task.owner)) {
            return Err(format!("task {} names what is gone", task.id));
        }
        let mut sequences = self.sequences();
        if let Some(sequence) = sequences.find(|sequence| !self.may_own(sequence.owner)) {
            return Err(format!("sequence {} names what is gone", sequence.id));
        }
        let is_known = |role: RoleId| access.role(role).is_some();
        let mut names = BTreeSet::new();
        for role in access.roles().values() {
            if role.id >= self.counters.role || !names.insert(&role.name) {
                return Err(format!("role {} was given twice", role.id));
            }
            let groups = || role.member_of.iter().map(|membership| membership.role);
            if groups().any(|group| !is_known(group) || access.would_cycle(role.id, group)) {
                return Err(format!("role {} has a membership that is not valid", role.id));
            }
            if groups().collect::<BTreeSet<_>>().len() != role.member_of.len() {
                return Err(format!("role {} is a member of a role twice", role.id));
            }
            if role.org.is_some_and(|org| access.org(org).is_none()) {
                return Err(format!("role {} is in an organisation that is gone", role.id));
            }
        }
        for grant in access.grants() {
            let exists = match grant.target() {
                Target::Cluster => true,
                Target::Database(id) => self.databases.contains_key(&id),
                Target::Table(id) => self.tables.get(&id).is_some_and(|table| table.is_named()),
                Target::Sequence(id) => self.sequence(id).is_some(),
            };
            let are_known = grant.entries().iter().all(|entry| {
                let grantee = match entry.grantee {
                    Grantee::Public => BOOTSTRAP_ROLE,
                    Grantee::Role(role) => role,
                };
                is_known(grantee) && is_known(entry.grantor)
            });
            if !exists || !are_known {
                return Err(format!("a grant on {:?} names what is gone", grant.target()));
            }
        }
        let mut superusers = access.roles().values();
        if access.roles().is_empty() || superusers.any(|role| role.can_rescue()) {
            return Ok(());
        }
        Err("no superuser can log in".to_owned())
    }

    /// Checks that tokens name what exists.
    ///
    /// # Errors
    /// As [`State::check`].
    pub(crate) fn check_tokens(&self) -> Result<(), String> {
        let access = &self.access;
        for token in access.tokens() {
            let databases_exist =
                token.permissions.iter().all(|permission| match permission.scope {
                    Scope::Everything | Scope::AllBuckets => true,
                    Scope::Bucket { database, .. } => self.databases.contains_key(&database),
                });
            let org_exists = token.org.is_none_or(|org| access.org(org).is_some());
            if access.role(token.owner).is_none() || !databases_exist || !org_exists {
                return Err(format!("token {} names what is gone", token.id));
            }
        }
        Ok(())
    }

    /// Checks that tasks have their progress, and name what exists.
    fn check_tasks(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for task in self.tasks() {
            if task.id >= self.counters.task || !names.insert((task.database, &task.name)) {
                return Err(format!("task {} was given twice", task.id));
            }
            if !self.databases.contains_key(&task.database) {
                return Err(format!("task {} names what is gone", task.id));
            }
        }
        let defined = self.tasks().map(|task| task.id);
        if !defined.eq(self.task_states().map(|state| state.task)) {
            return Err("a task has no progress, or is gone".to_owned());
        }
        Ok(())
    }

    /// Checks that sequences have names of their own, and columns that exist.
    fn check_sequences(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for sequence in self.sequences() {
            let name = (sequence.database, sequence.name.as_str());
            let is_table = self.table_named(name.0, name.1).is_some();
            if sequence.id >= self.counters.sequence || is_table || !names.insert(name) {
                return Err(format!("sequence {} was given twice", sequence.id));
            }
            let has_column = sequence.column.is_none_or(|column| {
                let table = self.table(column.table).filter(|table| table.is_named());
                table.is_some_and(|table| table.schema.column_by_id(column.column).is_some())
            });
            if !has_column || !self.databases.contains_key(&sequence.database) {
                return Err(format!("sequence {} names what is gone", sequence.id));
            }
            if let Err(error) = sequence.options.validate() {
                return Err(format!("sequence {}: {error}", sequence.id));
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), String> {
        let mut identities = BTreeSet::new();
        let current = self.nodes.values().map(|node| (node.id, node.identity));
        for (node, identity) in current.chain(self.removed()) {
            if node >= self.counters.node || !identities.insert(identity) {
                return Err(format!("node {node} was given twice"));
            }
        }
        for (node, _) in self.removed() {
            if self.nodes.contains_key(&node) {
                return Err(format!("node {node} was removed but still exists"));
            }
            if let Some(partition) = self.held_by(node).next() {
                return Err(format!(
                    "node {node} was removed but still has partition {}",
                    partition.id
                ));
            }
        }
        Ok(())
    }

    fn check_table(&self, table: &TableRecord) -> Result<(), String> {
        if table.step.0 > self.counters.version {
            return Err(format!("its step {} is above the catalog's version", table.step.0));
        }
        if table.is_named() && self.database(table.database).is_none() {
            return Err(format!("its database {} does not exist", table.database));
        }
        table.schema.validate().map_err(|error| error.to_string())?;
        if table.is_visible()
            && let Some(former) = table.former
        {
            self.check_former(table, former)?;
        }
        if table.is_named()
            && let Some(copy) = &table.copy
        {
            self.check_copy(table, copy)?;
        }
        // The ranges tile the key space: each starts where the one before it ends, the first at the lowest bound
        // and the last up to the highest.
        let mut previous = Bound::default();
        let mut last = None;
        for id in &table.partitions {
            let partition = self.partitions.get(id).ok_or(format!("partition {id} is missing"))?;
            if partition.table != table.id {
                return Err(format!("partition {id} belongs to table {}", partition.table));
            }
            if partition.range.start != previous {
                return Err(format!("partition {id} does not start where the one before it ends"));
            }
            previous.clone_from(&partition.range.end);
            last = Some(&partition.range.end);
        }
        match last {
            Some(end) if *end == Bound::default() => Ok(()),
            Some(_) => Err("its last partition does not reach the end".to_owned()),
            None if table.schema.view.is_some() => Ok(()),
            None => Err("it has no partition".to_owned()),
        }
    }
}

impl State {
    fn check_copy(&self, table: &TableRecord, copy: &CopyOf) -> Result<(), String> {
        let source = self.table(copy.source).filter(|source| source.is_visible());
        let Some(source) = source else {
            return Err(format!("table {}, of which it is a copy, is gone", copy.source));
        };
        if table.is_retired() {
            return Ok(());
        }
        let is_related = |table: &TableRecord| {
            table.former.is_some() || self.tables.values().any(|next| next.former == Some(table.id))
        };
        let is_plain = source.copy.is_none() && !is_related(source) && !is_related(table);
        if !is_plain || source.database != table.database {
            return Err(format!("it cannot be a copy of table {}", source.id));
        }
        let is_first_key = copy.is_rekeying() && is_first_key(&source.schema, &table.schema.key);
        if !is_first_key && !copy_key_fits(&source.schema, &table.schema.key) {
            return Err(format!("it has other key columns than table {}", source.id));
        }
        Ok(())
    }

    fn check_former(&self, table: &TableRecord, former: TableId) -> Result<(), String> {
        let record = self.table(former).filter(|former| former.is_visible());
        let Some(record) = record else { return Err(format!("its former table {former} is gone")) };
        if record.former.is_some() || former == table.id || record.database != table.database {
            return Err(format!("table {former} cannot be its former table"));
        }
        if ![table, record].iter().all(|table| table.schema.options.append_mode) {
            return Err("it or its former table is not in append mode".to_owned());
        }
        let visible = self.tables.values().filter(|candidate| candidate.is_visible());
        if visible.filter(|candidate| candidate.former == Some(former)).count() != 1 {
            return Err(format!("table {former} is the former table of several tables"));
        }
        // A column that one of both lacks was dropped, or has been added since.
        let stranger = record.schema.columns.iter().find(|column| {
            table.schema.column_by_id(column.id).is_some_and(|counterpart| {
                let (one_type, other_type) = (counterpart.column_type, column.column_type);
                counterpart.storage_name != column.storage_name
                    || !(one_type.widens_to(other_type) || other_type.widens_to(one_type))
            })
        });
        match stranger {
            Some(column) => {
                Err(format!("column \"{}\" of its former table is another one", column.name))
            }
            None => Ok(()),
        }
    }
}

fn check_replicas(partition: &PartitionRecord) -> Result<(), String> {
    let target = partition.target.iter().map(|target| &target.replicas);
    for replicas in target.chain([&partition.replicas]) {
        if replicas.is_empty() {
            return Err(format!("partition {} has no replica", partition.id));
        }
        let nodes: BTreeSet<_> = replicas.values().collect();
        if nodes.len() != replicas.len() {
            return Err(format!("partition {} has two replicas on one node", partition.id));
        }
    }
    let moved = partition.target.iter().flat_map(|target| &target.replicas);
    for (replica, node) in moved {
        if partition.replicas.get(replica).is_some_and(|holder| holder != node) {
            return Err(format!("replica {replica} is on two nodes"));
        }
    }
    if let Some(target) = &partition.target {
        let new: BTreeSet<_> = partition.new_replicas(target).map(|(replica, _)| replica).collect();
        if let Some(replica) = target.created.difference(&new).next() {
            return Err(format!("replica {replica} was created but is not to join its group"));
        }
    }
    Ok(())
}
