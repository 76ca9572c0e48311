//! Contents that a fragment may and may not have.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field};
use bytes::Bytes;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, NotExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion_proto::bytes::physical_plan_to_bytes;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    CsvScanExecNode, ParquetScanExecNode, PhysicalExtensionNode, PhysicalPlanNode,
};
use partita_proto::Error;
use proptest::prelude::*;
use prost::Message;

use super::{chain, encoded, planned, schema};
use crate::fragment::{Envelope, Fragment};
use crate::functions::constant;
use crate::fuzzing::sealed;
use crate::leaf::LeafExec;

#[tokio::test]
async fn operators_over_one_stream_arrive_as_they_were_sent() {
    for sql in [
        "SELECT * FROM t WHERE n > 3 AND host LIKE 'a%' OR v IS NULL",
        "SELECT n + 1, CASE WHEN v > 2 THEN 'x' ELSE host END, CAST(n AS TEXT) FROM t",
        "SELECT host, count(*), sum(n), avg(v), min(host), max(v) FROM t GROUP BY host",
        "SELECT stddev(v), var_pop(v), corr(v, n), bool_and(n > 3), count(DISTINCT n), sum(v) FROM t",
        "SELECT host, n, count(*) FILTER (WHERE v > 1) FROM t GROUP BY ROLLUP (host, n)",
        "SELECT date_trunc('hour', to_timestamp(n)), count(*) FROM t GROUP BY 1",
        "SELECT date_bin(INTERVAL '5 minutes', to_timestamp(n)), count(*) FROM t GROUP BY 1",
        "SELECT DISTINCT host FROM t WHERE n IN (1, 2, 3) AND host NOT IN ('a', 'b')",
        "SELECT hash64(host, n) % 4 AS h, xxh3(host), upper(host) FROM t",
        "SELECT * FROM t ORDER BY v DESC NULLS LAST, n LIMIT 10",
        "SELECT host || 'x' FROM t WHERE NOT (n BETWEEN -5 AND 5) LIMIT 3",
    ] {
        let chain = chain(sql).await;
        let bytes = crate::encode(&chain, &ConfigOptions::new())
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let decoded = Fragment::decode(&bytes, 4).unwrap();
        assert_eq!(decoded.plan.schema(), chain.schema(), "{sql}");
        assert_eq!(decoded.plan.properties().output_partitioning().partition_count(), 4, "{sql}");
    }
}

#[tokio::test]
async fn what_changes_from_call_to_call_or_is_unknown_is_not_sent() {
    for sql in ["SELECT random() FROM t", "SELECT * FROM t WHERE uuid() = host"] {
        let error = encoded(sql).await.unwrap_err().to_string();
        assert!(error.contains("must not contain function"), "{sql}: {error}");
    }
    // A session's function with the name of a function that all nodes have.
    let session_function = Arc::new(constant("upper", &[], "no"));
    let text = Arc::new(Field::new("upper", DataType::Utf8View, true));
    let call = ScalarFunctionExpr::new("upper", session_function, Vec::new(), text, Arc::default());
    let leaf: Arc<dyn ExecutionPlan> = Arc::new(LeafExec::new(schema(""), 1));
    let columns = [(Arc::new(call) as Arc<dyn PhysicalExpr>, "upper".to_owned())];
    let plan: Arc<dyn ExecutionPlan> = Arc::new(ProjectionExec::try_new(columns, leaf).unwrap());
    let error = crate::encode(&plan, &ConfigOptions::new()).unwrap_err().to_string();
    assert!(error.contains("must not contain function upper()"), "{error}");
}

#[tokio::test]
async fn operators_that_see_all_streams_are_neither_sent_nor_taken() {
    for sql in [
        "SELECT count(*) FROM t",
        "SELECT * FROM t ORDER BY n",
        "SELECT * FROM t LIMIT 3",
        "SELECT row_number() OVER (ORDER BY n) FROM t",
        "SELECT * FROM t AS a JOIN t AS b USING (n)",
        "SELECT unnest([n, n]) FROM t",
    ] {
        let plan = planned(sql).await;
        let error = crate::encode(&plan, &ConfigOptions::new()).unwrap_err().to_string();
        assert!(error.contains("must not contain"), "{sql}: {error}");
    }
    let leaf: Arc<dyn ExecutionPlan> = Arc::new(LeafExec::new(schema(""), 1));
    let two = UnionExec::try_new(vec![Arc::clone(&leaf), leaf]).unwrap();
    assert!(crate::encode(&two, &ConfigOptions::new()).is_err());
    let empty = physical_plan_to_bytes(Arc::new(EmptyExec::new(schema("")))).unwrap();
    let error = Fragment::decode(&sealed(empty), 1).unwrap_err();
    assert!(
        matches!(&error, Error::InvalidInput(text) if text.contains("must not contain")),
        "{error}"
    );
}

