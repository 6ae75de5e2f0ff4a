//! Replays one workload under one set of policies.

use super::divergence::{Choice, Choices};
use super::statistics::{jain_index, percentiles_s};
use super::workload::Workload;
use serde::Serialize;
use treadle_core::programs::Decision;
use treadle_core::{CoreConfig, Event};
use treadle_engine_model::engine::EngineProfile;
use treadle_policy::native::NativeEviction;
use treadle_simulator::cluster::{
    Answers, ClusterOptions, Environment, Report, StepSeen, TransferOptions, Watch, simulate_within,
};
use utoipa::ToSchema;

/// A replay is cancelled after this many times the time of a sequential run, plus [`TIMEOUT_US`].
const TIMEOUT_FACTOR: u64 = 4;
/// Constant part of the timeout, see [`TIMEOUT_FACTOR`]: an hour of virtual time.
const TIMEOUT_US: u64 = 3_600_000_000;
/// Output tokens between two progress reports of an engine, as in the gateway.
const PROGRESS_TOKENS: u32 = 64;

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The scheduler's settings.
    pub core: CoreConfig,
    /// The engines' profile.
    pub profile: EngineProfile,
    /// KV memory of each engine, in tokens; its length is the number of engines.
    pub kv_tokens: Vec<u64>,
    /// Additional time to send a step to its engine, in microseconds.
    pub request_overhead_us: u64,
    /// Maximum number of decisions stored for comparison; 0 stores none and is faster.
    pub decisions_max: usize,
}

/// The outcome of one job's programs.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfJob)]
pub struct JobOutcome {
    /// The job.
    pub job: Box<str>,
    /// Number of its programs that ended.
    pub programs: u64,
    /// Mean time of a program, divided by its time without other programs.
    pub slowdown: f64,
}

/// The outcome of a workload under one set of policies. Times are virtual, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfOutcome)]
pub struct Outcome {
    /// Number of answered steps.
    pub steps: u64,
    /// Number of steps without an answer.
    pub refused: u64,
    /// Number of programs that ended.
    pub programs: u64,
    /// False if the replay was cancelled at its timeout.
    pub whole: bool,
    /// Time from sending the first step to the last answer.
    pub makespan_s: f64,
    /// Answered steps per minute.
    pub steps_per_min: f64,
    /// Median time from sending a step to its answer.
    pub step_p50_s: f64,
    /// 95th percentile of that time.
    pub step_p95_s: f64,
    /// 99th percentile of that time.
    pub step_p99_s: f64,
    /// Share of prompt tokens found in caches.
    pub hit_rate: f64,
    /// Jain's index of the programs' slowdowns.
    pub fairness: f64,
    /// Jain's index of the jobs' mean slowdowns.
    pub job_fairness: f64,
    /// Number of pauses.
    pub pauses: u64,
    /// Number of paused programs restored on another engine.
    pub moves: u64,
    /// Number of requests that engines preempted.
    pub preemptions: u64,
    /// Number of caches offloaded to host memory.
    pub offloads: u64,
    /// Number of caches moved to another engine.
    pub migrations: u64,
    /// The outcome of each job.
    pub jobs: Vec<JobOutcome>,
    /// Statistics of the calls to the set's policies, if it has any.
    #[serde(skip_serializing_if = "PolicyRecord::is_empty")]
    pub policies: PolicyRecord,
    /// The decisions, until they are compared.
    #[serde(skip)]
    pub choices: Choices,
}

/// Statistics of the calls to a set's policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WhatIfQuestions)]
pub struct PolicyRecord {
    /// Calls that the policies answered.
    pub answered: u64,
    /// Calls that a built-in default answered instead.
    pub fallbacks: u64,
    /// Of the fallbacks, those caused by a fault.
    pub faults: u64,
    /// Times that a policy was rolled back because of faults; the built-in default decided from
    /// then on.
    pub given_up: u64,
    /// Fuel of all calls in wasmtime's units, about one per instruction.
    pub fuel: u64,
    /// The latest fault, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_fault: Option<String>,
}

impl PolicyRecord {
    /// Whether no policy was called.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The sum of two records.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.answered += other.answered;
        self.fallbacks += other.fallbacks;
        self.faults += other.faults;
        self.given_up += other.given_up;
        self.fuel += other.fuel;
        self.latest_fault = self.latest_fault.or_else(|| other.latest_fault.clone());
        self
    }
}

