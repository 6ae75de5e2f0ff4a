//! Assigns cores to actions: none is shared while there are enough.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity};

/// The available cores, with the number of actions on each.
#[derive(Clone, Debug)]
pub(crate) struct Cores(Arc<Mutex<BTreeMap<u32, u32>>>);

/// Cores of one action, returned when this is dropped.
#[derive(Debug)]
pub(crate) struct CoreLease {
    from: Cores,
    cores: Vec<u32>,
}

impl Cores {
    /// The cores of this process, shared by all executors in it.
    pub(crate) fn of_this_process() -> Self {
        static ALL: LazyLock<Cores> = LazyLock::new(Cores::allowed);
        ALL.clone()
    }

    fn allowed() -> Self {
        let allowed = sched_getaffinity(None).ok();
        let is_allowed = |core: &u32| {
            let is_set = |set: &CpuSet| set.is_set(*core as usize);
            allowed.as_ref().is_some_and(is_set)
        };
        Self::new((0..CpuSet::MAX_CPU as u32).filter(is_allowed))
    }

    fn new(cores: impl IntoIterator<Item = u32>) -> Self {
        let unused = cores.into_iter().map(|core| (core, 0));
        Self(Arc::new(Mutex::new(unused.collect())))
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.lock().keys().copied().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Takes the `count` least used cores, or all if there are fewer.
    pub(crate) fn take(&self, count: usize) -> CoreLease {
        let mut all = self.lock();
        let mut by_users: Vec<_> = all.iter().map(|(core, users)| (*users, *core)).collect();
        by_users.sort_unstable();
        by_users.truncate(count);
        let cores: Vec<u32> = by_users.into_iter().map(|(_, core)| core).collect();
        for core in &cores {
            *all.entry(*core).or_default() += 1;
        }
        drop(all);
        let from = self.clone();
        CoreLease { from, cores }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CoreLease {
    pub(crate) fn cores(&self) -> &[u32] {
        &self.cores
    }
}

impl Drop for CoreLease {
    fn drop(&mut self) {
        let mut all = self.from.lock();
        for core in &self.cores {
            if let Some(users) = all.get_mut(core) {
                *users -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_cores_go_first_and_then_the_least_used() {
        let cores = Cores::new([0, 1, 5]);
        let two = cores.take(2);
        assert_eq!(two.cores(), [0, 1]);
        assert_eq!(cores.take(0).cores(), [0_u32; 0]);
        let shared = cores.take(2);
        assert_eq!(shared.cores(), [5, 0]);
        drop(two);
        assert_eq!(cores.take(9).cores(), [1, 0, 5], "no more than there are");
        drop(shared);
        assert!(cores.lock().values().all(|users| *users == 0));
        assert_eq!(cores.count(), 3);
    }

    #[test]
    fn this_process_runs_somewhere() {
        assert_eq!(Cores::of_this_process().take(1).cores().len(), 1);
    }
}
