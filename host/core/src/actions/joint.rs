//! What actions and programs know of each other: programs keep their caches by how long their
//! actions are expected to wait and run, and actions are served by what their programs hold up.

use crate::actions::action::{Noticed, Rank, Stage};
use crate::actions::event::Outcome;
use crate::actions::question::RUNNING_MAX;
use crate::actions::spec::ActionSpec;
use crate::actions::{Actions, Notice, Standing};
use treadle_model::{ActionId, Span, Timestamp};

/// Waiting actions that are ranked anew with each event; all of them in turn.
const RANKED_AT_ONCE: usize = 32;
/// Served as it came.
const AS_IT_CAME: u8 = 0;
/// Its program holds up memory that others need.
const HOLDS_UP: u8 = 1;
/// Any other.
const OTHER: u8 = 2;

impl Actions {
    /// Ranks the newcomers, those that have waited for too long, and some of the others.
    pub(crate) fn rank_waiting(&mut self, standing: impl Fn(&str) -> Standing) {
        let mut ids = std::mem::take(&mut self.unranked);
        if !self.config.joint_order {
            // What was ranked while it was on.
            ids.extend(self.index.overtaken.iter().take(RANKED_AT_ONCE));
        } else if self.state.pass_wanted {
            let starved = self.index.overtaken.iter().copied();
            ids.extend(starved.take_while(|id| self.is_starved(*id)));
            ids.extend(self.next_to_rank());
        }
        for id in ids {
            let rank = self.rank_of(id, &standing);
            let Some(action) = self.state.live.get(&id) else {
                continue;
            };
            if let Stage::Waiting { rank: before, work } = action.stage
                && before != rank
            {
                self.go_on(id, Stage::Waiting { rank, work });
            }
        }
    }

    /// Round and round among those that are not served as they came.
    fn next_to_rank(&mut self) -> Vec<ActionId> {
        let after = ActionId(self.state.ranked.0 + 1);
        let overtaken = &self.index.overtaken;
        let round = overtaken.range(after..).chain(overtaken.range(..after));
        let next: Vec<_> = round.copied().take(RANKED_AT_ONCE).collect();
        if let Some(last) = next.last() {
            self.state.ranked = *last;
        }
        next
    }

    fn rank_of(&self, id: ActionId, standing: impl Fn(&str) -> Standing) -> Rank {
        if !self.config.joint_order || self.is_starved(id) {
            return Rank {
                class: AS_IT_CAME,
                length: 0,
            };
        }
        let program = self
            .state
            .live
            .get(&id)
            .and_then(|a| a.spec.program.as_deref());
        let standing = program.map_or(Standing::default(), standing);
        let class = if standing.holds_up { HOLDS_UP } else { OTHER };
        Rank {
            class,
            length: u64::MAX - standing.remaining_tokens,
        }
    }

    /// How long an action that comes now waits until those before it have had their turn: the work
    /// that waits for its key resource and what is left of the work that runs, shared by all units.
    pub(crate) fn wait_for(&self, spec: &ActionSpec) -> Span {
        let Some(key) = spec.demands.get(spec.key_demand()) else {
            return Span(0);
        };
        let Some(number) = self.state.pool_of(&key.resource) else {
            return Span(0);
        };
        let now = self.state.now;
        let pool = self.state.pools.get(number as usize);
        let least = key.options.first().copied().unwrap_or(0);
        let waits = self.index.queues.contains_key(&number);
        let Some(pool) = pool.filter(|pool| waits || pool.free(now) < least) else {
            return Span(0);
        };
        let running = self.index.running.get(&number).into_iter().flatten();
        let left = running.take(RUNNING_MAX).map(|(expected, _, units)| {
            u128::from(expected.since(now).micros()) * u128::from(*units)
        });
        let queued = self.index.work.get(&number).copied().unwrap_or(0);
        let work = queued.saturating_add(left.sum());
        let wait = work / u128::from(pool.total().max(1));
        Span(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// Its program acts from now on.
    pub(crate) fn notice_submitted(&mut self, id: ActionId, wait: Span) {
        let now = self.state.now;
        let action = self.state.live.get(&id);
        let run = action.and_then(|a| self.expected(&a.spec, self.least(id)));
        self.notice_expected(id, run.map(|run| now + wait + run));
    }

    /// It is known better when an action ends, or less well.
    pub(crate) fn notice(&mut self, id: ActionId) {
        let started = self.state.live.get(&id).and_then(|a| a.started());
        let at = started.and_then(|started| started.expected);
        self.notice_expected(id, at);
    }

    fn notice_expected(&mut self, id: ActionId, at: Option<Timestamp>) {
        let at = at.filter(|_| self.config.joint_retention);
        if let Some(action) = self.state.live.get(&id)
            && let Some(program) = &action.spec.program
        {
            self.notices.push_back(Notice {
                program: program.clone(),
                action: id,
                kind: action.spec.kind.clone(),
                what: Noticed::Expected { at },
            });
        }
    }

    pub(crate) fn notice_end(&mut self, id: ActionId, spec: &ActionSpec, outcome: &Outcome) {
        if let Some(program) = &spec.program {
            let ok = *outcome == Outcome::Exited { code: 0 };
            self.notices.push_back(Notice {
                program: program.clone(),
                action: id,
                kind: spec.kind.clone(),
                what: Noticed::Over { ok },
            });
        }
    }
}
