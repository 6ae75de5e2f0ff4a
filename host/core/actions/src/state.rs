//! The state of the machine of actions.

use crate::action::{Action, Stage};
use crate::pool::Pool;
use crate::profiles::Profiles;
use crate::shares::Shares;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use treadle_machine::Timers;
use treadle_model::{ActionId, AskId, Span, Timestamp};

/// Maximum number of services; further ones are not declared.
pub const SERVICES_MAX: usize = 4_096;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Timer {
    /// A question without an answer.
    Ask(AskId),
    /// An action that must have started, begun or ended.
    Action(ActionId),
    /// A resource that time alone frees, by its position.
    Quota(u32),
}

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The question's id.
    pub ask: AskId,
    /// The candidates, in serving order.
    pub candidates: Vec<ActionId>,
    /// When the core answers itself.
    pub deadline: Timestamp,
}

/// A service that devices may hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Declared time to load it onto devices.
    pub load: Span,
    /// Measured load time by number of devices: a moving average.
    #[serde(default)]
    pub loads: BTreeMap<u64, Span>,
}

impl Service {
    /// The time to load it onto this number of devices.
    pub fn load_on(&self, devices: u64) -> Span {
        self.loads.get(&devices).copied().unwrap_or(self.load)
    }

    pub(crate) fn learn(&mut self, devices: u64, took: Span) {
        let known = self.loads.entry(devices).or_insert(took);
        known.0 = known.0 - known.0 / 8 + took.0 / 8;
    }
}

/// Counters since the state began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Actions that were submitted.
    pub submitted: u64,
    /// Attempts that were started.
    pub started: u64,
    /// Actions that ran and exited.
    pub exited: u64,
    /// Actions that ended otherwise, including withdrawn ones.
    pub failed: u64,
    /// Failed actions that may or may not have run.
    pub unknown: u64,
    /// Attempts that are repeated because it is unknown whether they ran.
    pub retried: u64,
    /// Refusals by quotas.
    pub refusals: u64,
    /// Questions to the allocation policy.
    pub asked: u64,
    /// Questions that the core had to answer itself.
    pub unanswered: u64,
    /// Answers that had to be corrected.
    pub corrected: u64,
    /// Services that were loaded onto devices.
    pub loads: u64,
}

/// The state of the machine of actions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The latest time at which the core handled an event.
    pub now: Timestamp,
    /// The resources.
    pub pools: Vec<Pool>,
    /// Limits on what groups of jobs may hold; none for no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// When each group had its last turn at each resource, as the number of the start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub turns: BTreeMap<Box<str>, BTreeMap<Box<str>, u64>>,
    /// Services that devices may hold.
    pub services: BTreeMap<Box<str>, Service>,
    /// Actions that have not ended.
    pub live: BTreeMap<ActionId, Action>,
    /// The latest ended actions.
    pub ended: BTreeMap<ActionId, Action>,
    /// Ended actions in order of their end.
    pub ended_order: VecDeque<ActionId>,
    /// Pending deadlines.
    pub timers: Timers<Timer>,
    /// The question without an answer, if there is one.
    pub ask: Option<Ask>,
    /// Candidates that the last answer left out: they wait until something else changes.
    pub held_back: BTreeSet<ActionId>,
    /// A pass is due, as more may be possible now.
    pub pass_wanted: bool,
    /// The waiting action that was ranked last.
    pub ranked: ActionId,
    /// The id of the latest action.
    pub last_action: u64,
    /// The next question's id.
    pub next_ask: u64,
    /// The number of this run of the daemon.
    pub run: u64,
    /// The run in which the resources were last declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_run: Option<u64>,
    /// How long actions last.
    pub profiles: Profiles,
    /// Counters.
    pub counters: Counters,
}

impl State {
    /// An action that has not ended, or one of the latest ended ones.
    pub fn action(&self, action: ActionId) -> Option<&Action> {
        self.live.get(&action).or_else(|| self.ended.get(&action))
    }

    /// Actions that wait.
    pub fn waiting(&self) -> impl Iterator<Item = (ActionId, &Action)> {
        let waits = |a: &Action| matches!(a.stage, Stage::Waiting { .. });
        let live = self.live.iter().filter(move |(_, a)| waits(a));
        live.map(|(id, a)| (*id, a))
    }

    /// The position of a resource.
    pub(crate) fn pool_of(&self, resource: &str) -> Option<u32> {
        let named = |pool: &Pool| &*pool.resource.name == resource;
        let position = self.pools.iter().position(named);
        position.and_then(|position| u32::try_from(position).ok())
    }
}
