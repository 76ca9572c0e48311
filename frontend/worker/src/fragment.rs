//! Wire encoding of fragments.
//!
//! A fragment is encoded as an envelope with the version of its encoder, around DataFusion's own encoding of the
//! operators. Decoding accepts only what this module lists.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use datafusion::common::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, Volatility, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr_with_converter;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{self, AggregateMode, PhysicalExprNode, PhysicalPlanNode};
use parking_lot::Mutex;
use partita_proto::Error;
use prost::Message;

use crate::functions::REGISTRY;
use crate::leaf::LeafExec;
use crate::run::service_error;

/// Maximum bytes of a fragment. A fragment is as long as the query that it is a part of; only lists of values take that
/// much.
const BYTES_MAX: usize = 256 << 10;
/// Maximum depth of nested operators and expressions. People do not write deeper queries, and decoding them would
/// overflow the stack of a thread.
const DEPTH_MAX: usize = 32;
/// Maximum rows that an operator puts into one batch.
const BATCH_ROWS_MAX: u64 = 64 << 10;

/// Runtime of a context that only constructs operators.
static NOTHING_RUNS: LazyLock<Arc<RuntimeEnv>> = LazyLock::new(Arc::default);

/// Both ends must have the same version of Partita, of DataFusion and of this encoding, the number at the end.
pub(crate) fn version() -> String {
    format!("{}+datafusion-{}+5", env!("CARGO_PKG_VERSION"), datafusion::DATAFUSION_VERSION)
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Envelope {
    /// Version of the encoder, the only field that other versions read.
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) plan: Bytes,
    /// Time zone of the session, for functions that read or show times.
    #[prost(string, optional, tag = "3")]
    pub(crate) time_zone: Option<String>,
    #[prost(uint64, tag = "4")]
    pub(crate) batch_rows: u64,
}

/// A decoded fragment, which can run once.
#[derive(Debug)]
pub struct Fragment {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) leaf: Arc<LeafExec>,
    pub(crate) config: SessionConfig,
}

/// Encodes a chain of operators over a [`LeafExec`], with a session's settings. This version can decode the result.
///
/// # Errors
/// When the chain has an operator, an expression or a function that a fragment must not have.
pub fn encode(chain: &Arc<dyn ExecutionPlan>, settings: &ConfigOptions) -> Result<Bytes> {
    let codec = Codec::new(1);
    let plan = codec.execution_plan_to_proto(chain, &codec)?;
    let envelope = Envelope {
        version: version(),
        plan: plan.encode_to_vec().into(),
        time_zone: settings.execution.time_zone.clone(),
        batch_rows: settings.execution.batch_size.get() as u64,
    };
    let bytes: Bytes = envelope.encode_to_vec().into();
    // DataFusion may encode a plan that it decodes differently, so the result is compared with the chain.
    let decoded =
        Fragment::decode(&bytes, 1).map_err(|error| DataFusionError::External(Box::new(error)))?;
    if decoded.plan.schema() != chain.schema() || shown(&decoded.plan) != shown(chain) {
        return Err(refused("operators that its encoding does not preserve".to_owned()));
    }
    Ok(bytes)
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    datafusion::physical_plan::displayable(plan.as_ref()).indent(true).to_string()
}

