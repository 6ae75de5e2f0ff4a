//! The end of a worker as its engine behaves: contexts grow while programs generate, each token
//! reads its context, and memory limits the number of running programs.
//!
//! Formula 2 has one factor per group size (§5.1), which assumes similar contexts. In a rollout the
//! longest programs have the largest contexts: a few of them fill the memory that many short ones
//! share. Here all members of a group generate in step; between two ends the time per token follows
//! from their number and their total context, and if that exceeds the memory they take turns.

use serde::Deserialize;

use crate::interference::Interference;

/// The duration of an engine's iterations, and its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Fixed time of each iteration, for reading the weights and overhead, in microseconds.
    pub base_us: f64,
    /// Additional time per program, in microseconds.
    pub program_us: f64,
    /// Additional time per 1,000 tokens of context, in microseconds.
    pub kilotoken_us: f64,
    /// Time per prompt token, in microseconds.
    pub prefill_us: f64,
    /// KV cache in tokens.
    pub capacity_tokens: f64,
    /// Maximum number of running programs.
    pub batch_max: f64,
}

/// The duration of an iteration, as configured.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iteration {
    /// Fixed time, in microseconds.
    pub base_us: f64,
    /// Time per program, in microseconds.
    pub program_us: f64,
    /// Time per 1,000 tokens of context, in microseconds.
    pub kilotoken_us: f64,
    /// Time per prompt token, in microseconds.
    #[serde(default)]
    pub prefill_us: f64,
    /// Maximum number of running programs.
    pub batch_max: f64,
}

impl Iteration {
    /// Each value with its key and its bounds.
    fn bounds(&self) -> [(&'static str, f64, f64, f64); 5] {
        [
            ("base_us", self.base_us, 1e-3, 1e9),
            ("program_us", self.program_us, 0.0, 1e9),
            ("kilotoken_us", self.kilotoken_us, 0.0, 1e9),
            ("prefill_us", self.prefill_us, 0.0, 1e9),
            ("batch_max", self.batch_max, 1.0, 1e6),
        ]
    }
}

/// Checks the configured measurements of a kind of worker: the time per token of one program by
/// itself, and what is known beside it.
///
/// # Errors
/// What is wrong with which of them.
pub fn check_measured(
    token_us: f64,
    interference: Option<&[(u32, f64)]>,
    pace: Option<&Iteration>,
) -> Result<(), String> {
    let paces = pace.into_iter().flat_map(Iteration::bounds);
    let pace = paces.map(|(key, value, least, most)| (format!("pace.{key}"), value, least, most));
    let token_us = ("token_us".to_owned(), token_us, 1e-3, 1e9);
    for (key, value, least, most) in std::iter::once(token_us).chain(pace) {
        if !(least..=most).contains(&value) {
            return Err(format!("{key} from {least} to {most}, not {value}"));
        }
    }
    Interference::of(interference)
        .map(drop)
        .map_err(|wrong| format!("interference that is right: it {wrong}"))
}

impl Pace {
    /// From measurements, or from the default profile: a batch of 128 takes twice as long as one
    /// program by itself, which takes `token_us` per token. A capacity of 0 is unknown, so unlimited.
    pub fn of(measured: Option<Iteration>, token_us: f64, capacity_tokens: u64) -> Self {
        let capacity_tokens = if capacity_tokens > 0 {
            capacity_tokens as f64
        } else {
            f64::INFINITY
        };
        let measured = measured.unwrap_or(Iteration {
            base_us: token_us * 126.0 / 127.0,
            program_us: token_us / 127.0,
            kilotoken_us: 0.0,
            prefill_us: 0.0,
            batch_max: f64::INFINITY,
        });
        Self {
            base_us: measured.base_us,
            program_us: measured.program_us,
            kilotoken_us: measured.kilotoken_us,
            prefill_us: measured.prefill_us,
            capacity_tokens,
            batch_max: measured.batch_max,
        }
    }
}

/// What programs do besides generating.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Habits {
    /// Tokens by which a context grows with each generated one, tools included.
    pub growth: f64,
    /// Time in tools for each generated token, in microseconds.
    pub tool_us: f64,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            growth: 1.0,
            tool_us: 0.0,
        }
    }
}

/// A program: its remaining tokens, and its current context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// Tokens still to be generated.
    pub remaining: f64,
    /// Context in tokens.
    pub context: f64,
}

/// Number of the longest members that are handled individually, and number of heaps for the others.
/// Short programs need less precision (as in §5.2 of the paper).
const EXACT: usize = 64;
const HEAPS: usize = 48;

/// Members that are assumed to end together.
#[derive(Debug, Clone, Copy)]
struct Heap {
    count: f64,
    remaining: f64,
    context: f64,
}

