//! Functions of PostgreSQL that clients call in queries over `pg_catalog`.
//!
//! Functions about objects that do not exist here return NULL, as PostgreSQL does for an object that it does not find.
//!
//! Functions that show objects are registered for each session, with its viewer: what the viewer may not see does not
//! exist for them. Without a session there are no such functions.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use partita_frontend::access::viewer::Viewer;
use partita_frontend::error::{SqlError, UNDEFINED_OBJECT};
use partita_frontend::privileges::{shown_sequences, shows_role};
use partita_frontend::sequences::{identity_of, sequence_of_column};
use partita_frontend::sql::identifier::quote;
use partita_frontend::sql::sequence_statement::sequence_name;
use partita_frontend::sql::statement::TableName;
use partita_proto::schema::JsonType;
use partita_proto::sequence::Sequence;
use pgwire::api::Type;

use super::arguments::{ViewerContext, bool, number, string, text};
use super::objects::{
    Object, Objects, attribute, database_oid, key_columns, key_name, known_name, sequence_oid,
};
use super::privileges;
use super::roles::role_by_oid;
use super::tables::{index_definition, key_definition, view_definition};
use crate::types::{self, type_name};

/// SQLSTATE of a schema that does not exist.
const INVALID_SCHEMA_NAME: &str = "3F000";

/// The context of a call.
struct Context<'a> {
    /// The session's database.
    database: &'a str,
}

/// The default of a column: an internal function that replaces a subquery of clients.
pub(super) const COLUMN_DEFAULT: &str = "partita_column_default";

/// The name of a value's type.
const TYPE_OF: &str = "pg_typeof";

/// NULLs of types that have no literal, in place of subqueries of clients that never find anything.
pub(super) const NO_OID: &str = "partita_no_oid";
pub(super) const NO_OIDS: &str = "partita_no_oids";
pub(super) const NO_TEXTS: &str = "partita_no_texts";

