//! The metadata commands of Flight SQL: server information and catalog.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int32Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTableTypes,
    CommandGetTables, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity,
    SqlSupportedTransaction,
};
use partita_proto::catalog::Catalog;

use super::encode::outer_schema;

/// The only catalog; databases are its schemas.
pub(crate) const CATALOG: &str = "partita";
const TABLE: &str = "TABLE";

static SQL_INFO: LazyLock<Result<SqlInfoData, String>> = LazyLock::new(|| {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Partita");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, "59");
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    info.append(SqlInfo::FlightSqlServerCancel, false);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, true);
    info.append(SqlInfo::SqlDdlTable, true);
    info.append(
        SqlInfo::SqlIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32,
    );
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32,
    );
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
    info.append(SqlInfo::SqlTransactionsSupported, false);
    info.build().map_err(|error| error.to_string())
});

/// Name, version and capabilities of the server.
///
/// # Errors
/// Never, as long as the list above is well-formed.
pub(crate) fn sql_info() -> Result<&'static SqlInfoData, ArrowError> {
    SQL_INFO.as_ref().map_err(|error| ArrowError::ComputeError(error.clone()))
}

/// The table types, of which there is one.
pub(crate) fn table_types() -> Result<RecordBatch, arrow_flight::error::FlightError> {
    let mut types = CommandGetTableTypes {}.into_builder();
    types.append(TABLE);
    types.build()
}

/// The only catalog as a batch.
pub(crate) fn catalogs() -> Result<RecordBatch, arrow_flight::error::FlightError> {
    let mut catalogs = CommandGetCatalogs {}.into_builder();
    catalogs.append(CATALOG);
    catalogs.build()
}

/// The databases that match a command.
pub(crate) fn databases(
    catalog: &Catalog,
    command: CommandGetDbSchemas,
) -> Result<RecordBatch, arrow_flight::error::FlightError> {
    let mut databases = command.into_builder();
    for name in catalog.databases.keys() {
        databases.append(CATALOG, name);
    }
    databases.build()
}

/// The tables that match a command.
pub(crate) fn tables(
    catalog: &Catalog,
    command: CommandGetTables,
) -> Result<RecordBatch, arrow_flight::error::FlightError> {
    let mut tables = command.into_builder();
    for table in catalog.tables.values().flat_map(|tables| tables.values()) {
        let schema = outer_schema(&table.schema.shown_arrow());
        tables.append(CATALOG, &table.database, &table.name, TABLE, &schema)?;
    }
    tables.build()
}

/// The columns of [`primary_keys`].
pub(crate) fn primary_keys_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// The key of a table; no rows when the table does not exist.
///
/// # Errors
/// Never, as long as the arrays fit the schema.
pub(crate) fn primary_keys(
    catalog: &Catalog,
    database: &str,
    command: &CommandGetPrimaryKeys,
) -> Result<RecordBatch, ArrowError> {
    let database = command.db_schema.as_deref().unwrap_or(database);
    let ours = command.catalog.as_deref().is_none_or(|name| name.is_empty() || name == CATALOG);
    let table = catalog.table(database, &command.table).filter(|_| ours);
    let names: Vec<_> = table
        .map(|table| {
            let key = table.schema.key_columns().filter(|column| !column.is_hidden());
            key.map(|column| column.name.clone()).collect()
        })
        .unwrap_or_default();
    let repeat = |value: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(names.iter().map(|_| value)))
    };
    let numbers: Int32Array = (1..).take(names.len()).map(Some).collect();
    RecordBatch::try_new(
        primary_keys_schema(),
        vec![
            repeat(CATALOG),
            repeat(database),
            repeat(&command.table),
            Arc::new(StringArray::from_iter_values(&names)),
            repeat(&format!("{}_pkey", command.table)),
            Arc::new(numbers),
        ],
    )
}
