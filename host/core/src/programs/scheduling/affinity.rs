//! Affinity of programs to classes of hardware (`RollArt` §5.2): members of a group prefer the class
//! of its domain, fall back to others rather than wait, and return when that pays.

use crate::Programs;
use crate::estimates::{ClassSpeed, FinishedMember};
use crate::programs::State;
use crate::programs::program::Program;
use crate::programs::worker::Worker;
use std::collections::BTreeMap;
use treadle_machine::Preference;
use treadle_model::{ProgramId, WorkerId};

impl Program {
    /// Whether it prefers a class, and the worker is of that.
    pub fn is_of_class(&self, worker: &Worker) -> bool {
        self.class.is_some() && self.class == worker.class
    }

    /// Whether it would leave its preferred class by going from one worker to another.
    pub(crate) fn would_leave_class(&self, from: &Worker, to: &Worker) -> bool {
        self.is_of_class(from) && !self.is_of_class(to)
    }
}

impl Programs {
    /// Records the domain of a live program and the class that it prefers.
    pub(crate) fn member_opened(&mut self, key: &str, domain: &str, prefers: &Preference) {
        let Some(program) = self.state.keys.get(key).copied() else {
            return;
        };
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        let class = match prefers {
            Preference::Any => None,
            Preference::Class(class) => Some(class.clone()),
            Preference::Auto => self.state.estimates.chosen_class(&p.job, domain),
        };
        p.domain = Some(domain.into());
        p.class = class;
    }

    /// A program that another one started prefers the same class, unless it has a domain of its own.
    pub(crate) fn inherit_class(&mut self, program: ProgramId, parent: Option<ProgramId>) {
        let live = &mut self.state.live;
        let class = parent.and_then(|parent| live.get(&parent)?.class.clone());
        let own = live.get_mut(&program).filter(|p| p.domain.is_none());
        if let (Some(p), Some(class)) = (own, class) {
            p.class = Some(class);
        }
    }

    /// Adds a member that came to its end to the profile of its domain.
    pub(crate) fn learn_of_member(&mut self, p: &Program) {
        let Some(domain) = p.domain.as_deref().filter(|_| p.has_ended()) else {
            return;
        };
        // Without reports of caches, each token counts as computed once.
        let computed = if p.was_told_cached {
            p.prompt_tokens_total.saturating_sub(p.cached_tokens_total)
        } else {
            p.context_tokens.saturating_sub(p.output_tokens_total)
        };
        let member = FinishedMember {
            turns: p.steps_finished.into(),
            prefill_tokens: computed,
            output_tokens: p.output_tokens_total,
        };
        let estimates = &mut self.state.estimates;
        if estimates.member_finished(&p.job, domain, member) {
            let speeds = self.state.class_speeds();
            self.state.estimates.choose_classes(&p.job, &speeds);
        }
    }

    /// Whether a worker of the class that a program prefers qualifies.
    pub(super) fn has_class_with(&self, p: &Program, is_fit: impl Fn(&&Worker) -> bool) -> bool {
        let workers = self.state.workers.values();
        p.class.is_some() && workers.filter(|w| p.is_of_class(w)).any(|w| is_fit(&w))
    }

    /// Whether a program would leave its preferred class.
    pub(super) fn leaves_class(&self, program: ProgramId, from: WorkerId, to: WorkerId) -> bool {
        let workers = &self.state.workers;
        let known = self.state.live.get(&program);
        let ends = workers.get(&from).zip(workers.get(&to));
        known
            .zip(ends)
            .is_some_and(|(p, (from, to))| p.would_leave_class(from, to))
    }

    /// How much less time the prompts take that come with `rest` more generated tokens, at the
    /// second of two workers, in nanoseconds.
    pub(super) fn gained_by_prompts_ns(&self, p: &Program, rest: u64, ends: [&Worker; 2]) -> u128 {
        let grows = self
            .state
            .estimates
            .growth_ppm(&p.job)
            .saturating_sub(1_000_000);
        let prompts = u128::from(rest) * u128::from(grows) / 1_000_000;
        let prompts = u64::try_from(prompts).unwrap_or(u64::MAX);
        let [here, there] = ends.map(|w| self.prefill_time_at(w, prompts).micros());
        u128::from(here.saturating_sub(there)) * 1_000
    }
}

impl State {
    /// The speeds of classes of hardware, as far as they are learnt: means of their workers, beside
    /// as many steps as workers with a class run on average.
    pub fn class_speeds(&self) -> Vec<ClassSpeed> {
        let mut workers: BTreeMap<&str, Vec<&Worker>> = BTreeMap::new();
        for w in self.workers.values().filter(|w| !w.leaving) {
            if let Some(class) = w.class.as_deref() {
                workers.entry(class).or_default().push(w);
            }
        }
        let all = || workers.values().flatten();
        let running: u64 = all().map(|w| u64::from(w.running_steps)).sum();
        let steps = running.div_ceil((all().count() as u64).max(1)).max(1);
        let has_sizes = all().all(|w| w.capacity.tokens.is_some());
        let speed_of = |(class, own): (&&str, &Vec<&Worker>)| {
            let prefill = own.iter().filter_map(|w| self.prefill_speed_of(w));
            let prefill = mean(prefill.map(|speed| 1_000_000_000 / speed.max(1)))?;
            let decode = own.iter().filter_map(|w| self.decode_time_of(w));
            let decode = mean(decode.map(|time| time.with_steps(steps)))?;
            let size = own.iter().filter_map(|w| w.capacity.tokens);
            Some(ClassSpeed {
                class: (*class).into(),
                size: if has_sizes {
                    size.fold(0, u64::saturating_add)
                } else {
                    own.len() as u64
                },
                prefill_ns: prefill,
                token_ns: decode,
            })
        };
        workers.iter().filter_map(speed_of).collect()
    }
}

fn mean(values: impl Iterator<Item = u64>) -> Option<u64> {
    let (count, sum) = values.fold((0_u64, 0_u64), |(count, sum), value| {
        (count + 1, sum.saturating_add(value))
    });
    (count > 0).then(|| sum / count)
}
