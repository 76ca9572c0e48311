//! Forecasts of the load of the cluster's tables, as meta makes them.

use partita_load::{Held, STEP_MS, demand};

use super::Cluster;

impl Cluster {
    /// Shows the loads of all partitions to the forecaster, and what it plans to the scheduler.
    pub(super) fn forecast(&mut self) {
        if !self.options.forecast || self.now_ms < self.forecast_due_ms {
            return;
        }
        self.forecast_due_ms = self.now_ms + STEP_MS;
        for table in 0..self.tables.len() {
            let entry = &self.tables[table];
            if !entry.live {
                continue;
            }
            let load_of = |part: &u32| {
                let partition = Self::partition_id(*part);
                let rates = self.scheduler.rates(partition, self.now_ms).unwrap_or_default();
                let start = &*self.parts[*part as usize].low;
                Held { partition, start, load: demand(&rates) }
            };
            let parts: Vec<Held<'_>> = entry.order.iter().map(load_of).collect();
            let (id, may_cut) = (Self::table_id(table), entry.load.facts.by_load);
            let planned = self.forecaster.step(self.now_ms, id, &parts, may_cut);
            self.scheduler.set_forecast(id, &planned);
        }
    }
}
