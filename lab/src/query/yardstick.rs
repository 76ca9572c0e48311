//! The yardstick of `lab query --yardstick FILE`: plain DataFusion in this process, over one Parquet file with the
//! server's rows.
//!
//! The rows are generated again from the seed, host by host in the order of the key, so they need no sorting and
//! have one version each. The yardstick gets the same texts as Partita.
//!
//! Available only if the lab was built with the feature `yardstick`, as in `partita`; otherwise DataFusion would be
//! most of the lab's dependencies.

use std::path::PathBuf;

use super::answer::Answer;
use crate::data::Data;

/// File of the yardstick, if requested.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct YardstickOptions {
    /// Write the same rows to this Parquet file, sorted by the key, and run the queries on plain DataFusion, too:
    /// in this process, alternating with the server. For one connection in a closed loop.
    #[cfg_attr(feature = "yardstick", arg(long, value_name = "FILE"))]
    #[cfg_attr(not(feature = "yardstick"), arg(skip))]
    yardstick: Option<PathBuf>,
}

impl YardstickOptions {
    /// True if the yardstick is requested.
    pub(crate) fn is_wanted(&self) -> bool {
        self.yardstick.is_some()
    }
}

#[cfg(feature = "yardstick")]
mod with {
    use anyhow::Context;

    use super::{Answer, Data, YardstickOptions};
    use crate::cpu::{Spec, TABLE, TAGS, TIME, hostname, hosts, rows_of};
    use crate::encode::arrow::{Batches, schema};
    use crate::report::progress;

    /// DataFusion over the file.
    pub(crate) struct Yardstick(partita_yardstick::Yardstick);

    impl Yardstick {
        /// Writes the file and opens it, if requested.
        ///
        /// # Errors
        /// If it cannot be written or read.
        pub(crate) async fn open(
            options: &YardstickOptions,
            data: &Data,
        ) -> anyhow::Result<Option<Self>> {
            let Some(path) = options.yardstick.clone() else { return Ok(None) };
            progress("writing the yardstick's file");
            let (spec, target) = (data.spec(None), path.clone());
            tokio::task::spawn_blocking(move || {
                partita_yardstick::write(&target, &schema(), sorted(&spec))
            })
            .await?
            .context("cannot write the yardstick's file")?;
            let key: Vec<&str> = TAGS.into_iter().chain([TIME]).collect();
            let opened = partita_yardstick::Yardstick::open(&path, TABLE, &key).await;
            Ok(Some(Self(opened.context("cannot read the yardstick's file")?)))
        }

        /// Runs a query.
        ///
        /// # Errors
        /// If it fails.
        pub(crate) async fn ask(&self, text: &str) -> anyhow::Result<Answer> {
            Ok(Answer::Batches(self.0.ask(text).await?))
        }
    }

    /// Rows of all hosts in the order of the key: by name, not by number, and then by time.
    fn sorted(
        spec: &Spec,
    ) -> impl Iterator<Item = anyhow::Result<arrow::record_batch::RecordBatch>> + use<> {
        let batches = Batches::new(&hosts(spec));
        let mut order: Vec<u32> = (0..spec.hosts).collect();
        order.sort_by_cached_key(|number| hostname(*number));
        let spec = spec.clone();
        order.into_iter().map(move |host| Ok(batches.of(rows_of(&spec, host))?))
    }

    #[cfg(test)]
    mod tests {
        use arrow::array::AsArray;
        use arrow::datatypes::TimestampNanosecondType;

        use super::*;
        use crate::query::answer::digest;
        use crate::query::text::{Dialect, text};
        use crate::query::tsbs::{QUERIES, tests::data};

        #[test]
        fn rows_are_in_the_order_of_the_key() {
            let spec = data(12, 1).spec(None);
            let mut keys = Vec::new();
            for batch in sorted(&spec) {
                let batch = batch.unwrap();
                let (names, times) = (batch.column(0).as_string::<i32>(), batch.column(10));
                let times = times.as_primitive::<TimestampNanosecondType>();
                let rows = (0..batch.num_rows()).map(|row| (names.value(row), times.value(row)));
                keys.extend(rows.map(|(name, time)| (name.to_owned(), time)));
            }
            assert_eq!(keys.len() as u64, spec.rows);
            assert!(keys.is_sorted());
        }

        #[tokio::test]
        async fn every_query_has_an_answer() {
            let folder = tempfile::tempdir().unwrap();
            let options = YardstickOptions { yardstick: Some(folder.path().join("cpu.parquet")) };
            let data = data(10, 24);
            let yardstick = Yardstick::open(&options, &data).await.unwrap().unwrap();
            for query in QUERIES {
                let question = query.question(&data, 42, 0);
                let answer = yardstick.ask(&text(&question, Dialect::Sql).unwrap()).await.unwrap();
                let digest = digest(&answer).unwrap();
                if query.name == "lastpoint" {
                    assert_eq!(digest.rows, 10);
                }
                assert!(digest.rows > 0 || query.name.starts_with("high-cpu"), "{}", query.name);
            }
        }
    }
}

#[cfg(not(feature = "yardstick"))]
mod without {
    use super::{Answer, Data, YardstickOptions};

    /// Without the feature there is no yardstick.
    pub(crate) enum Yardstick {}

    impl Yardstick {
        /// Returns `None`.
        ///
        /// # Errors
        /// Never.
        pub(crate) async fn open(_: &YardstickOptions, _: &Data) -> anyhow::Result<Option<Self>> {
            Ok(None)
        }

        /// Cannot be called, because there is no value.
        ///
        /// # Errors
        /// Never.
        pub(crate) async fn ask(&self, _: &str) -> anyhow::Result<Answer> {
            match *self {}
        }
    }
}

#[cfg(feature = "yardstick")]
pub(crate) use with::Yardstick;
#[cfg(not(feature = "yardstick"))]
pub(crate) use without::Yardstick;
