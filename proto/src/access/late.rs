//! Values that are loaded after the snapshot that holds them was published: readers wait for them.
//!
//! ```text
//!   snapshot ──▶ Late ──┐
//!   clone    ──▶ Late ──┴──▶ cell ◀── Delivery of the loader
//!   edited   ──▶ Late with a value of its own
//! ```
//!
//! Invariants:
//! - a reader sees the whole value, never a part of it or a stand-in;
//! - every reader is released: a delivery that is dropped without a value delivers the default, which allows nothing.

use std::sync::{Arc, OnceLock};

use crate::blocking;

/// A value that is present, or is being loaded by another thread.
#[derive(Clone)]
pub(super) struct Late<T> {
    present: Option<T>,
    /// Set by the loader; only read while nothing is present.
    cell: Arc<OnceLock<T>>,
}

impl<T: Default> Default for Late<T> {
    fn default() -> Self {
        Self { present: Some(T::default()), cell: Arc::default() }
    }
}

impl<T: PartialEq> PartialEq for Late<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for Late<T> {}

impl<T> Late<T> {
    /// A value that the returned delivery sets.
    pub(super) fn awaited() -> (Self, Delivery<T>)
    where
        T: Default,
    {
        let cell = Arc::<OnceLock<T>>::default();
        (Self { present: None, cell: Arc::clone(&cell) }, Delivery(cell))
    }

    /// The value, unless it is still being loaded.
    pub(super) fn peek(&self) -> Option<&T> {
        self.present.as_ref().or_else(|| self.cell.get())
    }

    /// The value; blocks until it is loaded.
    pub(super) fn get(&self) -> &T {
        match &self.present {
            Some(value) => value,
            None => wait(&self.cell),
        }
    }

    /// The value, for an edit that other snapshots do not see; blocks until it is loaded.
    pub(super) fn get_mut(&mut self) -> &mut T
    where
        T: Clone,
    {
        let Self { present, cell } = self;
        // The loaded value is freed with the last snapshot that still refers to the cell.
        present.get_or_insert_with(|| {
            let cell: Arc<OnceLock<T>> = std::mem::take(cell);
            wait(&cell).clone()
        })
    }
}

/// Blocks until a cell is set. Other tasks of the thread move to another one.
fn wait<T>(cell: &OnceLock<T>) -> &T {
    match cell.get() {
        Some(value) => value,
        None => blocking::at_once(|| cell.wait()),
    }
}

/// The loader's end of a [`Late`] value.
pub(super) struct Delivery<T: Default>(Arc<OnceLock<T>>);

impl<T: Default> Delivery<T> {
    /// Sets the value; a second one is ignored.
    pub(super) fn deliver(&self, value: T) {
        drop(self.0.set(value));
    }
}

impl<T: Default> Drop for Delivery<T> {
    fn drop(&mut self) {
        self.deliver(T::default());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn readers_wait_for_the_value_and_share_it() {
        let (late, delivery) = Late::<Vec<u32>>::awaited();
        assert!(late.peek().is_none());
        let is_read = Arc::new(AtomicBool::new(false));
        let (reader, flag) = (late.clone(), Arc::clone(&is_read));
        let reading = std::thread::spawn(move || {
            let value = reader.get().clone();
            flag.store(true, Ordering::SeqCst);
            value
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!is_read.load(Ordering::SeqCst), "read before it was loaded");
        delivery.deliver(vec![7]);
        assert_eq!(reading.join().unwrap(), [7]);
        // Later ones do not count.
        delivery.deliver(vec![8]);
        assert_eq!((late.get(), late.peek()), (&vec![7], Some(&vec![7])));
    }

    #[test]
    fn an_edit_waits_too_and_is_seen_by_no_other_snapshot() {
        let (late, delivery) = Late::<Vec<u32>>::awaited();
        let mut edited = late.clone();
        let editing = std::thread::spawn(move || {
            edited.get_mut().push(8);
            edited
        });
        delivery.deliver(vec![7]);
        assert_eq!(editing.join().unwrap().get(), &[7, 8]);
        assert_eq!(late.get(), &[7]);
        let mut present = Late::<Vec<u32>>::default();
        present.get_mut().push(1);
        assert_eq!(present.get(), &[1]);
    }

    #[test]
    fn a_loader_that_ends_without_a_value_releases_its_readers() {
        let (late, delivery) = Late::<Vec<u32>>::awaited();
        let reader = late.clone();
        let reading = std::thread::spawn(move || reader.get().len());
        drop(delivery);
        assert_eq!(reading.join().unwrap(), 0);
        assert!(late == Late::default());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_waiting_task_leaves_its_thread_to_others() {
        let (late, delivery) = Late::<Vec<u32>>::awaited();
        let waiting = tokio::spawn(async move { late.get().len() });
        let loading = tokio::spawn(async move { delivery.deliver(vec![1, 2]) });
        loading.await.unwrap();
        assert_eq!(waiting.await.unwrap(), 2);
    }
}
