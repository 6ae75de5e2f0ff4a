//! The desk: policies as the driver asks them, in place, with a built-in default
//! behind every answer that a sandboxed policy fails to give.
//!
//! A question is shared out among those whose bindings hold for its programs
//! ([`panel`]), each judges its rows ([`inquiry`]), and their answers are put
//! together ([`merge`]). Everything that changes a binding is in [`change`].

mod bindings;
mod change;
mod inquiry;
mod merge;
mod outlook;
mod panel;
mod rollouts;
mod rows;
mod seat;
mod shadow;
mod statistics;
#[cfg(test)]
mod tests;
mod trial;
mod verdict;
mod wishes;

pub use bindings::{EVERYONE, Scope};
pub use change::{
    BindingView, CanaryView, Change, ChangeError, Changed, KeptState, Notice, NoticeKind, Role,
};
pub use outlook::OUTLOOK_COLUMNS;
pub use rows::Forecast;
pub use seat::BoundPolicy;
pub use shadow::{Comparison, ShadowReport};
pub use statistics::{LATENCY_BOUNDS_US, PolicyStatistics, VersionEntry, VersionStatistics};
pub use trial::{Spread, Trial, TrialLimits};

use crate::columns::{self, Programs, Workers};
use bindings::Bindings;
use inquiry::{Inquiry, Native, is_of_rollouts};
use merge::Share;
use outlook::Outlook;
use panel::{Judge, Panel};
use rows::{Rows, only};
use seat::Seat;
use shadow::Shadows;
use statistics::Versions;
use std::collections::HashMap;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;
use treadle_core::{Core, ProgramColumns, Purpose, Question, Verdict, Voices};
use treadle_model::{PolicyRef, ProgramId, World};
use treadle_policy_runtime::{BreakerLimits, PolicyFault, PolicyInstance};
use verdict::put_together;

/// When a policy is given up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeskLimits {
    /// For its faults.
    pub breaker: BreakerLimits,
    /// For its regret, while it is a canary.
    pub trial: TrialLimits,
    /// Lets a policy that failed be started anew by the next question, instead of
    /// by another thread at some time: for runs that are repeated.
    pub restarts_in_place: bool,
}

/// An answer to a question of the core.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Who answered.
    pub policy: PolicyRef,
    /// What.
    pub verdict: Verdict,
    /// Who else had a say.
    pub voices: Voices,
}

/// The bindings of the worlds that are asked in place, and what became of the
/// questions.
pub struct PolicyDesk {
    bindings: Bindings,
    native: Native,
    limits: DeskLimits,
    statistics: PolicyStatistics,
    versions: Versions,
    shadows: Shadows,
    forecasts: HashMap<ProgramId, Forecast>,
    notices: Option<UnboundedSender<Notice>>,
}

impl PolicyDesk {
    /// A desk at which only the built-in defaults sit.
    pub fn new(limits: DeskLimits) -> Self {
        Self {
            bindings: Bindings::default(),
            native: Native::default(),
            limits,
            statistics: PolicyStatistics::default(),
            versions: Versions::default(),
            shadows: Shadows::start(),
            forecasts: HashMap::new(),
            notices: None,
        }
    }

    /// Where the desk tells of bindings that it changed by itself.
    pub fn tell(&mut self, notices: UnboundedSender<Notice>) {
        self.notices = Some(notices);
    }

    /// What happened so far, all policies together.
    pub fn statistics(&self) -> &PolicyStatistics {
        &self.statistics
    }

