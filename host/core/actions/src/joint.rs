//! The interplay of actions and programs: programs keep their caches by how long their actions are
//! expected to wait and run, and actions are served by the memory that their programs hold.

use crate::action::{Action, Rank, Stage};
use crate::event::Outcome;
use crate::pool::Pool;
use crate::question::RUNNING_MAX;
use crate::{Actions, ProgramsView, RankInputs};
use std::cell::OnceCell;
use treadle_machine::Notice;
use treadle_model::{ActionId, Span, Timestamp};

/// Number of waiting actions that are ranked again at each event, in turn.
const RANKED_AT_ONCE: usize = 32;
/// Served in order of arrival.
const AS_IT_CAME: u8 = 0;
/// Its program holds engine memory that others need.
const HOLDS_UP: u8 = 1;
/// Its program's cache is in host memory that has no room for another of its size.
const HOLDS_UP_HOST: u8 = 2;
/// Any other.
const OTHER: u8 = 3;
/// Maximum number of actions of the same class that are added up one by one for an action's wait;
/// beyond it the sum of the class is used.
const BEFORE_MAX: usize = 256;

/// Programs while actions are ranked; whether any waits for placement is determined once.
struct Programs<'v> {
    view: &'v dyn ProgramsView,
    unplaced: OnceCell<bool>,
}

impl<'v> Programs<'v> {
    fn of(view: &'v dyn ProgramsView) -> Self {
        Self {
            view,
            unplaced: OnceCell::new(),
        }
    }

    fn rank_inputs(&self, program: &str) -> RankInputs {
        let unplaced = self.unplaced.get_or_init(|| self.view.any_unplaced());
        self.view.rank_inputs(program, *unplaced)
    }
}

impl Actions {
    /// Ranks new actions, and notifies their programs of the expected beginning.
    pub(crate) fn rank_newcomers(&mut self, programs: &dyn ProgramsView) {
        self.rank_new(&Programs::of(programs));
    }

    fn rank_new(&mut self, programs: &Programs<'_>) {
        for id in std::mem::take(&mut self.unranked) {
            self.rank(id, programs);
            self.notice_waits(id);
        }
    }

    /// Ranks the actions that have waited beyond the starvation bound, and some of the others.
    pub(crate) fn rank_waiting(&mut self, programs: &dyn ProgramsView) {
        let programs = &Programs::of(programs);
        self.rank_new(programs);
        let mut ids = Vec::new();
        if !self.config.joint_order {
            // Actions that were ranked while the joint order was on.
            ids.extend(self.index.overtaken.iter().take(RANKED_AT_ONCE));
        } else if self.state.pass_wanted {
            let starved = self.index.overtaken.iter().copied();
            ids.extend(starved.take_while(|id| self.is_starved(*id)));
            ids.extend(self.next_to_rank());
        }
        for id in ids {
            if self.rank(id, programs) {
                self.notice_waits(id);
            }
        }
    }

    /// Ranks a waiting action. Returns whether its position changed.
    fn rank(&mut self, id: ActionId, programs: &Programs<'_>) -> bool {
        let rank = self.rank_of(id, programs);
        let stage = self.state.live.get(&id).map(|action| &action.stage);
        match stage {
            Some(&Stage::Waiting { rank: before, work }) if before != rank => {
                self.go_on(id, Stage::Waiting { rank, work });
                true
            }
            _ => false,
        }
    }

    /// The next actions to rank, in turn, among those that are not served in order of arrival.
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

    fn rank_of(&self, id: ActionId, programs: &Programs<'_>) -> Rank {
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
        let rank_inputs = program.map_or(RankInputs::default(), |p| programs.rank_inputs(p));
        // A waiting action costs memory times time: the largest memory goes first.
        let (class, most) = match (rank_inputs.held_up_tokens, rank_inputs.host_tokens) {
            (0, 0) => (OTHER, rank_inputs.remaining_tokens),
            (0, host) => (HOLDS_UP_HOST, host),
            (held, _) => (HOLDS_UP, held),
        };
        Rank {
            class,
            length: u64::MAX - most,
        }
    }

