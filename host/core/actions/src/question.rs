//! Questions of how to share out units among waiting actions, in columns (§4.2).

use serde::{Deserialize, Serialize};
use treadle_model::ActionId;

/// Maximum number of running actions per resource in a question: those that are expected to end
/// first.
pub(crate) const RUNNING_MAX: usize = 1_024;

/// Waiting actions in serving order, and what is free for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElasticQuestion {
    /// Which action each row is about.
    pub action: Vec<ActionId>,
    /// The pool of its key resource.
    pub pool: Vec<u32>,
    /// 1 for a candidate: the first rows whose minimum demands all fit together (line 2 of
    /// Algorithm 1).
    pub candidate: Vec<u8>,
    /// How long it has waited, in microseconds.
    pub waited_us: Vec<u64>,
    /// Where each row's options begin in the three lists below; one entry more than there are rows.
    pub option_start: Vec<u32>,
    /// Units of an option, ascending within a row.
    pub option_units: Vec<u32>,
    /// Expected run time with the option, in microseconds; -1 if unknown.
    pub option_us: Vec<i64>,
    /// Time to load its service onto devices first, in microseconds.
    pub option_load_us: Vec<u64>,
    /// Units that each pool has left for the rows.
    pub free_units: Vec<u32>,
    /// 1 if the pool's units are devices, which come in chunks.
    pub chunked: Vec<u8>,
    /// Free chunks of 1, 2, 4 and 8 devices: four entries per pool, 0 if it is not chunked.
    pub free_chunks: Vec<u32>,
    /// The pool of each running action.
    pub running_pool: Vec<u32>,
    /// The units of each running action.
    pub running_units: Vec<u32>,
    /// The expected remaining time of each running action, in microseconds.
    pub running_left_us: Vec<u64>,
}

impl ElasticQuestion {
    /// The built-in default's answer: each candidate with its minimum.
    pub fn least(&self) -> ElasticAnswer {
        let rows = self
            .action
            .iter()
            .zip(&self.candidate)
            .zip(&self.option_start);
        let candidates = rows.filter(|((_, candidate), _)| **candidate == 1);
        let start = candidates.filter_map(|((action, _), option)| {
            let units = self.option_units.get(*option as usize)?;
            Some((*action, *units))
        });
        ElasticAnswer {
            start: start.collect(),
        }
    }
}

/// Which actions start, and with which amount of their key resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ElasticAnswer {
    /// Actions and their units; actions that are not listed wait.
    pub start: Vec<(ActionId, u32)>,
}