/// Replays a workload. `goes_on` is called regularly, by the number of events rather than by
/// virtual time, with the number of answered steps. If it returns `false`, the replay ends without
/// an outcome.
pub fn replay(
    workload: &Workload,
    options: &ReplayOptions,
    answers: &mut dyn Answers,
    goes_on: &mut dyn FnMut(u64) -> bool,
) -> Option<Outcome> {
    let mut profile = options.profile.clone();
    profile.stream_interval_tokens = if workload.whole_answers {
        u32::MAX
    } else {
        PROGRESS_TOKENS
    };
    let ideal_us = ideal_times_us(workload, &profile);
    let cluster = ClusterOptions {
        core: CoreConfig {
            explain: options.decisions_max > 0,
            ..options.core.clone()
        },
        policy: NativeEviction::default(),
        engines: options.kv_tokens.len() as u32,
        profile,
        transfers: TransferOptions::default(),
        reports_prefixes: true,
        concurrency: 0,
        stop_at_us: Some(timeout_us(workload, &ideal_us)),
        count_from_us: 0,
        seed: 1,
        audit: false,
    };
    let workers = workload.workers.iter();
    let classes: Vec<_> = workers.map(|worker| worker.class.clone()).collect();
    let environment = Environment {
        schedule: Some(&workload.schedule),
        kv_tokens: &options.kv_tokens,
        classes: &classes,
        preferences: Some(&workload.preferences),
        output_limits: &workload.output_limits,
        actions: &workload.actions,
        // The recorded time of a tool includes its wait for a core.
        tool_cores: None,
        ranks: None,
        reports_groups: false,
        request_overhead_us: options.request_overhead_us + cluster.profile.request_overhead_us,
        whole_answers: workload.whole_answers,
    };
    let mut eyes = Eyes {
        goes_on,
        stopped: false,
        events: 0,
        began_us: vec![None; workload.runs.len()],
        ended_us: vec![None; workload.runs.len()],
        latencies_us: Vec::new(),
        last_answer_us: 0,
        choices: Choices::new(options.decisions_max),
    };
    let report = simulate_within(&workload.runs, &cluster, answers, environment, &mut eyes);
    (!eyes.stopped).then(|| eyes.outcome(workload, &ideal_us, &report))
}

/// Time of each program if it runs without others.
fn ideal_times_us(workload: &Workload, profile: &EngineProfile) -> Vec<u64> {
    let of_run = |run: &treadle_simulator::workload::AgentRun| {
        let steps = run.steps.iter().map(|step| {
            let fresh = u64::from(step.fresh_tokens());
            let (output, context) = (step.output_tokens.into(), step.context_tokens().into());
            profile.request_overhead_us
                + profile.ideal_step_us(fresh, output, context, 1)
                + step.tool_us
        });
        steps.sum::<u64>().max(1)
    };
    workload.runs.iter().map(of_run).collect()
}

fn timeout_us(workload: &Workload, ideal_us: &[u64]) -> u64 {
    let gaps: u64 = workload.schedule.waves.iter().map(|wave| wave.gap_us).sum();
    let recorded_us = workload.recorded.map_or(0.0, |r| r.makespan_s * 1e6) as u64;
    let programs: u64 = ideal_us.iter().sum();
    TIMEOUT_FACTOR * (gaps + programs + recorded_us) + TIMEOUT_US
}

/// Observes what the cluster's report does not contain.
struct Eyes<'a> {
    goes_on: &'a mut dyn FnMut(u64) -> bool,
    stopped: bool,
    events: u64,
    began_us: Vec<Option<u64>>,
    ended_us: Vec<Option<u64>>,
    latencies_us: Vec<u64>,
    last_answer_us: u64,
    choices: Choices,
}

/// Number of observed events between two calls of `goes_on`.
const ASK_EVERY: u64 = 64;

impl Eyes<'_> {
    /// Counts an event, and calls `goes_on` at intervals.
    fn tick(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(ASK_EVERY) && !self.stopped {
            self.stopped = !(self.goes_on)(self.latencies_us.len() as u64);
        }
    }
}

