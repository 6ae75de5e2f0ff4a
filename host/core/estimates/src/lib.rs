//! What is learnt from programs and engines, and predicted from it: lengths of prompts and answers,
//! times of tool calls, speeds of engines and of transfers, growth of contexts.
//!
//! Nothing here knows programs, steps or workers: [`Estimates`] takes samples, and gives numbers.
//! Speeds of an engine that is there are in its [`EngineSpeeds`].

mod classes;
mod distribution;
mod domains;
mod engine;
mod growth;
mod habits;
mod pace;
mod speed;
mod tokens;
mod tools;

pub use classes::{CLASSES_MAX, EngineClass, EngineClasses};
pub use distribution::{Distribution, RemainingTime, Rest};
pub use domains::{
    ClassSpeed, DomainProfile, Exchange, ExchangeSide, FinishedMember, JobProfile,
    PROFILED_DOMAINS_MAX, PROFILED_JOBS_MAX, PROFILED_LEAST, Profiles,
};
pub use engine::{Engine, EngineSpeeds, RanStep};
pub use growth::{Forecast, Growing, WorkerGrowth};
pub use habits::{FinishedStep, Habits, JOBS_MAX, JobHabits, JobStatistics};
pub use pace::DecodeTime;
pub use tokens::{CountedPrompt, TextSize, TokenModels};
pub use tools::{TOOL_JOBS_MAX, TOOLS_MAX, ToolStatistics, Tools};

use classes::lower_median;
use habits::GROWTH_PPM;
use pace::DecodePace;
use serde::{Deserialize, Serialize};
use speed::TransferSpeeds;
use treadle_model::{Span, Timestamp};

/// A time longer than any other.
pub const NEVER: Span = Span(u64::MAX);

/// Number of waits in their moving average.
const WAITS_AVERAGED: u64 = 64;

/// Everything learnt that outlives a program and an engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimates {
    /// Statistics of jobs' steps.
    jobs: JobHabits,
    /// Statistics of jobs' tools.
    tools: Tools,
    /// Token costs of models' prompts.
    #[serde(skip_serializing_if = "TokenModels::is_empty")]
    tokens: TokenModels,
    /// The last data of engines that have left.
    #[serde(skip_serializing_if = "EngineClasses::is_empty")]
    classes: EngineClasses,
    /// What members of training runs need, by job and domain.
    #[serde(skip_serializing_if = "Profiles::is_empty")]
    profiles: Profiles,
    /// The speeds of cache transfers.
    #[serde(skip_serializing_if = "TransferSpeeds::is_unused")]
    transfers: TransferSpeeds,
    /// Median of the measured prefill speeds, in prompt tokens per second; 0 before the first.
    prefill_tokens_per_s: u64,
    /// Recent mean wait of programs for placement.
    wait_mean: Span,
}

/// What was learnt.
impl Estimates {
    /// Statistics of jobs' steps.
    pub fn jobs(&self) -> &JobHabits {
        &self.jobs
    }

    /// Statistics of jobs' tools.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Token costs of models' prompts.
    pub fn tokens(&self) -> &TokenModels {
        &self.tokens
    }

    /// The last data of engines that have left.
    pub fn classes(&self) -> &EngineClasses {
        &self.classes
    }

    /// What members of training runs need, by job and domain.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Median of the measured prefill speeds, in prompt tokens per second; 0 before the first.
    pub fn prefill_tokens_per_s(&self) -> u64 {
        self.prefill_tokens_per_s
    }

    /// Recent mean wait of programs for placement.
    pub fn wait_mean(&self) -> Span {
        self.wait_mean
    }
}

/// Samples.
impl Estimates {
    /// Records that a program of the job began.
    pub fn program_opened(&mut self, job: &str) {
        let dropped = self.jobs.program_opened(job);
        self.forget_tools(dropped);
    }

    /// Records that a program of the job is over.
    pub fn program_closed(&mut self, job: &str, now: Timestamp) {
        let dropped = self.jobs.program_closed(job, now);
        self.forget_tools(dropped);
    }