type Evaluate = fn(&Context<'_>, &[ScalarValue]) -> ScalarValue;
type EvaluateOfViewer = fn(&ViewerContext<'_>, &[ScalarValue]) -> Result<ScalarValue>;

/// Names of the groups of a role: an internal function that replaces a subquery of psql.
pub(super) const MEMBER_OF: &str = "partita_member_of";

/// Names of the columns of an index: an internal function that replaces a subquery of peewee.
pub(super) const INDEX_COLUMNS: &str = "partita_index_columns";

/// Object ids of a relation, a type and a schema by name, and the names of a relation and a schema by object id: internal
/// functions that replace casts.
pub(super) const REGCLASS: &str = "partita_regclass";
pub(super) const REGTYPE: &str = "partita_regtype";
pub(super) const REGNAMESPACE: &str = "partita_regnamespace";
pub(super) const REGCLASS_NAME: &str = "partita_regclass_name";
pub(super) const NAMESPACE_NAME: &str = "partita_regnamespace_name";

/// Functions by name, with their result type and implementation.
const FUNCTIONS: &[(&str, Returns, Evaluate)] = &[
    ("pg_function_is_visible", Returns::Bool, always),
    ("pg_type_is_visible", Returns::Bool, always),
    ("pg_operator_is_visible", Returns::Bool, always),
    ("pg_collation_is_visible", Returns::Bool, always),
    ("pg_conversion_is_visible", Returns::Bool, always),
    ("pg_opclass_is_visible", Returns::Bool, always),
    ("pg_opfamily_is_visible", Returns::Bool, always),
    ("pg_statistics_obj_is_visible", Returns::Bool, always),
    ("pg_ts_config_is_visible", Returns::Bool, always),
    ("pg_ts_dict_is_visible", Returns::Bool, always),
    ("pg_ts_parser_is_visible", Returns::Bool, always),
    ("pg_ts_template_is_visible", Returns::Bool, always),
    ("has_function_privilege", Returns::Bool, always),
    ("has_tablespace_privilege", Returns::Bool, always),
    ("has_type_privilege", Returns::Bool, always),
    ("pg_is_in_recovery", Returns::Bool, never),
    ("pg_is_other_temp_schema", Returns::Bool, never),
    ("pg_my_temp_schema", Returns::Oid, zero),
    ("pg_get_expr", Returns::Text, first),
    (NO_OID, Returns::Oid, null_oid),
    (NO_OIDS, Returns::Oids, null_oids),
    (NO_TEXTS, Returns::Texts, null_texts),
    ("pg_get_ruledef", Returns::Text, null_text),
    ("pg_get_triggerdef", Returns::Text, null_text),
    ("pg_get_functiondef", Returns::Text, null_text),
    ("pg_get_function_result", Returns::Text, null_text),
    ("pg_get_function_arguments", Returns::Text, null_text),
    ("pg_get_function_identity_arguments", Returns::Text, null_text),
    ("pg_get_function_sqlbody", Returns::Text, null_text),
    ("pg_get_statisticsobjdef", Returns::Text, null_text),
    ("pg_tablespace_location", Returns::Text, null_text),
    ("to_regtype", Returns::Oid, to_regtype),
    (TYPE_OF, Returns::Text, typeof_value),
    ("parse_ident", Returns::Texts, parse_ident),
    // Nothing can be locked.
    ("pg_advisory_unlock_all", Returns::Text, null_text),
    ("current_schemas", Returns::Texts, current_schemas),
    ("format_type", Returns::Text, format_type),
    ("pg_tablespace_size", Returns::Int8, null_int8),
];

/// Functions that show objects, by name.
const OF_VIEWER: &[(&str, Returns, EvaluateOfViewer)] = &[
    ("pg_table_is_visible", Returns::Bool, table_is_visible),
    ("pg_get_indexdef", Returns::Text, indexdef),
    ("pg_get_viewdef", Returns::Text, viewdef),
    (INDEX_COLUMNS, Returns::Texts, index_columns),
    ("pg_get_constraintdef", Returns::Text, constraintdef),
    (COLUMN_DEFAULT, Returns::Text, column_default),
    (MEMBER_OF, Returns::Texts, member_of),
    ("pg_get_userbyid", Returns::Text, user_by_id),
    ("obj_description", Returns::Text, obj_description),
    ("col_description", Returns::Text, col_description),
    ("shobj_description", Returns::Text, obj_description),
    ("to_regclass", Returns::Oid, to_regclass),
    (REGCLASS, Returns::Oid, regclass),
    (REGTYPE, Returns::Oid, regtype),
    (REGNAMESPACE, Returns::Oid, regnamespace),
    (REGCLASS_NAME, Returns::Text, regclass_name),
    (NAMESPACE_NAME, Returns::Text, regnamespace_name),
    ("pg_get_serial_sequence", Returns::Text, serial_sequence),
    ("has_table_privilege", Returns::Bool, privileges::on_table),
    ("has_any_column_privilege", Returns::Bool, privileges::on_table),
    ("has_column_privilege", Returns::Bool, privileges::on_column),
    ("has_database_privilege", Returns::Bool, privileges::on_database),
    ("has_schema_privilege", Returns::Bool, privileges::on_schema),
    ("has_sequence_privilege", Returns::Bool, privileges::on_sequence),
    ("pg_has_role", Returns::Bool, privileges::role),
    ("acldefault", Returns::Texts, privileges::default_acl),
];

/// The functions of this file that are the same for every session.
pub(super) fn all() -> Vec<ScalarUDF> {
    let function = |(name, returns, evaluate): (&'static str, Returns, Evaluate)| {
        ScalarUDF::from(Function::new(name, returns, Body::Plain(evaluate)))
    };
    FUNCTIONS.iter().copied().map(function).collect()
}

/// The functions of this file that show what a viewer sees.
pub(super) fn of_viewer(objects: &Arc<Objects>, viewer: &Arc<Viewer>) -> Vec<ScalarUDF> {
    let function = |(name, returns, evaluate): (&'static str, Returns, EvaluateOfViewer)| {
        let body = Body::OfViewer(evaluate, Arc::clone(objects), Arc::clone(viewer));
        ScalarUDF::from(Function::new(name, returns, body))
    };
    OF_VIEWER.iter().copied().map(function).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Returns {
    Bool,
    Int8,
    Oid,
    Oids,
    Text,
    Texts,
}

impl Returns {
    fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int8 => DataType::Int64,
            Self::Oid => DataType::Int32,
            Self::Text => DataType::Utf8,
            Self::Oids => DataType::new_list(DataType::Int32, true),
            Self::Texts => DataType::new_list(DataType::Utf8, true),
        }
    }

    fn field(self, name: &str) -> Field {
        let field = Field::new(name, self.data_type(), true);
        match self {
            Self::Oid | Self::Oids => types::marked_as_oid(field),
            Self::Bool | Self::Int8 | Self::Text | Self::Texts => field,
        }
    }
}

/// A function that is evaluated row by row; the tables it is applied to are small.
struct Function {
    name: &'static str,
    returns: Returns,
    signature: Signature,
    body: Body,
}

enum Body {
    Plain(Evaluate),
    OfViewer(EvaluateOfViewer, Arc<Objects>, Arc<Viewer>),
}

impl Function {
    fn new(name: &'static str, returns: Returns, body: Body) -> Self {
        let takes = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        Self { name, returns, signature: Signature::one_of(takes, Volatility::Stable), body }
    }

    fn call(&self, database: &str, values: &[ScalarValue]) -> Result<ScalarValue> {
        match &self.body {
            Body::Plain(evaluate) => Ok(evaluate(&Context { database }, values)),
            Body::OfViewer(evaluate, objects, viewer) => {
                evaluate(&ViewerContext { objects, viewer, database }, values)
            }
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        let same_viewer = match (&self.body, &other.body) {
            (Body::OfViewer(.., ours), Body::OfViewer(.., theirs)) => Arc::ptr_eq(ours, theirs),
            (Body::Plain(_), Body::Plain(_)) => true,
            (Body::Plain(_), Body::OfViewer(..)) | (Body::OfViewer(..), Body::Plain(_)) => false,
        };
        self.name == other.name && same_viewer
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.data_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(self.returns.field(self.name)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let database = &args.config_options.catalog.default_schema;
        // The type of JSON is not that of its values.
        let json = args.arg_fields.first().and_then(|field| JsonType::of_field(field));
        if let (TYPE_OF, Some(json)) = (self.name, json) {
            return Ok(ColumnarValue::Scalar(text(Some(json.postgres().to_owned()))));
        }
        // Constant arguments need one evaluation.
        if args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
            let values: Vec<ScalarValue> = args
                .args
                .iter()
                .filter_map(|arg| match arg {
                    ColumnarValue::Scalar(value) => Some(value.clone()),
                    ColumnarValue::Array(_) => None,
                })
                .collect();
            return Ok(ColumnarValue::Scalar(self.call(database, &values)?));
        }
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        if args.number_rows == 0 {
            let empty = arrow::array::new_empty_array(&self.returns.data_type());
            return Ok(ColumnarValue::Array(empty));
        }
        let results = (0..args.number_rows)
            .map(|row| {
                let values = columns
                    .iter()
                    .map(|column| ScalarValue::try_from_array(column, row))
                    .collect::<Result<Vec<_>>>()?;
                self.call(database, &values)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(results)?))
    }
}

fn always(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    bool(true)
}

fn never(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    bool(false)
}

fn zero(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    ScalarValue::Int32(Some(0))
}

fn null_text(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    text(None)
}

fn null_oid(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    ScalarValue::Int32(None)
}

fn null_oids(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    ScalarValue::new_null_list(DataType::Int32, true, 1)
}

fn null_texts(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    ScalarValue::new_null_list(DataType::Utf8, true, 1)
}

fn null_int8(_: &Context<'_>, _: &[ScalarValue]) -> ScalarValue {
    ScalarValue::Int64(None)
}

/// The name of a role; as in PostgreSQL, `unknown (OID=7)` for one that is not found.
fn user_by_id(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(oid) = number(values, 0) else { return Ok(text(None)) };
    let role = role_by_oid(context.viewer, oid);
    Ok(text(Some(role.map_or_else(|| format!("unknown (OID={oid})"), |role| role.name.clone()))))
}

/// The names of the roles that a role is a member of.
fn member_of(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let access = context.viewer.access();
    let role = number(values, 0).and_then(|oid| role_by_oid(context.viewer, oid));
    let groups = role.iter().flat_map(|role| &role.member_of);
    let groups = groups.filter_map(|membership| access.role(membership.role));
    let names: Vec<ScalarValue> = groups
        .filter(|group| shows_role(context.viewer, group))
        .map(|group| text(Some(group.name.clone())))
        .collect();
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&names, &DataType::Utf8)))
}