#[test]
fn files_are_never_read() {
    let types = [
        PhysicalPlanType::CsvScan(CsvScanExecNode::default()),
        PhysicalPlanType::ParquetScan(ParquetScanExecNode::default()),
        PhysicalPlanType::Analyze(Box::default()),
    ];
    for kind in types {
        let node = PhysicalPlanNode { physical_plan_type: Some(kind) };
        let error = Fragment::decode(&sealed(node.encode_to_vec().into()), 1).unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)), "{error}");
    }
}

#[test]
fn a_leaf_has_no_inputs_and_something_to_read() {
    let leaf = |inputs| PhysicalPlanNode {
        physical_plan_type: Some(PhysicalPlanType::Extension(PhysicalExtensionNode {
            node: Vec::new(),
            inputs,
        })),
    };
    let good = sealed(leaf(Vec::new()).encode_to_vec().into());
    assert!(Fragment::decode(&good, 1).is_ok());
    let bad = sealed(leaf(vec![leaf(Vec::new())]).encode_to_vec().into());
    assert!(matches!(Fragment::decode(&bad, 1), Err(Error::InvalidInput(_))));
    let empty = sealed(PhysicalPlanNode::default().encode_to_vec().into());
    assert!(matches!(Fragment::decode(&empty, 1), Err(Error::InvalidInput(_))));
}

#[tokio::test]
async fn a_fragment_of_another_version_is_unsupported() {
    let bytes = encoded("SELECT * FROM t WHERE n > 3").await.unwrap();
    let mut envelope = Envelope::decode(bytes).unwrap();
    envelope.version = "0.0.9+datafusion-1.2.3+1".to_owned();
    // The contents of another version are not decoded.
    envelope.plan = Bytes::from_static(b"\xff\xff\xff");
    let error = Fragment::decode(&envelope.encode_to_vec(), 1).unwrap_err();
    assert!(matches!(&error, Error::Unsupported(what) if what.contains("0.0.9+data")), "{error}");
}

#[tokio::test]
async fn size_and_depth_are_bounded() {
    let leaf: Arc<dyn ExecutionPlan> = Arc::new(LeafExec::new(schema(""), 1));
    let filter = |predicate| -> Arc<dyn ExecutionPlan> {
        Arc::new(FilterExec::try_new(predicate, Arc::clone(&leaf)).unwrap())
    };
    let mut deep: Arc<dyn PhysicalExpr> = lit(true);
    for level in 0..60 {
        let encoded = crate::encode(&filter(Arc::clone(&deep)), &ConfigOptions::new());
        match encoded {
            Ok(bytes) => assert!(level < 32 && Fragment::decode(&bytes, 1).is_ok(), "{level}"),
            Err(error) => assert!(level > 20, "{level}: {error}"),
        }
        deep = Arc::new(NotExpr::new(deep));
    }
    let long = lit("x".repeat(300 << 10));
    let long = Arc::new(BinaryExpr::new(Arc::clone(&long), Operator::Eq, long));
    assert!(crate::encode(&filter(long), &ConfigOptions::new()).is_err());
}

static GOOD: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let fragments = [
        "SELECT host, count(*), avg(v) FROM t WHERE n > 3 GROUP BY host",
        "SELECT n + 1, upper(host) FROM t ORDER BY 1 LIMIT 5",
        "SELECT CASE WHEN n IN (1, 2) THEN v ELSE -v END FROM t LIMIT 3",
    ];
    fragments.iter().map(|sql| runtime.block_on(encoded(sql)).unwrap()).collect()
});

proptest! {
    #[test]
    fn bytes_that_are_no_fragment_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Fragment::decode(&bytes, 1).is_err());
        // Random bytes may decode to a bare leaf, and to nothing else.
        let plan = sealed(bytes.into());
        if let Ok(fragment) = Fragment::decode(&plan, 1) {
            prop_assert_eq!(fragment.plan.name(), "LeafExec");
        }
    }

    #[test]
    fn a_damaged_fragment_never_panics(
        which in 0..3_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = GOOD[which].to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(error) = Fragment::decode(&bytes, 2) {
            let known = matches!(
                error,
                Error::Corrupted(_) | Error::InvalidInput(_) | Error::Unsupported(_)
            );
            prop_assert!(known, "{error}");
        }
    }
}
