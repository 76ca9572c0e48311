//! The service of tables and their families.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use partita_proto::wide::{Family, FamilyChange, Wide, check_family_name};
use tonic::{Request, Response, Status};

use crate::api::tables::bigtable_table_admin_server::BigtableTableAdmin;
use crate::api::tables::drop_row_range_request::Target;
use crate::api::tables::modify_column_families_request::Modification;
use crate::api::tables::modify_column_families_request::modification::Mod;
use crate::api::tables::table::cluster_state::ReplicationState;
use crate::api::tables::table::{ClusterState, TimestampGranularity, View};
use crate::api::tables::{
    self, CheckConsistencyRequest, CheckConsistencyResponse, ColumnFamily, CreateTableRequest,
    DeleteTableRequest, DropRowRangeRequest, GenerateConsistencyTokenRequest,
    GenerateConsistencyTokenResponse, GetTableRequest, ListTablesRequest, ListTablesResponse,
    ModifyColumnFamiliesRequest,
};
use crate::gc::{message_of, rule_of};
use crate::names::{InstanceName, TableName, check_table};
use crate::rows::KeySpan;
use crate::status::{refused, unsupported};
use crate::store::{WideStore, WideTable, caller_of};
use crate::types::{self, aggregate_of};

/// Name of the only cluster of an instance.
const CLUSTER: &str = "partita";
/// Token of consistency: reads see all writes that were acknowledged, so every token is fulfilled.
const CONSISTENCY_TOKEN: &str = "linearizable";

/// The service google.bigtable.admin.v2.BigtableTableAdmin.
pub struct Admin {
    store: Arc<dyn WideStore>,
}

impl Admin {
    /// A service of the tables of a store.
    #[must_use]
    pub fn new(store: Arc<dyn WideStore>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl BigtableTableAdmin for Admin {
    async fn create_table(
        &self,
        request: Request<CreateTableRequest>,
    ) -> Result<Response<tables::Table>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let instance = InstanceName::parse(&request.parent)?;
        check_table(&request.table_id)?;
        let name = instance.table(&request.table_id);
        let table = request.table.unwrap_or_default();
        check_supported(&table)?;
        if table.granularity() == TimestampGranularity::Micros {
            return Err(Status::invalid_argument("the granularity must be milliseconds"));
        }
        let mut families = Vec::with_capacity(table.column_families.len());
        for (family, message) in &table.column_families {
            families.push(family_of(family, message)?);
        }
        families.sort_by(|first, second| first.name.cmp(&second.name));
        let cuts: BTreeSet<Bytes> = request.initial_splits.into_iter().map(|cut| cut.key).collect();
        if cuts.contains(&b""[..]) {
            return Err(Status::invalid_argument("the key of a split must not be empty"));
        }
        self.store.create(caller, &name, families, cuts.into_iter().collect()).await?;
        let table = self.store.table(caller, &name).await?;
        Ok(Response::new(message(&name, &table.wide, View::SchemaView)))
    }

    async fn list_tables(
        &self,
        request: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let instance = InstanceName::parse(&request.parent)?;
        let view = match request.view() {
            View::Unspecified => View::NameOnly,
            view => view,
        };
        let page = usize::try_from(request.page_size)
            .map_err(|_| Status::invalid_argument("page_size must not be negative"))?;
        let mut listed = self.store.tables(caller, &instance.instance).await?;
        listed.sort_by(|first, second| first.table.cmp(&second.table));
        // The token of a page is the last name of the one before it.
        let token = request.page_token;
        listed.retain(|table| token.is_empty() || table.table > token);
        let mut next_page_token = String::new();
        if page > 0 && listed.len() > page {
            listed.truncate(page);
            next_page_token = listed.last().map(|table| table.table.clone()).unwrap_or_default();
        }
        let message = |table: &WideTable| message(&instance.table(&table.table), &table.wide, view);
        let tables = listed.iter().map(message).collect();
        Ok(Response::new(ListTablesResponse { tables, next_page_token }))
    }

    async fn get_table(
        &self,
        request: Request<GetTableRequest>,
    ) -> Result<Response<tables::Table>, Status> {
        let caller = caller_of(&request)?;
        let name = TableName::parse(&request.get_ref().name)?;
        let view = match request.get_ref().view() {
            View::Unspecified => View::SchemaView,
            view => view,
        };
        let table = self.store.table(caller, &name).await?;
        Ok(Response::new(message(&name, &table.wide, view)))
    }

    async fn delete_table(
        &self,
        request: Request<DeleteTableRequest>,
    ) -> Result<Response<()>, Status> {
        let caller = caller_of(&request)?;
        let name = TableName::parse(&request.get_ref().name)?;
        self.store.drop_table(caller, &name).await?;
        Ok(Response::new(()))
    }

    async fn modify_column_families(
        &self,
        request: Request<ModifyColumnFamiliesRequest>,
    ) -> Result<Response<tables::Table>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.name)?;
        if request.modifications.is_empty() {
            return Err(Status::invalid_argument("a request must have at least one modification"));
        }
        let changes = request.modifications.iter().map(change_of).collect::<Result<_, _>>()?;
        self.store.alter(caller, &name, changes).await?;
        let table = self.store.table(caller, &name).await?;
        Ok(Response::new(message(&name, &table.wide, View::SchemaView)))
    }

    async fn drop_row_range(
        &self,
        request: Request<DropRowRangeRequest>,
    ) -> Result<Response<()>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.name)?;
        let span = match request.target {
            Some(Target::RowKeyPrefix(prefix)) if !prefix.is_empty() => KeySpan::prefix(&prefix),
            Some(Target::DeleteAllDataFromTable(true)) => KeySpan::all(),
            _ => {
                return Err(Status::invalid_argument(
                    "either row_key_prefix must not be empty or delete_all_data_from_table must be true",
                ));
            }
        };
        self.store.drop_rows(caller, &name, span).await?;
        Ok(Response::new(()))
    }

    async fn generate_consistency_token(
        &self,
        request: Request<GenerateConsistencyTokenRequest>,
    ) -> Result<Response<GenerateConsistencyTokenResponse>, Status> {
        let caller = caller_of(&request)?;
        let name = TableName::parse(&request.get_ref().name)?;
        self.store.table(caller, &name).await?;
        let consistency_token = CONSISTENCY_TOKEN.to_owned();
        Ok(Response::new(GenerateConsistencyTokenResponse { consistency_token }))
    }

    async fn check_consistency(
        &self,
        request: Request<CheckConsistencyRequest>,
    ) -> Result<Response<CheckConsistencyResponse>, Status> {
        let caller = caller_of(&request)?;
        let name = TableName::parse(&request.get_ref().name)?;
        self.store.table(caller, &name).await?;
        if request.get_ref().consistency_token != CONSISTENCY_TOKEN {
            return Err(Status::invalid_argument("the consistency token is unknown"));
        }
        Ok(Response::new(CheckConsistencyResponse { consistent: true }))
    }
}

