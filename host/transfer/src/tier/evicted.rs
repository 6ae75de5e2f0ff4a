//! Copies that gave way to others, until somebody has heard of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use treadle_model::ProgramId;

use crate::{CopyId, KvCopy};

/// Evictions that wait to be heard of; beyond it the oldest are forgotten, and whoever asks for such
/// a copy is told that it is gone.
const EVICTIONS_HELD_MAX: usize = 65_536;

/// A copy that gave way to others.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Evicted {
    /// The copy.
    pub id: CopyId,
    /// Whose it was.
    pub program: ProgramId,
}

impl Evicted {
    pub(crate) fn of(copy: &KvCopy) -> Self {
        Self {
            id: copy.id,
            program: copy.program,
        }
    }
}

/// Copies that gave way to others, in order. Clones are the same queue.
#[derive(Clone, Default)]
pub struct Evictions {
    inner: Arc<(Mutex<VecDeque<Evicted>>, Notify)>,
}

impl Evictions {
    /// The next one; waits for it.
    pub async fn next(&self) -> Evicted {
        loop {
            let told = self.inner.1.notified();
            if let Some(next) = self.queue(VecDeque::pop_front) {
                return next;
            }
            told.await;
        }
    }

    /// Those that there are now, up to so many.
    pub fn take(&self, most: usize) -> Vec<Evicted> {
        self.queue(|queue| queue.drain(..queue.len().min(most)).collect())
    }

    pub(crate) fn push(&self, evicted: Evicted) {
        self.queue(|queue| {
            if queue.len() == EVICTIONS_HELD_MAX {
                queue.pop_front();
            }
            queue.push_back(evicted);
        });
        self.inner.1.notify_one();
    }

    fn queue<T>(&self, work: impl FnOnce(&mut VecDeque<Evicted>) -> T) -> T {
        work(&mut self.inner.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
