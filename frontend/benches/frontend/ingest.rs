//! From a door's columns to requests: completing, placing, keys, cutting, sending. The nodes answer at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use partita_bench::sample::{BATCH_ROWS, HOSTS, Sample};
use partita_bench::stage;
use partita_frontend::fake::Fake;
use partita_frontend::{Frontend, FrontendOptions, SessionOptions};
use partita_proto::catalog::DEFAULT_DATABASE;
use partita_tsbs::cpu::{FIELDS, TABLE, TAGS, TIME};
use tokio::runtime::{Builder, Runtime};

use crate::Criterion;

pub(crate) fn all(criterion: &mut Criterion) {
    let by_hash = "PARTITION BY HASH (hostname) PARTITIONS 8";
    let (stored, sent) = (Sample::new(HOSTS).batch(), Sample::new(HOSTS).sent());
    for (name, partitioning, batch) in [
        ("1 partition", "", &stored),
        ("8 partitions", by_hash, &stored),
        // Strings as Arrow's clients send them have to be cast.
        ("1 partition, cast", "", &sent),
    ] {
        let (runtime, _, frontend) = with_table(partitioning);
        let catalog = frontend.catalog();
        let table = catalog.table(DEFAULT_DATABASE, TABLE).expect("it was made");
        let superuser = SessionOptions::default().identity;
        let permit = frontend.authorize(&superuser, &[]).expect("a superuser");
        stage(
            criterion,
            ("ingest", name),
            BATCH_ROWS,
            || batch.clone(),
            |batch| {
                let stored = runtime.block_on(frontend.ingest(&permit, table, batch));
                assert_eq!(stored.expect("rows of the table"), BATCH_ROWS as u64);
            },
        );
    }
}

/// A frontend over one node that forgets what it takes, with the table of the data set.
pub(crate) fn with_table(partitioning: &str) -> (Runtime, Arc<Fake>, Arc<Frontend>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let fake = Fake::new(1);
    fake.forgets.store(true, Ordering::Relaxed);
    let frontend = fake.frontend(FrontendOptions::default()).expect("a frontend");
    let tags = TAGS.map(|name| format!("{name} STRING")).join(", ");
    let fields = FIELDS.map(|name| format!("{name} BIGINT")).join(", ");
    let key = TAGS.join(", ");
    let create = format!(
        "CREATE TABLE {TABLE} ({tags}, {TIME} TIMESTAMP(9) TIME INDEX, {fields}, \
         PRIMARY KEY ({key})) {partitioning}"
    );
    let session = frontend.session(SessionOptions::default());
    let made = runtime.block_on(session.execute(&create));
    made.expect("the table can be made");
    (runtime, fake, frontend)
}