    /// Tool statistics are dropped together with the other statistics of a job.
    fn forget_tools(&mut self, job: Option<Box<str>>) {
        if let Some(job) = job {
            self.tools.remove(&job);
        }
    }

    /// Recounts live programs by job, as snapshots of older versions don't store the counts.
    pub fn recount<'p>(&mut self, live: impl Iterator<Item = &'p str>) {
        self.jobs.recount(live);
    }

    /// Records a call of a tool that took `time`.
    pub fn call_ended(&mut self, job: &str, tool: &str, time: Span, ok: bool) {
        tools::learn(&mut self.tools, job, tool, time, ok);
    }

    /// Records the time from one step's end to the arrival of the program's next one.
    pub fn acted(&mut self, job: &str, took: Span) {
        self.jobs.acted(job, took);
    }

    /// Records a finished step.
    pub fn step_finished(&mut self, job: &str, step: &FinishedStep) {
        self.jobs.step_finished(job, step);
    }

    /// Records that a member of a group of this domain came to its end. Returns whether the choice
    /// of the job's classes is to be renewed.
    pub fn member_finished(&mut self, job: &str, domain: &str, member: FinishedMember) -> bool {
        self.profiles.add(job, domain, member);
        self.profiles.get(job).is_some_and(JobProfile::is_due)
    }

    /// Renews the choice of a job's classes.
    pub fn choose_classes(&mut self, job: &str, speeds: &[ClassSpeed]) {
        if let Some(profile) = self.profiles.of(job) {
            profile.renew(speeds);
        }
    }

    /// The class that was chosen for a domain. From now on classes are chosen for the job.
    pub fn chosen_class(&mut self, job: &str, domain: &str) -> Option<Box<str>> {
        let profile = self.profiles.of(job)?;
        profile.chooses = true;
        profile.in_force.get(domain).cloned()
    }

    /// Forgets what members of a job need: the job is removed.
    pub fn forget_profile(&mut self, job: &str) {
        self.profiles.remove(job);
    }

    /// Records that an engine counted `tokens` in a prompt of this size.
    pub fn prompt_counted(&mut self, model: &str, size: TextSize, tokens: u64) {
        self.tokens.learn(model, size, tokens);
    }

    /// Records how long a program waited for placement.
    pub fn waited(&mut self, waited: Span) {
        let (mean, waited) = (self.wait_mean.micros(), waited.micros());
        self.wait_mean = Span(mean - mean / WAITS_AVERAGED + waited / WAITS_AVERAGED);
    }

    /// Records a load of a cache from host memory.
    pub fn loaded(&mut self, now: Timestamp, tokens: u64, took: Span) {
        self.transfers.loads.see(now, tokens, took);
    }

    /// Records a move of a cache between two engines.
    pub fn moved(&mut self, now: Timestamp, tokens: u64, took: Span) {
        self.transfers.moves.see(now, tokens, took);
    }

    /// Records a prompt whose cache an engine fetched from the one that had computed it.
    pub fn handed_over(&mut self, now: Timestamp, tokens: u64, took: Span) {
        self.transfers.handovers.see(now, tokens, took);
    }

    /// Remembers the speeds of an engine that leaves, for its class.
    pub fn engine_left(&mut self, engine: &Engine<'_>, now: Timestamp) {
        self.classes.see(engine, now);
    }

    /// Updates the median of the prefill speeds after an engine's speed has changed.
    pub fn compare_speeds<'e>(&mut self, engines: impl Iterator<Item = &'e EngineSpeeds>) {
        let known = engines.filter_map(EngineSpeeds::prefill_tokens_per_s);
        if let Some(median) = lower_median(known.collect()) {
            self.prefill_tokens_per_s = median;
        }
    }
}

/// Predictions.
impl Estimates {
    /// Growth of the contexts of a job's programs per generated token, in millionths.
    pub fn growth_ppm(&self, job: &str) -> u64 {
        let job = self.jobs.get(job);
        job.map_or(GROWTH_PPM, JobStatistics::growth_ppm)
    }