impl Pace {
    /// The end of a group, in microseconds. `group` and `more` are both sorted, the longest
    /// remaining first. Each member represents `weight` programs.
    pub fn end_us(&self, group: &[Member], more: &[Member], habits: Habits, weight: f64) -> f64 {
        let mut heaps = Vec::with_capacity(EXACT + HEAPS + more.len() + 1);
        heap(group, weight, &mut heaps);
        if !more.is_empty() {
            heap(more, weight, &mut heaps);
            heaps.sort_unstable_by(|l, r| r.remaining.total_cmp(&l.remaining));
        }
        let (mut active, mut context) = (0.0, 0.0);
        for heap in &heaps {
            active += heap.count;
            context += heap.context;
        }
        let (mut end_us, mut before) = (0.0, 0.0);
        for heap in heaps.iter().rev() {
            let tokens = heap.remaining - before;
            if tokens > 0.0 {
                let held = context + active * habits.growth * (before + tokens / 2.0);
                end_us += tokens * self.token_us(active, held, habits);
                before = heap.remaining;
            }
            active -= heap.count;
            context -= heap.context;
        }
        end_us
    }

    /// Time per token of each of `active` programs with `held` tokens of context in total,
    /// including tools.
    fn token_us(&self, active: f64, held: f64, habits: Habits) -> f64 {
        let prefill_us = (habits.growth - 1.0).max(0.0) * self.prefill_us;
        let fits = (self.capacity_tokens / held.max(1.0)).min(self.batch_max / active);
        let mean = held / active;
        let at = |running: f64| {
            // Programs that wait for memory each run for their share of the time.
            let share = (fits * active / running).min(1.0);
            let each_us = self.program_us + prefill_us + self.kilotoken_us * mean / 1_000.0;
            self.base_us / share + each_us * running
        };
        if habits.tool_us <= 0.0 {
            return at(active);
        }
        // A program in a tool call does not disturb the others.
        let all_us = at(active);
        at(active * all_us / (all_us + habits.tool_us)) + habits.tool_us
    }

    /// Time per token of a program by itself, without context, in microseconds.
    pub fn lone_us(&self) -> f64 {
        self.base_us + self.program_us
    }
}

/// The longest members individually, the others in heaps of equal numbers.
fn heap(members: &[Member], weight: f64, heaps: &mut Vec<Heap>) {
    let (exact, others) = members.split_at(members.len().min(EXACT));
    heaps.extend(exact.iter().map(|member| Heap {
        count: weight,
        remaining: member.remaining,
        context: member.context * weight,
    }));
    for chunk in others.chunks(others.len().div_ceil(HEAPS).max(1)) {
        let (mut remaining, mut context) = (0.0, 0.0);
        for member in chunk {
            remaining += member.remaining;
            context += member.context;
        }
        let count = chunk.len() as f64;
        heaps.push(Heap {
            count: count * weight,
            remaining: remaining / count,
            context: context * weight,
        });
    }
}

/// Splits a sorted list over workers in their order, so that each group ends by the least common
/// bound, to one part in a thousand.
///
/// `context` is each program's context at the start, still to be computed. The end of a group need
/// not grow evenly with it, so this is a good split, not a proven optimum.
pub fn partition_fluid(
    workers: &[Pace],
    lengths: &[f64],
    context: f64,
    habits: Habits,
    weight: f64,
) -> Option<(Vec<usize>, f64)> {
    if workers.is_empty() && !lengths.is_empty() {
        return None;
    }
    let members: Vec<Member> = lengths
        .iter()
        .map(|&remaining| Member { remaining, context })
        .collect();
    let split = |bound_us: f64| fits(workers, &members, habits, weight, bound_us);
    let alone = workers
        .iter()
        .map(Pace::lone_us)
        .fold(f64::INFINITY, f64::min);
    let longest = lengths.first().copied().unwrap_or(0.0);
    let mut too_little_us = alone * longest * 0.999;
    let mut enough_us = too_little_us.max(1.0);
    let mut best = split(enough_us);
    while best.is_none() {
        too_little_us = enough_us;
        enough_us *= 2.0;
        best = split(enough_us);
    }
    while enough_us > too_little_us * 1.001 {
        let bound_us = f64::midpoint(too_little_us, enough_us);
        match split(bound_us) {
            Some(sizes) => (best, enough_us) = (Some(sizes), bound_us),
            None => too_little_us = bound_us,
        }
    }
    best.map(|sizes| (sizes, enough_us))
}

