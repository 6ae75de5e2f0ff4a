//! Which cores an action runs on: no two share one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity};

/// The cores that are free.
#[derive(Clone, Debug)]
pub(crate) struct Cores(Arc<Mutex<BTreeSet<u32>>>);

/// Cores of one action, free again once this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    from: Cores,
    cores: Vec<u32>,
}

impl Cores {
    /// Those that this process may run on.
    pub(crate) fn of_this_process() -> Self {
        let allowed = sched_getaffinity(None).ok();
        let is_allowed = |core: &u32| {
            let is_set = |set: &CpuSet| set.is_set(*core as usize);
            allowed.as_ref().is_some_and(is_set)
        };
        Self::new((0..CpuSet::MAX_CPU as u32).filter(is_allowed))
    }

    fn new(cores: impl IntoIterator<Item = u32>) -> Self {
        Self(Arc::new(Mutex::new(cores.into_iter().collect())))
    }

    /// Takes `count` cores, side by side where that is possible: they share caches and memory.
    /// `None` where fewer are free, which is so where more are configured than there are.
    pub(crate) fn take(&self, count: usize) -> Option<Taken> {
        let mut free = self.lock();
        if count == 0 || free.len() < count {
            return None;
        }
        let all: Vec<u32> = free.iter().copied().collect();
        let adjacent = |run: &&[u32]| run[count - 1] - run[0] == count as u32 - 1;
        let cores = all.windows(count).find(adjacent).unwrap_or(&all[..count]);
        for core in cores {
            free.remove(core);
        }
        Some(Taken {
            from: self.clone(),
            cores: cores.to_vec(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    pub(crate) fn cores(&self) -> &[u32] {
        &self.cores
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.lock().extend(&self.cores);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_core_is_given_twice_and_neighbours_go_together() {
        let cores = Cores::new([0, 1, 3, 4, 5, 9]);
        let three = cores.take(3).unwrap();
        assert_eq!(three.cores(), [3, 4, 5]);
        let two = cores.take(2).unwrap();
        assert_eq!(two.cores(), [0, 1]);
        assert!(cores.take(2).is_none() && cores.take(0).is_none());
        drop(three);
        let four = cores.take(4).unwrap();
        assert_eq!(four.cores(), [3, 4, 5, 9]);
        assert!(cores.take(1).is_none());
    }

    #[test]
    fn this_process_runs_somewhere() {
        assert!(Cores::of_this_process().take(1).is_some());
    }
}
