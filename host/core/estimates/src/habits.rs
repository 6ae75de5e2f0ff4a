//! Habits of jobs: statistics learnt from their steps, by job name, for a limited number of jobs.

use super::distribution::Distribution;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::tenant::prefix_of;
use treadle_model::{Span, Timestamp};

/// Maximum number of jobs with statistics, including those without live programs. Beyond it the job
/// whose last program ended longest ago is dropped; jobs with live programs always stay.
pub const JOBS_MAX: usize = 4_096;

/// Statistics of a job's steps, learnt as they finish.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStatistics {
    /// Moving average of output tokens per step, times 16.
    pub output_tokens_x16: u64,
    /// Moving average of the growth of a program's context from one step's end to the next one's,
    /// in tokens, times 16.
    #[serde(default)]
    pub growth_tokens_x16: u64,
    /// Moving average of the time in tools per step, in microseconds.
    pub tool_us: u64,
    /// Steps finished.
    pub steps_finished: u64,
    /// Times from one step's end to the next one's arrival, in milliseconds.
    #[serde(default, skip_serializing_if = "Distribution::is_empty")]
    pub gaps: Distribution,
    /// Whether the last step's answer came in one piece, without reports before its end.
    #[serde(default)]
    pub whole_answers: bool,
    /// Live programs.
    #[serde(default)]
    pub programs: u64,
    /// When its last program ended, if none is live.
    #[serde(default)]
    pub idle_since: Timestamp,
}

/// What programs of a job do per generated token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habits {
    /// Growth of the context in tokens, including the generated one.
    pub growth: f64,
    /// Microseconds in tools.
    pub tool_us: f64,
}

/// Number of steps before a job's habits are known.
const HABIT_STEPS: u64 = 8;
/// Default growth of the context per generated token, in millionths.
pub(super) const GROWTH_PPM: u64 = 1_200_000;
/// Limit on that growth.
const GROWTH_PPM_MAX: u64 = 100_000_000;

impl JobStatistics {
    /// Growth of the context per generated token, that one included, in millionths.
    pub(super) fn growth_ppm(&self) -> u64 {
        if self.steps_finished < HABIT_STEPS || self.output_tokens_x16 == 0 {
            return GROWTH_PPM;
        }
        let ppm =
            u128::from(self.growth_tokens_x16) * 1_000_000 / u128::from(self.output_tokens_x16);
        let ppm = u64::try_from(ppm).unwrap_or(u64::MAX);
        ppm.clamp(1_000_000, GROWTH_PPM_MAX)
    }

    /// Its habits, once it has enough steps.
    pub fn habits(&self) -> Option<Habits> {
        let known = self.steps_finished >= HABIT_STEPS
            && self.output_tokens_x16 > 0
            && self.growth_tokens_x16 > 0;
        let tokens = self.output_tokens_x16 as f64;
        known.then(|| Habits {
            growth: self.growth_tokens_x16 as f64 / tokens,
            tool_us: self.tool_us as f64 * 16.0 / tokens,
        })
    }
}

/// A finished step.
#[derive(Clone, Copy, Debug)]
pub struct FinishedStep {
    /// Tokens that it generated.
    pub output_tokens: u64,
    /// Growth of its program's context since the step before, if there was one.
    pub grown_tokens: Option<u64>,
    /// Whether its answer came in one piece.
    pub whole_answer: bool,
}

/// The moving average with one more sample; the first sample itself.
fn averaged(known: u64, sample: u64) -> u64 {
    match known {
        0 => sample,
        known => known - known / 8 + sample / 8,
    }
}

/// Statistics by job name: of all jobs with live programs, and of the latest others.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "BTreeMap<Box<str>, JobStatistics>")]
pub struct JobHabits {
    known: BTreeMap<Box<str>, JobStatistics>,
    /// Jobs without live programs, by when their last one ended.
    idle: BTreeSet<(Timestamp, Box<str>)>,
    /// Live programs by the tenant's prefix; tenants without any are left out.
    live: BTreeMap<Box<str>, u64>,
}

impl JobHabits {
    /// The statistics of one job.
    pub fn get(&self, job: &str) -> Option<&JobStatistics> {
        self.known.get(job)
    }

    /// Number of known jobs.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True if no job is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Number of live programs of the tenant whose names begin with `prefix`.
    pub fn live_programs(&self, prefix: &str) -> u64 {
        self.live.get(prefix).copied().unwrap_or(0)
    }