fn first(_: &Context<'_>, values: &[ScalarValue]) -> ScalarValue {
    text(string(values, 0))
}

fn table_is_visible(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(oid) = number(values, 0) else { return Ok(ScalarValue::Boolean(None)) };
    let is_visible = |schema: &str| ["pg_catalog", context.database].contains(&schema);
    let is_object = context.object(values, 0).is_some_and(|object| is_visible(object.schema()));
    let is_sequence = || {
        let mut sequences = shown_sequences(context.viewer).into_iter();
        sequences.any(|(schema, sequence)| sequence_oid(&sequence) == oid && is_visible(&schema))
    };
    Ok(bool(is_object || is_sequence()))
}

fn indexdef(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    // The second argument selects one column; 0 means all.
    let column = number(values, 1).unwrap_or(0);
    let table = match context.object(values, 0) {
        Some(Object::Key(table)) => table,
        Some(Object::Index { table, column: name, index }) => {
            return Ok(text(match column {
                0 => Some(index_definition(&table, &name, &index)),
                1 => Some(name),
                _ => None,
            }));
        }
        Some(Object::Table(_) | Object::Check { .. } | Object::Fixed(_)) | None => {
            return Ok(text(None));
        }
    };
    if column == 0 {
        return Ok(text(Some(key_definition(&table))));
    }
    let mut columns = table.schema.key_columns().enumerate();
    let key_column = columns.find(|(position, _)| attribute(*position) == column);
    Ok(text(key_column.map(|(_, column)| column.name.clone())))
}

