//! What was seen of live programs, to learn from once they are over.

use super::seen::Lesson;
use std::collections::{BTreeMap, HashMap};
use treadle_model::ProgramId;
use treadle_plugin::random::SplitMix64;
use treadle_scheduler::{Moment, Observation};

/// Sightings of one program that are kept as they come: its beginning. Without it the beginnings of
/// long programs would be missing, and beginnings be learnt from short ones alone.
pub(super) const FIRST_MAX: usize = 16;
/// Those of the rest of its life, each as likely to be kept as any other.
pub(super) const LATER_MAX: usize = 16;
/// Programs whose sightings are kept; those beyond teach nothing.
const PROGRAMS_MAX: usize = 100_000;

/// What was seen of each live program.
#[derive(Default)]
pub(super) struct Sightings(HashMap<ProgramId, OfProgram>);

/// What was seen of one program.
#[derive(Default)]
struct OfProgram {
    kept: Vec<Observation>,
    /// All that were seen.
    seen: u64,
}

impl OfProgram {
    /// The last of so many is kept with the chance that any has, and replaces any. Which, depends on
    /// nothing but the program and its number, so that a replay keeps the same.
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

    /// What it teaches, in the order of its life.
    fn into_lessons(mut self, end: &Observation) -> impl Iterator<Item = Lesson> {
        self.kept
            .sort_by_key(|seen| (seen.steps, seen.moment == Moment::Returned));
        let (output_tokens, tool_ms) = (end.output_tokens, end.tool_ms);
        let has_ended = end.moment == Moment::Ended;
        self.kept.into_iter().map(move |seen| Lesson {
            remaining_tokens: output_tokens.saturating_sub(seen.output_tokens),
            remaining_tool_ms: tool_ms.saturating_sub(seen.tool_ms),
            has_ended,
            seen,
        })
    }
}

impl Sightings {
    /// Whether more of a program has happened than is known here: this daemon, or its predictions,
    /// began later than it.
    pub(super) fn lacks(&self, observation: &Observation) -> bool {
        let is_first = match observation.moment {
            Moment::Acting => observation.steps <= 1,
            Moment::Returned | Moment::Ended | Moment::CutShort => observation.steps == 0,
        };
        !is_first && !self.0.contains_key(&observation.program) && self.0.len() < PROGRAMS_MAX
    }

    /// Keeps what was seen of live programs, in the order of their lives.
    pub(super) fn add(&mut self, observations: impl IntoIterator<Item = Observation>) {
        for observation in observations {
            if self.0.len() >= PROGRAMS_MAX && !self.0.contains_key(&observation.program) {
                continue;
            }
            let of_program = self.0.entry(observation.program).or_default();
            of_program.add(observation);
        }
    }

    /// What programs that are over teach, by job: first those that ended, then those that were cut
    /// short.
    pub(super) fn take(&mut self, over: &[Observation]) -> BTreeMap<Box<str>, Vec<Lesson>> {
        let mut lessons: BTreeMap<Box<str>, Vec<Lesson>> = BTreeMap::new();
        for moment in [Moment::Ended, Moment::CutShort] {
            for end in over.iter().filter(|end| end.moment == moment) {
                let seen = self.0.remove(&end.program).unwrap_or_default();
                let of_job = lessons.entry(end.job.clone()).or_default();
                of_job.extend(seen.into_lessons(end));
            }
        }
        lessons
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A program after so many steps, each of which generates 50 tokens.
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
        let mut sightings = Sightings::default();
        let (acting, returned) = (Moment::Acting, Moment::Returned);
        sightings.add([seen(1, 2, acting), seen(2, 1, acting), seen(3, 1, acting)]);
        sightings.add([seen(2, 1, returned), seen(2, 3, acting)]);
        let over = [seen(1, 4, Moment::CutShort), seen(2, 3, Moment::Ended)];
        let lessons = &sightings.take(&over)["run"];
        let learnt: Vec<_> = lessons
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
        assert_eq!(sightings.0.len(), 1);
    }

    #[test]
    fn what_is_kept_of_a_program_is_of_all_its_life() {
        let kept = |program: u64| {
            let mut sightings = Sightings::default();
            sightings.add((0..200).map(|steps| seen(program, steps, Moment::Acting)));
            let lessons = &sightings.take(&[seen(program, 200, Moment::Ended)])["run"];
            lessons.iter().map(|l| l.seen.steps).collect::<Vec<u32>>()
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
        // A quarter of 3,200 each, and what chance adds or takes.
        assert!(
            by_quarter.iter().all(|count| (700..900).contains(count)),
            "{by_quarter:?}"
        );
        assert_eq!(kept(3), kept(3));
        assert_ne!(kept(3), kept(4));
    }
}