/// Refuses a new table whose message asks for more than there is. A table without what its client relies on would be
/// worse than none.
///
/// # Errors
/// UNIMPLEMENTED with the name of the feature.
fn check_supported(table: &tables::Table) -> Result<(), Status> {
    let features = [
        ("change streams", table.change_stream_config.is_some()),
        ("tables with deletion protection", table.deletion_protection),
        ("automated backups", table.automated_backup_policy.is_some()),
        ("tiers of storage", table.tiered_storage_config.is_some()),
        ("schemas of row keys", table.row_key_schema.is_some()),
    ];
    match features.into_iter().find(|(_, is_set)| *is_set) {
        Some((feature, _)) => Err(unsupported(feature)),
        None => Ok(()),
    }
}

/// A family of a message.
fn family_of(name: &str, message: &ColumnFamily) -> Result<Family, Status> {
    let aggregate = aggregate_of(message.value_type.as_ref())?;
    check_family_name(name).map_err(|error| refused(&error))?;
    Ok(Family { name: name.to_owned(), gc: rule_of(message.gc_rule.as_ref())?, aggregate })
}

fn change_of(modification: &Modification) -> Result<FamilyChange, Status> {
    let name = &modification.id;
    match &modification.r#mod {
        Some(Mod::Create(message)) => Ok(FamilyChange::Create(family_of(name, message)?)),
        Some(Mod::Update(message)) => {
            let mut paths = modification.update_mask.iter().flat_map(|mask| &mask.paths);
            if let Some(path) = paths.find(|path| *path != "gc_rule") {
                return Err(Status::invalid_argument(format!(
                    "field \"{path}\" of a family cannot be updated"
                )));
            }
            let mut family = family_of(name, message)?;
            // Fields beside those of a mask do not count.
            if modification.update_mask.is_some() {
                family.aggregate = None;
            }
            Ok(FamilyChange::Update(family))
        }
        Some(Mod::Drop(true)) => Ok(FamilyChange::Drop(name.clone())),
        Some(Mod::Drop(false)) | None => Err(Status::invalid_argument(format!(
            "the modification of family \"{name}\" neither creates nor updates nor drops it"
        ))),
    }
}

/// The message of a table, with the fields of a view.
fn message(name: &TableName, wide: &Wide, view: View) -> tables::Table {
    let has_families = matches!(view, View::SchemaView | View::Full);
    let has_clusters = matches!(view, View::ReplicationView | View::EncryptionView | View::Full);
    let families = wide.families.iter().filter(|_| has_families).map(|family| {
        let gc_rule = family.gc.as_ref().map(message_of);
        let value_type = family.aggregate.map(types::message_of);
        (family.name.clone(), ColumnFamily { gc_rule, value_type })
    });
    let state = ClusterState { replication_state: ReplicationState::Ready.into() };
    let cluster_states = match has_clusters {
        true => HashMap::from([(CLUSTER.to_owned(), state)]),
        false => HashMap::new(),
    };
    let granularity = match has_families {
        true => TimestampGranularity::Millis,
        false => TimestampGranularity::Unspecified,
    };
    tables::Table {
        name: name.to_string(),
        cluster_states,
        column_families: families.collect(),
        granularity: granularity.into(),
        ..tables::Table::default()
    }
}