    /// What happened so far, version by version.
    pub fn versions(&self) -> impl Iterator<Item = VersionEntry<'_>> {
        self.versions.iter()
    }

    /// Learns what is expected of a program.
    pub fn expect(&mut self, program: ProgramId, forecast: Forecast) {
        self.forecasts.insert(program, forecast);
    }

    /// Forgets a program that is over.
    pub fn forget(&mut self, program: ProgramId) {
        self.forecasts.remove(&program);
    }

    /// Answers a question at `now_ms` of the scheduler's clock.
    pub fn answer(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answer {
        let started = Instant::now();
        let programs = &question.programs;
        let answer = match question.purpose {
            Purpose::Migrate => self.migrate(core, programs, now_ms),
            Purpose::Preempt { worker } => self.preempt(core, worker, programs, now_ms),
            _ => self.rank(core, question, now_ms),
        };
        let took_us = started.elapsed().as_micros() as u64;
        self.statistics.asked_us += took_us;
        self.statistics.slowest_us = self.statistics.slowest_us.max(took_us);
        answer
    }

    /// Scores, and where placement policies are asked too, their wishes.
    fn rank(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answer {
        let programs = &question.programs;
        let panel = Panel::of(&self.bindings, core, question.purpose, &programs.program);
        let (policies, scores) = self.judge_all(core, question, &panel, now_ms);
        let mut answer = put_together(question, &panel, policies, &scores);
        if matches!(question.purpose, Purpose::Assign | Purpose::Route { .. }) {
            self.add_forecasts(&mut answer);
        }
        match question.purpose {
            Purpose::Restore | Purpose::Assign => {
                self.add_wishes(core, &mut answer, programs, now_ms);
            }
            Purpose::Route { .. } => self.add_route(core, &mut answer, programs, now_ms),
            _ => {}
        }
        answer
    }

    /// The judges' names in the panel's order, and one score per row.
    fn judge_all(
        &mut self,
        core: &Core,
        question: &Question,
        panel: &Panel,
        now_ms: u64,
    ) -> (Vec<PolicyRef>, Vec<f64>) {
        let (purpose, rows) = (question.purpose, &question.programs);
        if let [judge] = panel.judges.as_slice() {
            let inquiry = self.inquiry(core, judge, purpose, rows);
            let (policy, scores) = self.judge(judge, inquiry, now_ms);
            return (vec![policy], scores);
        }
        let (mut policies, mut shares) = (Vec::new(), Vec::new());
        for (index, judge) in panel.judges.iter().enumerate() {
            let of_judge = panel.rows_of(index, rows.len());
            let inquiry = self.inquiry(core, judge, purpose, &only(rows, &of_judge));
            let (policy, scores) = self.judge(judge, inquiry, now_ms);
            policies.push(policy);
            shares.push(Share {
                rows: of_judge,
                scores,
            });
        }
        // Weights are shares of memory and mean the same whoever gives them; the
        // priority of a step is compared with those of other questions.
        let merged = match purpose {
            Purpose::Pause { .. } | Purpose::Restore => {
                merge::by_relative_rank(rows.len(), &shares)
            }
            _ => merge::by_row(rows.len(), &shares),
        };
        (policies, merged)
    }

    fn inquiry(
        &mut self,
        core: &Core,
        judge: &Judge,
        purpose: Purpose,
        programs: &ProgramColumns,
    ) -> Inquiry {
        let facts = match judge.world {
            World::Priority => self.facts(core, programs, &Workers::default()),
            _ => Programs::default(),
        };
        let named = self.named_by(judge);
        let binding = self.bindings.world_mut(judge.world).get_mut(&judge.scope);
        let is_shown = !named.is_empty() || binding.is_some_and(|b| b.has_shadow);
        let is_retention = matches!(purpose, Purpose::Retain { .. });
        let needs_outlook = judge.world == World::Eviction && (is_shown || is_retention);
        let predicted = |program| self.forecast(program).map(|known| known.remaining_tokens);
        Inquiry {
            world: judge.world,
            purpose,
            rows: Rows::of(programs),
            facts,
            outlook: needs_outlook.then(|| Outlook::of(programs, predicted)),
            named,
        }
    }

    /// False if the policy in a judge's seat is of the world that has no say in what
    /// becomes of caches: leaving that to the default is none of its decisions.
    fn retains(&mut self, judge: &Judge) -> bool {
        let binding = self.bindings.world_mut(judge.world).get_mut(&judge.scope);
        let seat = binding.and_then(|binding| binding.seat_mut(judge.canary));
        let instance = seat.and_then(Seat::instance);
        let eviction = instance.and_then(PolicyInstance::as_eviction_mut);
        eviction.is_none_or(|eviction| eviction.retains())
    }

    /// Which extra columns the policy in a judge's seat is given.
    fn named_by(&mut self, judge: &Judge) -> Vec<usize> {
        let binding = self.bindings.world_mut(judge.world).get_mut(&judge.scope);
        let seat = binding.and_then(|binding| binding.seat_mut(judge.canary));
        seat.map_or_else(Vec::new, |seat| seat.extra.clone())
    }

    fn facts(&self, core: &Core, programs: &ProgramColumns, workers: &Workers) -> Programs {
        Programs::of(core, programs, workers, |program| self.forecast(program))
    }

    fn forecast(&self, program: ProgramId) -> Option<columns::Forecast> {
        let known = self.forecasts.get(&program);
        known.map(|forecast| forecast.in_columns())
    }

    /// One judge's name and scores, or those of the built-in default in its stead.
    fn judge(&mut self, judge: &Judge, inquiry: Inquiry, now_ms: u64) -> (PolicyRef, Vec<f64>) {
        let asked = if inquiry.is_retention() && !self.retains(judge) {
            None
        } else {
            self.ask_seat(judge, now_ms, inquiry.rows.len(), |instance| {
                inquiry.put_to(instance, &inquiry.named, now_ms, None)
            })
        };
        let (policy, scores) = asked.unwrap_or_else(|| {
            (
                native_judge(judge.world, inquiry.purpose),
                inquiry.put_to_native(&mut self.native),
            )
        });
        let world = self.bindings.world_mut(judge.world);
        let has_shadow = world.get_mut(&judge.scope).is_some_and(|b| b.has_shadow);
        if has_shadow && !judge.canary {
            self.shadows
                .show(judge.world, judge.scope.clone(), inquiry, &scores, now_ms);
        }
        (policy, scores)
    }

    /// Asks the policy that is bound for a job. Nothing if the built-in default
    /// has to answer.
    pub fn ask_bound<T>(
        &mut self,
        world: World,
        job: &str,
        rows: usize,
        now_ms: u64,
        ask: impl FnOnce(&mut PolicyInstance) -> Result<T, PolicyFault>,
    ) -> Option<(PolicyRef, T)> {
        let (scope, _) = self.bindings.world(world).of_job(job);
        let judge = Judge {
            world,
            scope,
            canary: false,
        };
        self.ask_seat(&judge, now_ms, rows, ask)
    }

    /// Which extra columns the policy is given that is bound for a job.
    pub fn extra_of(&mut self, world: World, job: &str) -> Vec<usize> {
        let (scope, _) = self.bindings.world(world).of_job(job);
        self.named_by(&Judge {
            world,
            scope,
            canary: false,
        })
    }

    /// Asks the policy in a judge's seat. Nothing if nobody sits there, it may
    /// not be asked now, or it gave no answer; all of it is counted.
    fn ask_seat<T>(
        &mut self,
        judge: &Judge,
        now_ms: u64,
        rows: usize,
        ask: impl FnOnce(&mut PolicyInstance) -> Result<T, PolicyFault>,
    ) -> Option<(PolicyRef, T)> {
        let binding = self.bindings.world_mut(judge.world).get_mut(&judge.scope)?;
        let seat = binding.seat_mut(judge.canary)?;
        let policy = seat.policy.clone();
        let tenant = judge.scope.tenant_prefix();
        let version = self.versions.of(judge.world, &policy, tenant);
        let Some(instance) = seat.askable(now_ms) else {
            version.fallbacks += 1;
            self.statistics.fallbacks += 1;
            return None;
        };
        let started = Instant::now();
        let answer = ask(instance);
        version.record_call(rows, started.elapsed());
        version.memory_bytes = instance.memory_bytes();
        version.restarts = instance.restarts();
        if !self.limits.restarts_in_place {
            seat.look_after(&self.shadows);
        }
        let fault = match answer {
            Ok(answer) => {
                seat.record_success(now_ms);
                self.statistics.answered += 1;
                return Some((policy, answer));
            }
            Err(fault) => fault,
        };
        version.fallbacks += 1;
        self.statistics.fallbacks += 1;
        if !fault.is_policys_fault() {
            version.not_supported += 1;
            return None;
        }
        version.record_fault(&fault);
        let must_go = seat.record_fault(now_ms);
        self.statistics.faults += 1;
        self.statistics.latest_fault = Some(fault.to_string());
        tracing::warn!(%policy, %fault, "the policy failed; the built-in default answers");
        if must_go {
            self.give_up(judge, &format!("repeated faults, the latest: {fault}"));
        }
        None
    }
}

impl Default for PolicyDesk {
    fn default() -> Self {
        Self::new(DeskLimits::default())
    }
}

/// The name of a world's built-in default.
pub fn native_policy(world: World) -> PolicyRef {
    let name = match world {
        World::Eviction => "thunderagent-eviction",
        World::Prediction => "default-prediction",
        World::Priority => "default-priority",
        // Without a wish the core chooses by cache and room.
        World::Placement => "core-placement",
        World::Allocation => "default-allocation",
        World::Reward => "default-reward",
    };
    PolicyRef(format!("{name}@{}+native", env!("CARGO_PKG_VERSION")))
}

/// Who stands in for a judge.
fn native_judge(world: World, purpose: Purpose) -> PolicyRef {
    if is_of_rollouts(purpose) && world == World::Priority {
        return PolicyRef(format!(
            "equal-priority@{}+native",
            env!("CARGO_PKG_VERSION")
        ));
    }
    native_policy(world)
}