/// The names of the columns of an index, in its order.
fn index_columns(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let names: Vec<ScalarValue> = match context.object(values, 0) {
        Some(Object::Key(table)) => {
            table.schema.key_columns().map(|column| text(Some(column.name.clone()))).collect()
        }
        _ => Vec::new(),
    };
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&names, &DataType::Utf8)))
}

fn constraintdef(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    Ok(match context.object(values, 0) {
        Some(Object::Key(table)) => text(Some(format!("PRIMARY KEY ({})", key_columns(&table)))),
        Some(Object::Check { check, .. }) => text(Some(format!("CHECK (({}))", check.expression))),
        _ => text(None),
    })
}

fn viewdef(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    Ok(match context.object(values, 0) {
        Some(Object::Table(table)) => text(view_definition(&table)),
        _ => text(None),
    })
}

fn obj_description(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    Ok(match context.object(values, 0) {
        Some(Object::Table(table)) => text(table.schema.options.comment.clone()),
        Some(_) => text(None),
        None => {
            // A database, which is a schema here.
            let (catalog, oid) = (context.viewer.catalog(), number(values, 0));
            let mut databases = catalog.databases.values();
            let database = databases.find(|database| Some(database_oid(database)) == oid);
            text(database.and_then(|database| database.comment.clone()))
        }
    })
}

fn col_description(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let (Some(Object::Table(table)), Some(column)) = (context.object(values, 0), number(values, 1))
    else {
        return Ok(text(None));
    };
    let mut columns = table.schema.shown().enumerate();
    let column = columns.find(|(position, _)| attribute(*position) == column);
    Ok(text(column.and_then(|(_, column)| column.comment.clone())))
}

fn column_default(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let (Some(Object::Table(table)), Some(column)) = (context.object(values, 0), number(values, 1))
    else {
        return Ok(text(None));
    };
    let mut columns = table.schema.shown().enumerate();
    let column = columns.find(|(position, _)| attribute(*position) == column);
    let column = column.map(|(_, column)| column);
    let is_identity = column
        .is_some_and(|column| identity_of(&context.viewer.catalog(), &table, column.id).is_some());
    let column = column.filter(|_| !is_identity);
    Ok(text(column.and_then(|column| column.generated.clone().or_else(|| column.default.clone()))))
}