    /// The expected wait of an action until those before it are served: the work for its key
    /// resource that is served before it and what is left of the running work, divided by all
    /// units.
    fn wait_of(&self, id: ActionId) -> Span {
        let (action, needs) = (self.state.live.get(&id), self.index.needs.get(&id));
        let (Some(stage), Some(needs)) = (action.map(|action| &action.stage), needs) else {
            return Span(0);
        };
        let &Stage::Waiting { rank, work: own } = stage else {
            return Span(0);
        };
        let now = self.state.now;
        let pool = self.state.pools.get(needs.key as usize);
        let queue = self.index.queues.get(&needs.key);
        let is_alone = queue.is_none_or(|queue| queue.len() == 1);
        let waits = |pool: &&Pool| !is_alone || pool.free(now) < needs.least_of_key();
        let Some(pool) = pool.filter(waits) else {
            return Span(0);
        };
        let running = self.index.running.get(&needs.key).into_iter().flatten();
        let left = running.take(RUNNING_MAX).map(|(expected, _, units)| {
            u128::from(expected.since(now).micros()) * u128::from(*units)
        });
        let classes = (needs.key, AS_IT_CAME)..(needs.key, rank.class);
        let queued: u128 = self.index.work.range(classes).map(|(_, work)| work).sum();
        let of_class = self.work_before(needs.key, (rank, id), own);
        let work = queued + of_class + left.sum::<u128>();
        let wait = work / u128::from(pool.total().max(1));
        Span(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// The work of its class that is served before an action.
    fn work_before(&self, key: u32, (rank, id): (Rank, ActionId), own: u64) -> u128 {
        let first = Rank { length: 0, ..rank };
        let queue = self.index.queues.get(&key).into_iter();
        let before = queue.flat_map(|queue| queue.range((first, ActionId(0))..(rank, id)));
        let mut sum = 0;
        for (count, (_, other)) in before.enumerate() {
            if count == BEFORE_MAX {
                let all = self.index.work.get(&(key, rank.class));
                return all.map_or(0, |all| all.saturating_sub(u128::from(own)));
            }
            let stage = self.state.live.get(other).map(|action| &action.stage);
            if let Some(Stage::Waiting { work, .. }) = stage {
                sum += u128::from(*work);
            }
        }
        sum
    }

    /// Records that its program acts from now on.
    fn notice_waits(&mut self, id: ActionId) {
        let begins = self.state.now + self.wait_of(id);
        self.notice_begins(id, self.least(id), begins);
    }

    /// Records that an action with these units began or will begin at `begins`.
    pub(crate) fn notice_begins(&mut self, id: ActionId, units: u64, begins: Timestamp) {
        let Some(action) = self.state.live.get(&id) else {
            return;
        };
        let Some(program) = action.spec.program.clone() else {
            return;
        };
        // Otherwise tool times are learnt including the waits.
        let (begins, ends) = if self.config.joint_retention {
            // Undeclared durations are learnt, as a distribution.
            let declared = !action.spec.durations.is_empty();
            let run = self.expected(&action.spec, units).filter(|_| declared);
            (begins, run.map(|run| begins + run))
        } else {
            (action.submitted, None)
        };
        self.notices.push_back(Notice::ActionExpected {
            program,
            action: id,
            kind: action.spec.kind.clone(),
            begins,
            ends,
        });
    }

    /// Records the end of an action, and when it began, if it did.
    pub(crate) fn notice_end(
        &mut self,
        id: ActionId,
        action: &Action,
        outcome: &Outcome,
        begun: Option<Timestamp>,
    ) {
        let spec = &action.spec;
        if let Some(program) = &spec.program {
            let ok = *outcome == Outcome::Exited { code: 0 };
            let ran_since = if self.config.joint_retention {
                begun
            } else {
                begun.map(|_| action.submitted)
            };
            self.notices.push_back(Notice::ActionOver {
                program: program.clone(),
                action: id,
                ok,
                ran_since,
            });
        }
    }
}