    /// The remaining time of a tool's call that began `elapsed` ago, or that begins after `wait`;
    /// `None` if too little is known of the tool.
    pub fn rest_of_call(
        &self,
        job: &str,
        tool: &str,
        elapsed: Span,
        wait: Span,
    ) -> Option<RemainingTime> {
        let known = self.tools.get(job)?.get(tool)?;
        RemainingTime::of(&known.times, elapsed, wait)
    }

    /// The remaining time until a program's next step, of whose tools too little is known: by the
    /// times of its job.
    pub fn rest_of_gap(&self, job: &str, elapsed: Span, wait: Span) -> RemainingTime {
        let job = self.jobs.get(job);
        job.and_then(|job| RemainingTime::of(&job.gaps, elapsed, wait))
            .unwrap_or_else(|| RemainingTime::unknown(elapsed).after(wait))
    }

    /// Time to load this many tokens from host memory; `assumed` is the speed before the first
    /// loads.
    pub fn load_time(&self, now: Timestamp, tokens: u64, assumed: u64) -> Span {
        let seen = self.transfers.loads.tokens_per_s(now);
        time_for(tokens, seen.unwrap_or(assumed))
    }

    /// Time to move this many tokens between two engines; `assumed` is the speed before the first
    /// moves.
    pub fn move_time(&self, now: Timestamp, tokens: u64, assumed: u64) -> Span {
        let seen = self.transfers.moves.tokens_per_s(now);
        time_for(tokens, seen.unwrap_or(assumed))
    }

    /// Time for an engine to fetch this many tokens from the one that has computed them; 0 before
    /// the first, so that it is tried.
    pub fn handover_time(&self, now: Timestamp, tokens: u64) -> Span {
        let seen = self.transfers.handovers.tokens_per_s(now);
        seen.map_or(Span(0), |speed| time_for(tokens, speed))
    }

    /// Prompt tokens that engines compute per second; `assumed` before any was measured.
    pub fn prefill_speed(&self, assumed: u64) -> u64 {
        match self.prefill_tokens_per_s {
            0 => assumed,
            measured => measured,
        }
    }

    /// An engine's time per token: its own, otherwise that of `others` of its class, otherwise that
    /// of the last ones that left.
    pub fn decode_time_of<'e>(
        &self,
        engine: &Engine<'_>,
        others: impl Iterator<Item = Engine<'e>>,
    ) -> Option<DecodeTime> {
        engine.speeds.decode_time().or_else(|| {
            let mut all = DecodePace::default();
            for other in others.filter(|other| other.is_like(engine)) {
                all.add(other.speeds.pace());
            }
            let gone = || self.classes.of(engine).map(|class| class.time);
            all.time().or_else(gone)
        })
    }

    /// Prompt tokens that an engine computes per second, chosen in the same order; of others the
    /// median.
    pub fn prefill_speed_of<'e>(
        &self,
        engine: &Engine<'_>,
        others: impl Iterator<Item = Engine<'e>>,
    ) -> Option<u64> {
        engine.speeds.prefill_tokens_per_s().or_else(|| {
            let others = others.filter(|other| other.is_like(engine));
            let known = others.filter_map(|other| other.speeds.prefill_tokens_per_s());
            let gone = || self.classes.of(engine)?.prefill_tokens_per_s;
            lower_median(known.collect()).or_else(gone)
        })
    }
}

/// Time for this many tokens; [`NEVER`] if the speed is 0.
pub fn time_for(tokens: u64, tokens_per_s: u64) -> Span {
    if tokens_per_s == 0 {
        return NEVER;
    }
    let micros = u128::from(tokens) * 1_000_000 / u128::from(tokens_per_s);
    Span(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Time to compute this many prompt tokens; 0 if the speed is unknown.
pub fn prefill_time(tokens: u64, tokens_per_s: u64) -> Span {
    match tokens_per_s {
        0 => Span(0),
        speed => time_for(tokens, speed),
    }
}