/// The name of the sequence of a column, qualified and quoted where necessary.
fn serial_sequence(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let (Some(table), Some(column)) = (string(values, 0), string(values, 1)) else {
        return Ok(text(None));
    };
    let catalog = context.viewer.catalog();
    let name = sequence_name(&table)?;
    let database = name.database_or(context.database);
    let table = catalog.table(database, &name.name);
    let table = table.ok_or_else(|| SqlError::undefined_table(&name.name))?;
    let column_of_name = table.schema.column(&column);
    let column = column_of_name.ok_or_else(|| SqlError::undefined_column(&column, &table.name))?;
    let sequence = sequence_of_column(&catalog, table, column.id);
    let full_name = sequence.map(|sequence| {
        let (database, name) = (Some(table.database.clone()), sequence.name.clone());
        TableName { database, name }.to_string()
    });
    Ok(text(full_name))
}

fn to_regclass(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let oid = string(values, 0).and_then(|name| relation_named(context, &name));
    Ok(ScalarValue::Int32(oid))
}

/// The object id of a relation by the name in a user's statement, which is folded unless it is quoted.
fn relation_named(context: &ViewerContext<'_>, text: &str) -> Option<i32> {
    let name = sequence_name(text).ok()?;
    let relation = (name.database.as_deref(), name.name.as_str());
    let catalog = context.viewer.catalog();
    context.objects.relation_of(&catalog, relation, context.database).or_else(|| {
        let database = name.database_or(context.database);
        let sequences = shown_sequences(context.viewer);
        let is_meant = |(home, sequence): &&(String, Arc<Sequence>)| {
            home == database && sequence.name == name.name
        };
        sequences.iter().find(is_meant).map(|(_, sequence)| sequence_oid(sequence))
    })
}

/// A text as an object id; `None` for a text that is none.
fn digits(text: &str) -> Option<i32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The object id of a relation, which may be one already. As in PostgreSQL, the number of no relation is one too.
fn regclass(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let is_text = values.first().is_some_and(|value| value.data_type().is_string());
    if !is_text {
        return Ok(ScalarValue::Int32(number(values, 0)));
    }
    let Some(name) = string(values, 0) else { return Ok(ScalarValue::Int32(None)) };
    let oid = digits(&name).or_else(|| relation_named(context, &name));
    let oid = oid.ok_or_else(|| SqlError::undefined_table(&name))?;
    Ok(ScalarValue::Int32(Some(oid)))
}

/// The name of a relation, with its schema unless it is found without; the number of one that does not exist.
fn regclass_name(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(oid) = number(values, 0) else { return Ok(text(None)) };
    if oid == 0 {
        return Ok(text(Some("-".to_owned())));
    }
    let found = match context.object(values, 0) {
        Some(Object::Table(table)) => Some((table.database.clone(), table.name.clone())),
        Some(Object::Key(table)) => Some((table.database.clone(), key_name(&table))),
        Some(Object::Index { table, index, .. }) => Some((table.database.clone(), index.name)),
        Some(Object::Fixed(schema)) => {
            let fixed = context.objects.fixed.iter().find(|fixed| fixed.oid == oid);
            fixed.map(|fixed| (schema.to_owned(), fixed.name.clone()))
        }
        Some(Object::Check { .. }) | None => shown_sequences(context.viewer)
            .into_iter()
            .find(|(_, sequence)| sequence_oid(sequence) == oid)
            .map(|(database, sequence)| (database, sequence.name.clone())),
    };
    Ok(text(Some(match found {
        Some((schema, name)) if ["pg_catalog", context.database].contains(&schema.as_str()) => {
            quote(&name).into_owned()
        }
        Some((schema, name)) => format!("{}.{}", quote(&schema), quote(&name)),
        None => known_name(oid).map_or_else(|| oid.to_string(), str::to_owned),
    })))
}

/// The object id of a type.
fn regtype(_: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(name) = string(values, 0) else { return Ok(ScalarValue::Int32(None)) };
    let oid = digits(&name).or_else(|| type_oid(&name));
    let oid = oid.ok_or_else(|| {
        SqlError::new(UNDEFINED_OBJECT, format!("type \"{}\" does not exist", name.trim()))
    })?;
    Ok(ScalarValue::Int32(Some(oid)))
}

