//! Algorithm 1 of `ARL-Tangram` §4.2 with a greedy choice in place of its dynamic program: units go
//! one step at a time to the action that gains most from each. With times that fall ever less it
//! is as good; it is independent of the policy `tangram-allocation`, to compare that one with.

use crate::actions::machine::Allocator;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use treadle_core::actions::{ElasticAnswer, ElasticQuestion};

/// Allocations that the first remaining action explores (§4.2: 2 or 3).
const DEPTH: usize = 2;

/// The allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl Allocator for Greedy {
    fn allocate(&mut self, question: &ElasticQuestion) -> ElasticAnswer {
        let rows = (0..question.action.len()).filter(|row| question.candidate[*row] != 0);
        let mut rows: Vec<usize> = rows.collect();
        let mut shares = Shares::of(question, &rows);
        let mut best = shares.objective(question, &rows);
        while rows.len() > 1 {
            let fewer = &rows[..rows.len() - 1];
            let of_fewer = Shares::of(question, fewer);
            let objective = of_fewer.objective(question, fewer);
            if objective >= best {
                break;
            }
            (best, shares) = (objective, of_fewer);
            rows.pop();
        }
        let units = |(row, option): (&usize, &usize)| {
            (question.action[*row], question.option_units[*option])
        };
        ElasticAnswer {
            start: rows.iter().zip(&shares.options).map(units).collect(),
        }
    }
}

/// The option of each row.
struct Shares {
    options: Vec<usize>,
}

fn time_us(question: &ElasticQuestion, option: usize) -> u64 {
    question.option_us[option].max(0) as u64 + question.option_load_us[option]
}

impl Shares {
    fn of(question: &ElasticQuestion, rows: &[usize]) -> Self {
        let first = |row: &usize| question.option_start[*row] as usize;
        let mut options: Vec<usize> = rows.iter().map(first).collect();
        let units = |option: usize| question.option_units[option];
        let used: u32 = options.iter().map(|option| units(*option)).sum();
        let mut left = question.free_units[0].saturating_sub(used);
        let mut steps = BinaryHeap::new();
        for (place, option) in options.iter().enumerate() {
            offer(question, rows[place], *option, place, &mut steps);
        }
        while let Some((_, Reverse(place), from, to)) = steps.pop() {
            let more = units(to) - units(from);
            if more > left || from != options[place] {
                continue;
            }
            let before = std::mem::replace(&mut options[place], to);
            if !fits(question, &options) {
                options[place] = before;
                continue;
            }
            left -= more;
            offer(question, rows[place], to, place, &mut steps);
        }
        Self { options }
    }

    /// Sum of the completion times of these rows and, as estimated, of all after them (Algorithm 2).
    fn objective(&self, question: &ElasticQuestion, rows: &[usize]) -> u64 {
        let times = self.options.iter().map(|option| time_us(question, *option));
        let exact: u64 = times.clone().sum();
        let mut ends: BinaryHeap<Reverse<u64>> = question
            .running_left_us
            .iter()
            .copied()
            .map(Reverse)
            .collect();
        ends.extend(times.map(Reverse));
        let rest = rows.len()..question.action.len();
        let Some(first) = rest.clone().next() else {
            return exact;
        };
        let options =
            question.option_start[first] as usize..question.option_start[first + 1] as usize;
        let estimates = options.take(DEPTH).map(|option| {
            let mut ends = ends.clone();
            rest.clone()
                .map(|row| {
                    let option = if row == first {
                        option
                    } else {
                        question.option_start[row] as usize
                    };
                    let Reverse(at) = ends.pop().unwrap_or_default();
                    let end = at + time_us(question, option);
                    ends.push(Reverse(end));
                    end
                })
                .sum::<u64>()
        });
        exact + estimates.min().unwrap_or(0)
    }
}

type Step = (u64, Reverse<usize>, usize, usize);

/// The best step up from an option: the most time for each unit.
fn offer(
    question: &ElasticQuestion,
    row: usize,
    from: usize,
    place: usize,
    steps: &mut BinaryHeap<Step>,
) {
    let end = question.option_start[row + 1] as usize;
    let best = (from + 1..end)
        .map(|to| {
            let gain = time_us(question, from).saturating_sub(time_us(question, to));
            let more = question.option_units[to] - question.option_units[from];
            (gain / u64::from(more.max(1)), to)
        })
        .max_by_key(|(gain, to)| (*gain, Reverse(*to)));
    if let Some((gain, to)) = best
        && gain > 0
    {
        steps.push((gain, Reverse(place), from, to));
    }
}

/// Whether chunks of these sizes are there.
fn fits(question: &ElasticQuestion, options: &[usize]) -> bool {
    if question.chunked[0] == 0 {
        return true;
    }
    let mut wanted = [0_u32; 4];
    for option in options {
        wanted[question.option_units[*option].ilog2().min(3) as usize] += 1;
    }
    // What is left of larger chunks serves smaller ones.
    let mut spare = 0;
    for level in (0..4).rev() {
        let there = question.free_chunks[level] + spare * 2;
        if wanted[level] > there {
            return false;
        }
        spare = there - wanted[level];
    }
    true
}
