//! Work on many tensors at once.

use crate::error::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Most threads that work on tensors.
const THREADS_MAX: usize = 16;

/// How many threads work on tensors.
pub(crate) fn threads() -> usize {
    thread::available_parallelism()
        .map_or(1, usize::from)
        .min(THREADS_MAX)
}

/// Works on each item, several at once. Returns the results in the order of the items, or the first
/// error; no item is begun after one.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((0..items.len()).map(|_| None).collect::<Vec<Option<R>>>());
    let failed = Mutex::new(None);
    let run = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            match work(item) {
                Ok(result) => {
                    done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                }
                Err(error) => {
                    next.store(items.len(), Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                    return;
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads().min(items.len()) {
            scope.spawn(run);
        }
        run();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(done.into_iter().flatten().collect())
}