/// The object id of a schema.
fn regnamespace(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(name) = string(values, 0) else { return Ok(ScalarValue::Int32(None)) };
    let found = digits(&name).or_else(|| {
        let schema = sequence_name(&name).ok().filter(|schema| schema.database.is_none())?;
        let oid = context.objects.schema_oid(&context.viewer.catalog(), &schema.name);
        (oid != 0).then_some(oid)
    });
    let oid = found.ok_or_else(|| {
        SqlError::new(INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
    })?;
    Ok(ScalarValue::Int32(Some(oid)))
}

/// The name of a schema; the number of one that does not exist.
fn regnamespace_name(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(oid) = number(values, 0) else { return Ok(text(None)) };
    let catalog = context.viewer.catalog();
    let mut names: Vec<&str> = context.objects.fixed_schemas.clone();
    names.extend(catalog.databases.keys().map(String::as_str));
    let is_meant = |name: &&str| context.objects.schema_oid(&catalog, name) == oid;
    let name = names.into_iter().find(is_meant);
    Ok(text(Some(name.map_or_else(|| oid.to_string(), |name| quote(name).into_owned()))))
}

/// PostgreSQL's names of the types that exist here.
const TYPES: &[(&str, Type)] = &[
    ("bool", Type::BOOL),
    ("boolean", Type::BOOL),
    ("int2", Type::INT2),
    ("smallint", Type::INT2),
    ("int4", Type::INT4),
    ("int", Type::INT4),
    ("integer", Type::INT4),
    ("int8", Type::INT8),
    ("bigint", Type::INT8),
    ("float4", Type::FLOAT4),
    ("real", Type::FLOAT4),
    ("float8", Type::FLOAT8),
    ("double precision", Type::FLOAT8),
    ("numeric", Type::NUMERIC),
    ("decimal", Type::NUMERIC),
    ("text", Type::TEXT),
    ("varchar", Type::VARCHAR),
    ("character varying", Type::VARCHAR),
    ("bytea", Type::BYTEA),
    ("uuid", Type::UUID),
    ("date", Type::DATE),
    ("time", Type::TIME),
    ("time without time zone", Type::TIME),
    ("timestamp", Type::TIMESTAMP),
    ("timestamp without time zone", Type::TIMESTAMP),
    ("timestamptz", Type::TIMESTAMPTZ),
    ("timestamp with time zone", Type::TIMESTAMPTZ),
    ("interval", Type::INTERVAL),
    ("timetz", Type::TIMETZ),
    ("time with time zone", Type::TIMETZ),
    ("json", Type::JSON),
    ("jsonb", Type::JSONB),
    ("bpchar", Type::BPCHAR),
    ("char", Type::BPCHAR),
    ("character", Type::BPCHAR),
    ("\"char\"", Type::CHAR),
    ("oid", Type::OID),
    ("name", Type::NAME),
    ("regclass", Type::REGCLASS),
    ("regtype", Type::REGTYPE),
    ("regproc", Type::REGPROC),
    ("regnamespace", Type::REGNAMESPACE),
    ("regrole", Type::REGROLE),
];

fn to_regtype(_: &Context<'_>, values: &[ScalarValue]) -> ScalarValue {
    ScalarValue::Int32(string(values, 0).and_then(|name| type_oid(&name)))
}

/// A name in lower case, without quotes, but those of `"char"`; none if a quoted part has capitals, which no type has.
fn folded(name: &str) -> Option<String> {
    let mut folded = String::new();
    let mut is_quoted = false;
    for part in name.split('"') {
        if is_quoted && part.contains(|letter: char| letter.is_ascii_uppercase()) {
            return None;
        }
        match part {
            // Another type than CHAR.
            "char" if is_quoted => folded.push_str("\"char\""),
            part => folded.push_str(&part.to_ascii_lowercase()),
        }
        is_quoted = !is_quoted;
    }
    // Behind the last quote that closes.
    is_quoted.then_some(folded)
}

/// The object id of a type by its name in SQL or in the catalog: `integer`, `int4`, `numeric(3, 1)`, `text[]`, `_text`.
fn type_oid(name: &str) -> Option<i32> {
    let lower = folded(name.trim())?;
    let name = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let (element, is_array) = match (name.strip_suffix("[]"), name.strip_prefix('_')) {
        (Some(element), _) | (None, Some(element)) => (element.trim_end(), true),
        (None, None) => (name, false),
    };
    // A modifier does not change the type; it is in the middle of `timestamp(3) with time zone`.
    let plain = match element.split_once('(') {
        Some((first, rest)) => {
            let (_, last) = rest.split_once(')')?;
            format!("{}{last}", first.trim_end())
        }
        None => element.to_owned(),
    };
    let (_, data_type) = TYPES.iter().find(|(candidate, _)| *candidate == plain)?;
    let data_type = if is_array { types::array_of(data_type) } else { data_type.clone() };
    i32::try_from(data_type.oid()).ok()
}

/// The SQL name of a type, with its modifier.
fn format_type(_: &Context<'_>, values: &[ScalarValue]) -> ScalarValue {
    // As in PostgreSQL, an unknown type is `???`, and the absence of a type `-`.
    let Some(oid) = number(values, 0).and_then(|oid| u32::try_from(oid).ok()) else {
        return text(None);
    };
    let modifier = number(values, 1).unwrap_or(-1);
    text(Some(match Type::from_oid(oid) {
        Some(data_type) => type_name(&data_type, modifier),
        None if oid == 0 => "-".to_owned(),
        None => "???".to_owned(),
    }))
}

/// The parts of a name with dots, folded unless quoted.
fn parse_ident(_: &Context<'_>, values: &[ScalarValue]) -> ScalarValue {
    let Some(name) = string(values, 0) else {
        return ScalarValue::new_null_list(DataType::Utf8, true, 1);
    };
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut characters = name.trim().chars().peekable();
    while let (Some(next), Some(part)) = (characters.next(), parts.last_mut()) {
        match next {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            character if quoted => part.push(character),
            character => part.extend(character.to_lowercase()),
        }
    }
    let parts: Vec<ScalarValue> = parts.into_iter().map(|part| text(Some(part))).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&parts, &DataType::Utf8))
}

