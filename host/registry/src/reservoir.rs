//! Samples of live programs, to learn from once they are over.

use super::samples::Sample;
use std::collections::{BTreeMap, HashMap};
use treadle_model::ProgramId;
use treadle_plugin::random::SplitMix64;
use treadle_scheduler::{Moment, Observation};

/// Number of first observations of a program that are always kept. Without them the beginnings of
/// long programs would be missing, and beginnings would be learnt from short programs only.
pub(super) const FIRST_MAX: usize = 16;
/// Number of observations sampled from the rest, each with the same chance.
pub(super) const LATER_MAX: usize = 16;
/// Maximum number of programs with samples; further ones are not learnt from.
const PROGRAMS_MAX: usize = 100_000;

/// The observations of each live program.
#[derive(Default)]
pub(super) struct Reservoir(HashMap<ProgramId, OfProgram>);

/// The observations of one program.
#[derive(Default)]
struct OfProgram {
    kept: Vec<Observation>,
    /// Number of all its observations.
    seen: u64,
}

impl OfProgram {
    /// Adds an observation: the first ones are kept, later ones go through reservoir sampling. The
    /// choice depends only on the program and the observation's number, so that a replay keeps the
    /// same ones.
    fn add(&mut self, observation: Observation) {
        let number = self.seen;
        self.seen += 1;
        if self.kept.len() < FIRST_MAX + LATER_MAX {
            return self.kept.push(observation);
        }
        let later = number - FIRST_MAX as u64 + 1;
        let mut random = SplitMix64::new(observation.program.0 ^ number.rotate_left(32));
        let place = FIRST_MAX as u64 + random.next_u64() % later;
        if let Some(kept) = self.kept.get_mut(place as usize) {
            *kept = observation;
        }
    }

    /// Its samples, in order of time.
    fn into_samples(mut self, end: &Observation) -> impl Iterator<Item = Sample> {
        self.kept
            .sort_by_key(|seen| (seen.steps, seen.moment == Moment::Returned));
        let (output_tokens, tool_ms) = (end.output_tokens, end.tool_ms);
        let has_ended = end.moment == Moment::Ended;
        self.kept.into_iter().map(move |seen| Sample {
            remaining_tokens: output_tokens.saturating_sub(seen.output_tokens),
            remaining_tool_ms: tool_ms.saturating_sub(seen.tool_ms),
            has_ended,
            seen,
        })
    }
}

impl Reservoir {
    /// Whether earlier observations of a program are missing: the daemon, or its predictions, began
    /// later than the program.
    pub(super) fn lacks(&self, observation: &Observation) -> bool {
        let is_first = match observation.moment {
            Moment::Acting => observation.steps <= 1,
            Moment::Returned | Moment::Ended | Moment::CutShort => observation.steps == 0,
        };
        !is_first && !self.0.contains_key(&observation.program) && self.0.len() < PROGRAMS_MAX
    }

    /// Adds observations of live programs, in order of time.
    pub(super) fn add(&mut self, observations: impl IntoIterator<Item = Observation>) {
        for observation in observations {
            if self.0.len() >= PROGRAMS_MAX && !self.0.contains_key(&observation.program) {
                continue;
            }
            let of_program = self.0.entry(observation.program).or_default();
            of_program.add(observation);
        }
    }

    /// Removes the samples of ended programs, by job: first those of completed ones, then those
    /// that were cut short.
    pub(super) fn take(&mut self, over: &[Observation]) -> BTreeMap<Box<str>, Vec<Sample>> {
        let mut samples: BTreeMap<Box<str>, Vec<Sample>> = BTreeMap::new();
        for moment in [Moment::Ended, Moment::CutShort] {
            for end in over.iter().filter(|end| end.moment == moment) {
                let seen = self.0.remove(&end.program).unwrap_or_default();
                let of_job = samples.entry(end.job.clone()).or_default();
                of_job.extend(seen.into_samples(end));
            }
        }
        samples
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An observation of a program after `steps` steps that generated 50 tokens each.
    pub(in super::super) fn seen(program: u64, steps: u32, moment: Moment) -> Observation {
        Observation {
            program: ProgramId(program),
            key: format!("p-{program}").into(),
            job: "run".into(),
            group: 1,
            tokens: 500,
            output_tokens: u64::from(steps) * 50,
            steps,
            tool_ms: u64::from(steps) * 500,
            extra: [1.0, 2.0, -1.0, 0.0, 0.0, -1.0],
            moment,
            after: None,
        }
    }

    #[test]
    fn what_is_over_teaches_what_came_after_each_look() {
        let mut reservoir = Reservoir::default();
        let (acting, returned) = (Moment::Acting, Moment::Returned);
        reservoir.add([seen(1, 2, acting), seen(2, 1, acting), seen(3, 1, acting)]);
        reservoir.add([seen(2, 1, returned), seen(2, 3, acting)]);
        let over = [seen(1, 4, Moment::CutShort), seen(2, 3, Moment::Ended)];
        let samples = &reservoir.take(&over)["run"];
        let learnt: Vec<_> = samples
            .iter()
            .map(|l| {
                (
                    l.seen.program.0,
                    l.seen.steps,
                    l.remaining_tokens,
                    l.remaining_tool_ms,
                    l.has_ended,
                )
            })
            .collect();
        let expected = [
            (2, 1, 100, 1_000, true),
            (2, 1, 100, 1_000, true),
            (2, 3, 0, 0, true),
            (1, 2, 100, 1_000, false),
        ];
        assert_eq!(learnt, expected);
        assert_eq!(reservoir.0.len(), 1);
    }

    #[test]
    fn what_is_kept_of_a_program_is_of_all_its_life() {
        let kept = |program: u64| {
            let mut reservoir = Reservoir::default();
            reservoir.add((0..200).map(|steps| seen(program, steps, Moment::Acting)));
            let samples = &reservoir.take(&[seen(program, 200, Moment::Ended)])["run"];
            samples.iter().map(|l| l.seen.steps).collect::<Vec<u32>>()
        };
        let mut by_quarter = [0; 4];
        for program in 0..200 {
            let steps = kept(program);
            assert_eq!(steps.len(), FIRST_MAX + LATER_MAX);
            assert_eq!(
                steps[..FIRST_MAX],
                *(0..FIRST_MAX as u32).collect::<Vec<_>>()
            );
            assert!(steps.is_sorted());
            for step in &steps[FIRST_MAX..] {
                by_quarter[((step - 16) / 46) as usize] += 1;
            }
        }
        // A quarter of 3,200 each, within chance.
        assert!(
            by_quarter.iter().all(|count| (700..900).contains(count)),
            "{by_quarter:?}"
        );
        assert_eq!(kept(3), kept(3));
        assert_ne!(kept(3), kept(4));
    }
}
