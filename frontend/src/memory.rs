//! Memory pool of statements, with a reserve for small ones.
//!
//! DataFusion's fair pool lets large consumers take all memory, and then refuses the first page of a light query such
//! as psql's `\d`. So a part of the memory is reserved: a consumer that the pool refuses may take from the reserve as
//! long as its total stays small.
//!
//! Invariant: memory that a consumer took from the reserve is returned there first.

use std::collections::HashMap;
use std::fmt;

use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;

/// The reserve is `1 / RESERVE_SHARE` of the memory.
const RESERVE_SHARE: usize = 8;
/// Maximum bytes of a consumer that may take from the reserve.
const SMALL_BYTES_MAX: usize = 2 << 20;

/// A fair pool with a reserve.
#[derive(Debug)]
pub(crate) struct ReservingPool {
    pool: FairSpillPool,
    reserve_bytes: usize,
    reserve: Mutex<Reserve>,
}

/// State of the reserve.
#[derive(Debug, Default)]
struct Reserve {
    /// Bytes taken by all consumers.
    taken: usize,
    /// Bytes taken by each consumer, by its id.
    by_consumer: HashMap<usize, usize>,
}

impl ReservingPool {
    /// A pool of `bytes` bytes, reserve included.
    pub(crate) fn new(bytes: usize) -> Self {
        let reserve_bytes = bytes / RESERVE_SHARE;
        Self {
            pool: FairSpillPool::new(bytes - reserve_bytes),
            reserve_bytes,
            reserve: Mutex::default(),
        }
    }
}

impl fmt::Display for ReservingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and a reserve of {} bytes", self.pool, self.reserve_bytes)
    }
}

impl MemoryPool for ReservingPool {
    fn name(&self) -> &'static str {
        "reserving"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut reserve = self.reserve.lock();
        let number = reservation.consumer().id();
        let mut returned = 0;
        if let Some(borrowed) = reserve.by_consumer.get_mut(&number) {
            returned = shrink.min(*borrowed);
            *borrowed -= returned;
            if *borrowed == 0 {
                reserve.by_consumer.remove(&number);
            }
            reserve.taken -= returned;
        }
        drop(reserve);
        if shrink > returned {
            self.pool.shrink(reservation, shrink - returned);
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let Err(refused) = self.pool.try_grow(reservation, additional) else { return Ok(()) };
        let mut reserve = self.reserve.lock();
        let is_small = reservation.size().saturating_add(additional) <= SMALL_BYTES_MAX;
        if !is_small || reserve.taken.saturating_add(additional) > self.reserve_bytes {
            return Err(refused);
        }
        reserve.taken += additional;
        *reserve.by_consumer.entry(reservation.consumer().id()).or_default() += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.pool.reserved() + self.reserve.lock().taken
    }

    fn memory_limit(&self) -> MemoryLimit {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(bytes) => MemoryLimit::Finite(bytes + self.reserve_bytes),
            limit => limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_full_pool_leaves_something_for_small_consumers() {
        let pool: Arc<dyn MemoryPool> = Arc::new(ReservingPool::new(80 << 20));
        let large = MemoryConsumer::new("large").register(&pool);
        large.try_grow(70 << 20).unwrap();
        assert!(large.try_grow(1 << 20).is_err(), "the reserve is not for large ones");
        let small = MemoryConsumer::new("small").register(&pool);
        small.try_grow(1 << 20).unwrap();
        small.try_grow(1 << 20).unwrap();
        assert!(small.try_grow(1).is_err(), "it is not small any more");
        assert_eq!(pool.reserved(), 72 << 20);
        let others: Vec<_> = (0..9)
            .map(|number| {
                let consumer = MemoryConsumer::new(format!("consumer {number}")).register(&pool);
                let taken = consumer.try_grow(1 << 20).is_ok();
                (consumer, taken)
            })
            .collect();
        assert_eq!(others.iter().filter(|(_, taken)| *taken).count(), 8, "the reserve ends, too");
        drop((large, small, others));
        assert_eq!(pool.reserved(), 0);
    }
}