impl Fragment {
    /// Decodes a fragment, for a scan of up to `streams` streams.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the fragment is of another version or uses a function that is not known here,
    /// [`Error::InvalidInput`] when it has what a fragment must not have, [`Error::Corrupted`] when it cannot be
    /// decoded.
    pub fn decode(bytes: &[u8], streams: usize) -> Result<Self, Error> {
        // Size and version are checked before the operators are decoded.
        if bytes.len() > BYTES_MAX {
            let feature =
                format!("a query fragment of {} bytes, more than {BYTES_MAX},", bytes.len());
            return Err(Error::Unsupported(feature));
        }
        let envelope = Envelope::decode(bytes).map_err(malformed)?;
        if envelope.version != version() {
            let feature = format!(
                "a query fragment of version {} (this node has {})",
                envelope.version.chars().take(64).collect::<String>(),
                version()
            );
            return Err(Error::Unsupported(feature));
        }
        // Prost refuses messages that are nested more than 100 deep.
        let node = PhysicalPlanNode::decode(envelope.plan).map_err(malformed)?;
        // Only the settings that the envelope carries apply; the functions are this version's own.
        let batch_rows = envelope.batch_rows.clamp(1, BATCH_ROWS_MAX);
        let mut config = SessionConfig::new()
            .with_batch_size(usize::try_from(batch_rows).unwrap_or(usize::MAX))
            .with_target_partitions(streams.max(1));
        config.options_mut().execution.time_zone = envelope.time_zone;
        let context = TaskContext::new(
            None,
            String::new(),
            config.clone(),
            REGISTRY.scalar.clone(),
            HashMap::new(),
            REGISTRY.aggregate.clone(),
            HashMap::new(),
            Arc::clone(&NOTHING_RUNS),
        );
        // DataFusion panics on some malformed plans.
        let codec = Codec::new(streams);
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            let context = PhysicalPlanDecodeContext::new(&context, &codec);
            codec.proto_to_execution_plan(&node, &context)
        }));
        let plan = match decoded {
            Ok(Ok(plan)) => plan,
            Ok(Err(error)) => {
                return Err(match service_error(error) {
                    error @ (Error::InvalidInput(_) | Error::Unsupported(_)) => error,
                    error => Error::Unsupported(format!("a query fragment ({error})")),
                });
            }
            Err(_) => return Err(Error::Corrupted("query fragment is malformed".to_owned())),
        };
        let leaf = codec.leaf.into_inner();
        let leaf =
            leaf.ok_or_else(|| Error::Corrupted("query fragment reads no rows".to_owned()))?;
        Ok(Self { plan, leaf, config })
    }

    /// Checks that a scan reads the columns that the fragment expects.
    pub(crate) fn check(&self, columns: &SchemaRef) -> Result<(), Error> {
        let schema = self.leaf.schema();
        let fits = schema.fields().len() <= columns.fields().len()
            && schema
                .fields()
                .iter()
                .zip(columns.fields())
                .all(|(a, b)| a.data_type() == b.data_type());
        if fits {
            return Ok(());
        }
        Err(Error::InvalidInput("query fragment and its scan read different columns".to_owned()))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn malformed(error: prost::DecodeError) -> Error {
    Error::Corrupted(format!("query fragment is malformed ({error})"))
}

fn refused(part: String) -> DataFusionError {
    let text = format!("a query fragment must not contain {part}");
    DataFusionError::External(Box::new(Error::InvalidInput(text)))
}

/// Encodes and decodes what a fragment may contain.
#[derive(Debug)]
struct Codec {
    streams: usize,
    leaf: Mutex<Option<Arc<LeafExec>>>,
    depth: AtomicUsize,
}

impl Codec {
    fn new(streams: usize) -> Self {
        Self { streams, leaf: Mutex::new(None), depth: AtomicUsize::new(0) }
    }

    /// Runs a step one level of nesting deeper.
    fn deeper<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.depth.fetch_add(1, Ordering::Relaxed) >= DEPTH_MAX {
            return Err(refused("so many nested operators and expressions".to_owned()));
        }
        let result = step();
        self.depth.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

/// Accepts operators that work on one stream at a time.
fn check_operator(node: &PhysicalPlanNode) -> Result<()> {
    let part = match &node.physical_plan_type {
        Some(
            PhysicalPlanType::Filter(_)
            | PhysicalPlanType::Projection(_)
            | PhysicalPlanType::LocalLimit(_)
            | PhysicalPlanType::Extension(_),
        ) => return Ok(()),
        Some(PhysicalPlanType::Aggregate(aggregate)) => {
            if aggregate.mode == i32::from(AggregateMode::Partial)
                && aggregate.dynamic_filter.is_none()
            {
                return Ok(());
            }
            "an aggregate that is not partial"
        }
        Some(PhysicalPlanType::Sort(sort)) => {
            if sort.fetch >= 0 && sort.preserve_partitioning && sort.dynamic_filter.is_none() {
                return Ok(());
            }
            "a sort of all rows"
        }
        Some(_) => "an operator of this kind",
        None => "an operator of no kind",
    };
    Err(refused(part.to_owned()))
}

/// Accepts expressions that are computed from one row alone.
fn check_expression(node: &PhysicalExprNode) -> Result<()> {
    match &node.expr_type {
        Some(
            ExprType::Column(_)
            | ExprType::Literal(_)
            | ExprType::BinaryExpr(_)
            | ExprType::IsNullExpr(_)
            | ExprType::IsNotNullExpr(_)
            | ExprType::NotExpr(_)
            | ExprType::Case(_)
            | ExprType::Cast(_)
            | ExprType::TryCast(_)
            | ExprType::Negative(_)
            | ExprType::InList(_)
            | ExprType::LikeExpr(_)
            | ExprType::ScalarUdf(_),
        ) => Ok(()),
        Some(_) | None => Err(refused("an expression of this kind".to_owned())),
    }
}

/// Dynamic filters belong to one execution of a plan and are made anew where it runs.
fn without_dynamic_filters(node: &mut PhysicalPlanNode) {
    match &mut node.physical_plan_type {
        Some(PhysicalPlanType::Aggregate(aggregate)) => aggregate.dynamic_filter = None,
        Some(PhysicalPlanType::Sort(sort)) => sort.dynamic_filter = None,
        _ => {}
    }
}

impl PhysicalProtoConverterExtension for Codec {
    fn proto_to_execution_plan(
        &self,
        node: &PhysicalPlanNode,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check_operator(node)?;
        self.deeper(|| node.try_into_physical_plan_with_context(context, self))
    }

    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        let mut node = self.deeper(|| {
            PhysicalPlanNode::try_from_physical_plan_with_converter(Arc::clone(plan), codec, self)
        })?;
        without_dynamic_filters(&mut node);
        Ok(node)
    }

    fn proto_to_physical_expr(
        &self,
        node: &PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        check_expression(node)?;
        self.deeper(|| parse_physical_expr_with_converter(node, schema, context, self))
    }

    fn physical_expr_to_proto(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        self.deeper(|| serialize_physical_expr_with_converter(expr, codec, self))
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !inputs.is_empty() {
            return Err(refused("a leaf with inputs".to_owned()));
        }
        let schema = protobuf::Schema::decode(bytes)
            .map_err(|error| DataFusionError::External(Box::new(malformed(error))))?;
        let leaf = Arc::new(LeafExec::new(Arc::new(Schema::try_from(&schema)?), self.streams));
        if self.leaf.lock().replace(Arc::clone(&leaf)).is_some() {
            return Err(refused("two leaves".to_owned()));
        }
        Ok(leaf)
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if plan.downcast_ref::<LeafExec>().is_none() {
            return Err(refused(plan.name().to_owned()));
        }
        let schema = protobuf::Schema::try_from(plan.schema().as_ref())?;
        bytes.extend(schema.encode_to_vec());
        Ok(())
    }

    fn try_encode_udf(&self, function: &ScalarUDF, _: &mut Vec<u8>) -> Result<()> {
        let registered = REGISTRY.scalar.get(function.name());
        let same = registered.is_some_and(|registered| registered.as_ref() == function);
        if same && function.signature().volatility == Volatility::Immutable {
            return Ok(());
        }
        Err(refused(format!("function {}()", function.name())))
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, _: &mut Vec<u8>) -> Result<()> {
        let registered = REGISTRY.aggregate.get(function.name());
        if registered.is_some_and(|registered| registered.as_ref() == function) {
            return Ok(());
        }
        Err(refused(format!("function {}()", function.name())))
    }

    fn try_encode_udwf(&self, function: &WindowUDF, _: &mut Vec<u8>) -> Result<()> {
        Err(refused(format!("function {}()", function.name())))
    }
}