/// The SQL name of a value's type.
fn typeof_value(context: &Context<'_>, values: &[ScalarValue]) -> ScalarValue {
    let Some(value) = values.first() else { return text(None) };
    let data_type = value.data_type();
    if data_type == DataType::Null {
        return text(Some("unknown".to_owned()));
    }
    let oid = i32::try_from(types::of_arrow(&data_type).oid()).ok();
    format_type(context, &[ScalarValue::Int32(oid)])
}

fn current_schemas(context: &Context<'_>, values: &[ScalarValue]) -> ScalarValue {
    let implicit = matches!(values.first(), Some(ScalarValue::Boolean(Some(true))));
    let mut names = Vec::new();
    if implicit {
        names.push(text(Some("pg_catalog".to_owned())));
    }
    names.push(text(Some(context.database.to_owned())));
    ScalarValue::List(ScalarValue::new_list_nullable(&names, &DataType::Utf8))
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use pgwire::api::Type;

    use super::{Context, parse_ident, type_name, type_oid};

    #[test]
    fn identifiers_are_read_as_postgres_reads_them() {
        let around = Context { database: "public" };
        let call =
            |of: super::Evaluate, name: &str| of(&around, &[ScalarValue::from(name)]).to_string();
        for (name, parts) in [("Cpu", "[cpu]"), ("a.\"B.c\"", "[a, B.c]"), ("\"x\"\"y\"", "[x\"y]")]
        {
            assert_eq!(call(parse_ident, name), parts);
        }
    }

    #[test]
    fn types_have_the_names_of_sql() {
        for (name, shown) in [
            ("int4", "integer"),
            ("pg_catalog.int8", "bigint"),
            ("NUMERIC(3, 1)", "numeric"),
            ("timestamp(3) with time zone", "timestamp with time zone"),
            ("text[]", "text[]"),
            ("_int4", "integer[]"),
            ("char", "character"),
            ("pg_catalog.\"char\"", "\"char\""),
            ("\"text\"", "text"),
            ("\"pg_catalog\".\"_int4\"", "integer[]"),
        ] {
            let oid = type_oid(name).and_then(|oid| Type::from_oid(u32::try_from(oid).ok()?));
            assert_eq!(type_name(&oid.unwrap(), -1), shown, "{name}");
        }
        for unknown in ["nothing", "\"Text\"", "\"text"] {
            assert_eq!(type_oid(unknown), None, "{unknown}");
        }
        assert_eq!(type_name(&Type::VARCHAR_ARRAY, 14), "character varying(10)[]");
    }
}