    /// True if programs of more than one tenant are live.
    pub fn are_of_several_tenants(&self) -> bool {
        self.live.len() > 1
    }

    /// The statistics of a live program's job, which exist since the program began.
    fn of_live(&mut self, job: &str) -> &mut JobStatistics {
        self.known.entry(job.into()).or_default()
    }

    /// Records the time from one step's end to the arrival of the next one.
    pub(super) fn acted(&mut self, job: &str, took: Span) {
        let known = self.of_live(job);
        let sample = took.micros();
        known.gaps.learn(sample / 1_000);
        known.tool_us = averaged(known.tool_us, sample);
    }

    /// Records a finished step.
    pub(super) fn step_finished(&mut self, job: &str, step: &FinishedStep) {
        let known = self.of_live(job);
        if let Some(grown) = step.grown_tokens {
            let sample = grown.saturating_mul(16);
            known.growth_tokens_x16 = averaged(known.growth_tokens_x16, sample);
        }
        let sample = step.output_tokens.saturating_mul(16);
        known.output_tokens_x16 = match known.steps_finished {
            0 => sample,
            _ => known.output_tokens_x16 - known.output_tokens_x16 / 8 + sample / 8,
        };
        known.whole_answers = step.whole_answer;
        known.steps_finished += 1;
    }

    /// Records that a program of the job began. Returns the job that was dropped for it, if any.
    pub(super) fn program_opened(&mut self, job: &str) -> Option<Box<str>> {
        *self.live.entry(prefix_of(job).into()).or_default() += 1;
        if let Some(known) = self.known.get_mut(job) {
            if known.programs == 0 {
                self.idle.remove(&(known.idle_since, job.into()));
            }
            known.programs += 1;
            return None;
        }
        let known = JobStatistics {
            programs: 1,
            ..JobStatistics::default()
        };
        self.known.insert(job.into(), known);
        self.make_room()
    }

    /// Records that a program of the job is over. Returns the job that was dropped, if any.
    pub(super) fn program_closed(&mut self, job: &str, now: Timestamp) -> Option<Box<str>> {
        let known = self.known.get_mut(job)?;
        known.programs = known.programs.saturating_sub(1);
        if let Some(live) = self.live.get_mut(prefix_of(job)) {
            *live -= 1;
            if *live == 0 {
                self.live.remove(prefix_of(job));
            }
        }
        if known.programs > 0 {
            return None;
        }
        known.idle_since = now;
        self.idle.insert((now, job.into()));
        self.make_room()
    }

    /// Recounts live programs by job, as snapshots of older versions don't store the counts.
    pub fn recount<'p>(&mut self, live: impl Iterator<Item = &'p str>) {
        let mut known = std::mem::take(&mut self.known);
        for job in known.values_mut() {
            job.programs = 0;
        }
        for job in live {
            known.entry(job.into()).or_default().programs += 1;
        }
        *self = known.into();
        while self.make_room().is_some() {}
    }

    /// Drops the job that has been idle for longest, if there are too many.
    fn make_room(&mut self) -> Option<Box<str>> {
        if self.known.len() <= JOBS_MAX {
            return None;
        }
        let (_, job) = self.idle.pop_first()?;
        self.known.remove(&job);
        Some(job)
    }
}

impl From<BTreeMap<Box<str>, JobStatistics>> for JobHabits {
    fn from(known: BTreeMap<Box<str>, JobStatistics>) -> Self {
        let idle = known.iter().filter(|(_, job)| job.programs == 0);
        let idle = idle.map(|(name, job)| (job.idle_since, name.clone()));
        let mut live = BTreeMap::new();
        for (name, job) in known.iter().filter(|(_, job)| job.programs > 0) {
            *live.entry(prefix_of(name).into()).or_default() += job.programs;
        }
        Self {
            idle: idle.collect(),
            live,
            known,
        }
    }
}