impl Watch for Eyes<'_> {
    fn heard(&mut self, now_us: u64, event: &Event) {
        self.choices.at(now_us, event);
        self.tick();
    }

    fn decided(&mut self, decision: &Decision) {
        self.choices.add(decision);
    }

    fn finished(&mut self, step: &StepSeen) {
        self.began_us[step.run].get_or_insert(step.sent_us);
        self.latencies_us.push(step.ended_us - step.sent_us);
        self.last_answer_us = step.ended_us;
    }

    fn ended(&mut self, run: usize, now_us: u64) {
        self.ended_us[run] = Some(now_us);
    }

    fn goes_on(&mut self, _: u64) -> bool {
        self.tick();
        !self.stopped
    }
}

impl Eyes<'_> {
    fn outcome(mut self, workload: &Workload, ideal_us: &[u64], report: &Report) -> Outcome {
        let first_us = self.began_us.iter().flatten().min().copied();
        let span_us = self.last_answer_us - first_us.unwrap_or(0).min(self.last_answer_us);
        let makespan_s = span_us as f64 / 1e6;
        let steps = self.latencies_us.len() as u64;
        let [step_p50_s, step_p95_s, step_p99_s] = percentiles_s(&mut self.latencies_us);
        let slowdowns = self.slowdowns(ideal_us);
        let jobs = jobs_of(workload, &slowdowns);
        let of_programs: Vec<f64> = slowdowns.iter().flatten().copied().collect();
        let of_jobs: Vec<f64> = jobs.iter().map(|job| job.slowdown).collect();
        let programs = of_programs.len() as u64;
        Outcome {
            steps,
            refused: report.refused,
            programs,
            whole: self.ended_us.iter().all(Option::is_some),
            makespan_s,
            steps_per_min: steps as f64 / makespan_s.max(1e-9) * 60.0,
            step_p50_s,
            step_p95_s,
            step_p99_s,
            hit_rate: report.hit_rate,
            fairness: jain_index(&of_programs),
            job_fairness: jain_index(&of_jobs),
            pauses: report.pauses,
            moves: report.moves,
            preemptions: report.preemptions,
            offloads: report.offloads,
            migrations: report.migrations,
            jobs,
            policies: PolicyRecord::default(),
            choices: self.choices,
        }
    }

    /// For each program that ended: its time, divided by its time without others.
    fn slowdowns(&self, ideal_us: &[u64]) -> Vec<Option<f64>> {
        let times = self.began_us.iter().zip(&self.ended_us).zip(ideal_us);
        let slowdown = |((began, ended), ideal): ((&Option<u64>, &Option<u64>), &u64)| {
            Some((*ended)?.saturating_sub((*began)?) as f64 / *ideal as f64)
        };
        times.map(slowdown).collect()
    }
}

fn jobs_of(workload: &Workload, slowdowns: &[Option<f64>]) -> Vec<JobOutcome> {
    let mut sums = vec![(0_u64, 0.0); workload.schedule.jobs.len()];
    for (run, slowdown) in slowdowns.iter().enumerate() {
        let wave = workload.schedule.runs[run].wave;
        let (count, sum) = &mut sums[workload.schedule.waves[wave].job];
        if let Some(slowdown) = slowdown {
            *count += 1;
            *sum += slowdown;
        }
    }
    let names = workload.schedule.jobs.iter().map(|job| &**job);
    let jobs = names.zip(sums);
    let outcome = |(job, (programs, sum)): (&str, (u64, f64))| JobOutcome {
        job: job.into(),
        programs,
        slowdown: sum / programs.max(1) as f64,
    };
    jobs.map(outcome).collect()
}

/// A decision in the form that is compared.
impl From<&Decision> for Choice {
    fn from(decision: &Decision) -> Self {
        Self {
            at_s: decision.at.0 as f64 / 1e6,
            kind: decision.kind,
            worker: decision.worker.0,
            policy: decision.policy.0.as_str().into(),
            because: decision.because,
            need_tokens: decision.need_tokens,
            used_tokens: decision.used_tokens,
            capacity_tokens: decision.capacity_tokens,
            waited_s: decision.waited.micros() as f64 / 1e6,
            score: decision.score,
            alternatives: decision.alternatives.len(),
        }
    }
}