/// Whether a split ends by a bound.
pub fn fluid_ends_by(
    workers: &[Pace],
    lengths: &[f64],
    context: f64,
    habits: Habits,
    weight: f64,
    bound_us: f64,
) -> bool {
    let members: Vec<Member> = lengths
        .iter()
        .map(|&remaining| Member { remaining, context })
        .collect();
    fits(workers, &members, habits, weight, bound_us).is_some()
}

/// Gives each worker the largest group that ends by the bound; `None` if some programs are left
/// over.
fn fits(
    workers: &[Pace],
    members: &[Member],
    habits: Habits,
    weight: f64,
    bound_us: f64,
) -> Option<Vec<usize>> {
    let mut sizes = Vec::with_capacity(workers.len());
    let mut tail = members;
    for worker in workers {
        let ends_by = |size: usize| {
            let group = &tail[..size];
            let context = group.first().map_or(0.0, |member| member.context);
            let begin_us = context * weight * size as f64 * worker.prefill_us;
            begin_us + worker.end_us(group, &[], habits, weight) <= bound_us
        };
        let (mut most, mut step) = (0, 1);
        while most + step <= tail.len() && ends_by(most + step) {
            most += step;
            step *= 2;
        }
        while step > 0 {
            if most + step <= tail.len() && ends_by(most + step) {
                most += step;
            }
            step /= 2;
        }
        sizes.push(most);
        tail = &tail[most..];
    }
    tail.is_empty().then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        base_us: 100.0,
        program_us: 1.0,
        kilotoken_us: 10.0,
        prefill_us: 0.0,
        capacity_tokens: 10_000.0,
        batch_max: 100.0,
    };
    const HABITS: Habits = Habits {
        growth: 1.0,
        tool_us: 0.0,
    };

    fn members(lengths: &[f64]) -> Vec<Member> {
        let member = |&remaining: &f64| Member {
            remaining,
            context: 1_000.0,
        };
        lengths.iter().map(member).collect()
    }

    /// Simulates token by token.
    fn naive(pace: &Pace, members: &[Member]) -> f64 {
        let mut end_us = 0.0;
        let longest = members[0].remaining as usize;
        for token in 0..longest {
            let active = members.iter().filter(|m| m.remaining > token as f64);
            let (mut count, mut held) = (0.0, 0.0);
            for member in active {
                count += 1.0;
                held += member.context + token as f64 + 0.5;
            }
            end_us += pace.token_us(count, held, HABITS);
        }
        end_us
    }

    #[test]
    fn a_group_ends_as_token_by_token() {
        for lengths in [
            &[50.0][..],
            &[90.0, 40.0, 40.0, 3.0],
            &[400.0, 400.0, 300.0, 200.0, 100.0],
        ] {
            let group = members(lengths);
            let exact = naive(&PACE, &group);
            let end_us = PACE.end_us(&group, &[], HABITS, 1.0);
            assert!((end_us / exact - 1.0).abs() < 1e-9, "{end_us} {exact}");
        }
    }

    #[test]
    fn it_does_not_matter_which_list_a_member_is_in() {
        let all = members(&[90.0, 60.0, 40.0, 3.0]);
        let (some, others) = (members(&[90.0, 40.0]), members(&[60.0, 3.0]));
        let whole = PACE.end_us(&all, &[], HABITS, 1.0);
        assert!((PACE.end_us(&some, &others, HABITS, 1.0) - whole).abs() < 1e-6);
    }

    #[test]
    fn beyond_memory_programs_take_turns() {
        let still = Habits {
            growth: 0.0,
            ..HABITS
        };
        let ten = PACE.end_us(&members(&[10.0; 9]), &[], still, 1.0);
        let forty = PACE.end_us(&members(&[10.0; 36]), &[], still, 1.0);
        assert!(forty > ten * 3.5, "{ten} {forty}");
    }

    #[test]
    fn long_programs_go_to_small_groups() {
        let mut lengths = vec![5_000.0; 4];
        lengths.extend(vec![200.0; 60]);
        let (sizes, end_us) = partition_fluid(&[PACE; 2], &lengths, 100.0, HABITS, 1.0).unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 64);
        assert!(sizes[0] < sizes[1], "{sizes:?}");
        for (from, to) in [(0, sizes[0]), (sizes[0], 64)] {
            let group: Vec<Member> = lengths[from..to]
                .iter()
                .map(|&remaining| Member {
                    remaining,
                    context: 100.0,
                })
                .collect();
            assert!(PACE.end_us(&group, &[], HABITS, 1.0) <= end_us);
        }
        assert!(fluid_ends_by(
            &[PACE; 2], &lengths, 100.0, HABITS, 1.0, end_us
        ));
        assert!(partition_fluid(&[], &lengths, 1.0, HABITS, 1.0).is_none());
    }
}
