//! The head of the queue: it does not wait while there is room for it, and room is made for it once
//! it is starved.

use super::Model;
use super::memory::LACKS_ROOM;
use treadle_core::Core;
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, Span, WorkerId};

/// Settled time that rules allow in addition to deadlines and ticks: messages between the parts,
/// and one event at the end.
const LEEWAY_US: u64 = 2_000_000;

/// The head of the queue while a worker has room for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadOfQueue {
    program: ProgramId,
    starved: bool,
    /// Since when, in settled time.
    since_us: u64,
}

/// A starved head of the queue for which room could be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    program: ProgramId,
    worker: WorkerId,
    /// Since when, in settled time.
    since_us: u64,
}

impl Model {
    /// Handles a timer: questions whose time is up are closed.
    pub(super) fn time_passed(&mut self) {
        let now = self.now;
        self.asks.retain(|_, ask| ask.deadline > now);
    }

    /// Settled time within which the scheduler does what it has a reason to
    /// do: two questions without an answer, each at the next tick.
    pub(super) fn response_us_max(&self) -> u64 {
        2 * (self.config.ask_deadline.0 + self.config.tick.0) + LEEWAY_US
    }

    /// The head of the queue does not wait while there is room for it: at once where policies are
    /// honest, else once it is starved.
    pub(super) fn check_head(&mut self, core: &Core) -> Checked {
        let head = self
            .head_of_queue()
            .map(|(since, program)| (program, self.now.since(since) >= self.starvation_bound));
        let roomy = head.filter(|(program, _)| self.has_room_somewhere(core, *program).is_some());
        let Some((program, starved)) = roomy else {
            self.head = None;
            return Ok(());
        };
        let before = self.head.filter(|before| {
            before.program == program
                && (self.honest && !self.is_ranked(program) || before.starved == starved)
        });
        let since_us = before.map_or(self.settled_us, |before| before.since_us);
        self.head = Some(HeadOfQueue {
            program,
            starved,
            since_us,
        });
        let waited = self.settled_us - since_us;
        // Its policy may want it elsewhere, or another one first; new ones are gathered.
        let is_ranked = self.is_ranked(program);
        let bound = self.response_us_max() + self.config.rollout.gather.0 * u64::from(is_ranked);
        if waited > bound && (starved || self.honest && !is_ranked) {
            let worker = self.has_room_somewhere(core, program);
            return broken(
                "room",
                format!(
                    "{program} is the head of the queue and waits for {waited} us, though it fits on {worker:?}"
                ),
            );
        }
        Ok(())
    }

    /// Where a starved head of the queue lacks least, programs between steps give their memory up
    /// to it once those placements have lasted their quantum.
    pub(super) fn check_fairness(&mut self, core: &Core) -> Checked {
        let stuck = self.room_could_be_made(core);
        let Some((program, worker, victims)) = stuck else {
            self.stuck = None;
            return Ok(());
        };
        let same = |before: &Stuck| before.program == program && before.worker == worker;
        let before = self.stuck.filter(same);
        let since_us = before.map_or(self.settled_us, |before| before.since_us);
        self.stuck = Some(Stuck {
            program,
            worker,
            since_us,
        });
        // A question covers a limited number of programs.
        let questions = 1 + victims / (4 * self.config.candidates_max.max(1) as u64);
        let bound = self.response_us_max() * questions;
        let waited = self.settled_us - since_us;
        if waited > bound {
            return broken(
                "fairness",
                format!(
                    "{program} is starved and lacks least on {worker}, where {victims} programs could make room, and has waited {waited} us for it"
                ),
            );
        }
        Ok(())
    }

    /// The starved head of the queue, the worker where it lacks least, and how many programs could
    /// be paused there, if that would be enough.
    fn room_could_be_made(&self, core: &Core) -> Option<(ProgramId, WorkerId, u64)> {
        let (_, program) = self.head_of_queue()?;
        if !self.is_starved(program) || self.has_room_somewhere(core, program).is_some() {
            return None;
        }
        let workers = self.workers.iter();
        let able = workers.filter(|(id, _)| self.obstacle(core, program, **id) == Some(LACKS_ROOM));
        let lacks =
            able.map(|(id, _)| (self.lacks(core, program, *id, &self.programs_on(*id)), *id));
        let (_, worker) = lacks.min()?;
        let quantum =
            Span(self.starvation_bound.0 * u64::from(self.config.quantum_ppm) / 1_000_000);
        let lasted = |id: &ProgramId| {
            let p = &self.programs[id];
            p.steps.is_empty()
                && self.caches.is_settled(*id)
                && self.now.since(p.placed_at) >= quantum
        };
        let placed = self.programs_on(worker);
        let leaves = |id: &ProgramId| self.caches.is_leaving(*id);
        let (leaving, stay): (Vec<ProgramId>, Vec<_>) = placed.iter().partition(|id| leaves(id));
        if !leaving.is_empty() && self.lacks(core, program, worker, &stay) == 0 {
            // Room is being made, as fast as its link lets caches go.
            return None;
        }
        let (victims, stay): (Vec<ProgramId>, Vec<_>) = placed.into_iter().partition(lasted);
        let enough = self.lacks(core, program, worker, &stay) == 0;
        enough.then_some((program, worker, victims.len() as u64))
    }

    /// The wait after which a program goes before others. How long that is at present, the core
    /// decides, within its bounds.
    pub(super) fn longest_wait(&self, core: &Core) -> Span {
        let (least, most) = (self.config.deferral_min, self.config.deferral_max);
        core.starvation_bound().max(least).min(most)
    }
}