impl Serialize for JobHabits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.known.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reference model: jobs with live programs, and those without by when their last one ended.
    #[derive(Default)]
    struct Model {
        live: BTreeMap<Box<str>, u64>,
        ended: BTreeMap<Box<str>, Timestamp>,
    }

    impl Model {
        fn open(&mut self, job: &str) {
            self.ended.remove(job);
            *self.live.entry(job.into()).or_default() += 1;
            self.drop_oldest();
        }

        fn close(&mut self, job: &str, now: Timestamp) {
            let programs = self.live.get_mut(job).expect("it is live");
            *programs -= 1;
            if *programs == 0 {
                self.live.remove(job);
                self.ended.insert(job.into(), now);
            }
            self.drop_oldest();
        }

        fn drop_oldest(&mut self) {
            while self.live.len() + self.ended.len() > JOBS_MAX && !self.ended.is_empty() {
                let oldest = self.ended.iter().min_by_key(|(job, at)| (**at, *job));
                let oldest = oldest.expect("one is there").0.clone();
                self.ended.remove(&oldest);
            }
        }
    }

    /// Generates a few jobs that come back often, a few that stay, and some new ones.
    fn some_job() -> impl Strategy<Value = usize> {
        prop_oneof![0..64_usize, JOBS_MAX - 32..JOBS_MAX + 512]
    }

    fn name(number: usize) -> Box<str> {
        let tenant = if number % 5 == 3 {
            "\u{1f}acme\u{1f}"
        } else {
            ""
        };
        format!("{tenant}job-{number}").into()
    }

    #[test]
    fn the_one_that_ended_longest_ago_makes_room() {
        let mut jobs = JobHabits::default();
        for number in 0..JOBS_MAX {
            jobs.program_opened(&name(number));
            jobs.program_closed(&name(number), Timestamp(number as u64));
        }
        // The first job is in use again.
        jobs.program_opened("job-0");
        jobs.program_opened("another");
        assert_eq!(jobs.len(), JOBS_MAX);
        assert!(jobs.get("job-0").is_some() && jobs.get("job-2").is_some());
        assert!(jobs.get("job-1").is_none());
    }

    #[test]
    fn jobs_with_live_programs_stay_however_many_they_are() {
        let mut jobs = JobHabits::default();
        for number in 0..2 * JOBS_MAX {
            jobs.program_opened(&name(number));
        }
        assert_eq!(jobs.len(), 2 * JOBS_MAX);
        for number in 0..2 * JOBS_MAX {
            jobs.program_closed(&name(number), Timestamp(1));
        }
        assert_eq!(jobs.len(), JOBS_MAX);
    }

    #[test]
    fn older_snapshots_are_counted_and_cut() {
        let old = |number: usize| (name(number), JobStatistics::default());
        let old: BTreeMap<_, _> = (0..3 * JOBS_MAX).map(old).collect();
        let mut jobs = JobHabits::from(old);
        jobs.recount(["job-7", "job-7", "unknown"].into_iter());
        assert_eq!(jobs.len(), JOBS_MAX);
        let programs = |job: &str| jobs.get(job).map(|known| known.programs);
        assert_eq!((programs("job-7"), programs("unknown")), (Some(2), Some(1)));
        let text = r#"{"a": {"output_tokens_x16": 3, "tool_us": 4, "steps_finished": 5}}"#;
        let old: JobHabits = serde_json::from_str(text).expect("it is readable");
        assert_eq!(old.get("a").map(|known| known.steps_finished), Some(5));
        let again = serde_json::to_string(&old).expect("it is written");
        assert_eq!(serde_json::from_str::<JobHabits>(&again).ok(), Some(old));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn what_stays_is_what_a_look_at_all_would_keep(
            moves in prop::collection::vec((some_job(), 0_u8..3, 0_u64..2), 600)
        ) {
            let (mut jobs, mut model) = (JobHabits::default(), Model::default());
            // Full from the start.
            for number in 0..JOBS_MAX {
                jobs.program_opened(&name(number));
                jobs.program_closed(&name(number), Timestamp(0));
                model.open(&name(number));
                model.close(&name(number), Timestamp(0));
            }
            let mut now = Timestamp(1);
            for (number, what, passed) in moves {
                now.0 += passed;
                let job = name(number);
                if what == 0 && model.live.contains_key(&job) {
                    jobs.program_closed(&job, now);
                    model.close(&job, now);
                } else {
                    jobs.program_opened(&job);
                    model.open(&job);
                }
                // Most of them end.
                if what == 1 {
                    jobs.program_closed(&job, now);
                    model.close(&job, now);
                }
            }
            let known: Vec<_> = jobs.known.keys().collect();
            let mut expected: Vec<_> = model.live.keys().chain(model.ended.keys()).collect();
            expected.sort();
            prop_assert_eq!(known, expected);
            let mut counted = jobs.clone();
            let live = model.live.iter();
            let live = live.flat_map(|(job, n)| std::iter::repeat_n(&**job, *n as usize));
            counted.recount(live);
            prop_assert_eq!(counted, jobs);
        }
    }
}
