//! Answers of policies, and the core's own answer if none came.

use crate::Programs;
use crate::programs::asks::Ask;
use crate::programs::question::Attribution;
use crate::programs::ranking::Ranking;
use crate::programs::timers::Timer;
use crate::programs::{PolicyAnswer, Purpose};
use treadle_model::{AskId, PolicyRef, ProgramId};

impl Programs {
    pub(crate) fn policy_answered(
        &mut self,
        ask: AskId,
        policy: &PolicyRef,
        answer: &PolicyAnswer,
        attribution: &Attribution,
    ) {
        // The question of a late answer is gone.
        let Some(open) = self.state.asks.remove(ask) else {
            return;
        };
        self.state.timers.disarm(open.deadline, Timer::Ask(ask));
        match (open.purpose, answer) {
            (Purpose::Weigh { worker }, PolicyAnswer::Weights { weights }) => {
                for (program, ppm) in weights {
                    self.weigh(*program, *ppm);
                }
                self.pause_weightless(worker, &Ranking::of_weights(weights, policy, attribution));
                self.relieve(worker);
            }
            (Purpose::Retain { worker, .. }, PolicyAnswer::CacheActions { actions }) => {
                self.apply_cache_actions(
                    worker,
                    actions,
                    &Ranking::of_actions(actions, policy, attribution),
                );
                self.relieve(worker);
            }
            (_, PolicyAnswer::Order { .. }) if open.purpose.is_ordering() => {
                let mut ranking = Ranking::of_order(&open.candidates, answer, policy, attribution);
                if ranking.entries.len() < open.candidates.len() {
                    ranking.add_left_out(&self.not_to_be_left_out(&open));
                }
                self.carry_out(open.purpose, &ranking);
            }
            // An answer of the wrong shape counts as no answer.
            _ => {
                self.answer_self(open.purpose, &open.candidates);
            }
        }
    }

    /// The programs that an answer may not leave out: if memory must be freed all can be paused,
    /// and starved ones are restored in any case.
    fn not_to_be_left_out(&self, open: &Ask) -> Vec<ProgramId> {
        let all = open.candidates.iter().copied();
        match open.purpose {
            Purpose::Restore => {
                let newcomers = self.state.waiting.newcomers();
                let must = |p: &ProgramId| newcomers.contains(p) || self.is_starved(*p);
                all.filter(must).collect()
            }
            Purpose::Pause { .. } | Purpose::Weigh { .. } | Purpose::Route { .. } => all.collect(),
            Purpose::Migrate | Purpose::Preempt { .. } | Purpose::Retain { .. } => Vec::new(),
        }
    }

    /// No answer came in time: the candidates keep their own order, and weights stay as they are.
    pub(crate) fn ask_expired(&mut self, ask: AskId) {
        let Some(mut open) = self.state.asks.remove(ask) else {
            return;
        };
        if let Purpose::Pause { worker, .. } = open.purpose {
            // By now some candidates run a step, and other programs can be paused.
            open.candidates = self.pausable(worker);
        }
        self.answer_self(open.purpose, &open.candidates);
    }

    fn answer_self(&mut self, purpose: Purpose, candidates: &[ProgramId]) {
        if matches!(purpose, Purpose::Migrate | Purpose::Preempt { .. }) {
            // Without an answer no program is moved and no step preempted.
            return;
        }
        let ranking = Ranking::unranked(candidates, &PolicyRef("core".into()));
        self.carry_out(purpose, &ranking);
    }

    fn carry_out(&mut self, purpose: Purpose, ranking: &Ranking) {
        match purpose {
            Purpose::Weigh { .. } | Purpose::Retain { .. } => {}
            Purpose::Pause { worker, .. } => self.pause_in_order(worker, ranking),
            Purpose::Restore => self.restore_in_order(ranking),
            Purpose::Route { step } => self.route_in_order(step, ranking),
            Purpose::Migrate => self.want_moves(ranking),
            Purpose::Preempt { worker } => self.preempt_in_order(worker, ranking),
        }
    }

    /// Sets a program's weight. Only a program between steps is weighed; a step that came meanwhile
    /// makes it count in full.
    fn weigh(&mut self, program: ProgramId, ppm: u32) {
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if p.is_between_steps() {
            p.weight_ppm = ppm.min(crate::programs::program::FULL_WEIGHT_PPM);
            self.recharge(program);
        }
    }
}
