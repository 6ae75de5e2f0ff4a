//! Chunks of devices: a state is how many of each size are free (§5.3, in place of the operator that
//! Algorithm 4 prints).
//!
//! An action gets the smallest chunk that has its devices, split where it is larger. Whatever fits at
//! all fits so, in any order. And since a chunk is split only where no smaller one would do, there is
//! never more than one chunk of a size beyond those that there were: the states are few.

use crate::queue::{Choice, Waiting};

/// Stands for a sum where a state is not reached.
const NEVER_US: u64 = u64::MAX;
/// Stands for no state.
const NOWHERE: u32 = u32::MAX;
/// Sizes of chunks.
const LEVELS: usize = 4;

/// For each head of the candidates, and each state, the least sum of run times with which that state
/// is left, and where it came from.
#[derive(Debug)]
pub(crate) struct Table<'q> {
    candidates: &'q [Waiting],
    states: usize,
    sums_us: Vec<u64>,
    /// The state before and the choice, as `state * CHOICES + choice`.
    from: Vec<u32>,
}

/// Choices of an action: one for each size of a chunk, or none at all.
const CHOICES: u32 = 8;

impl<'q> Table<'q> {
    /// `None` where more than `work_max` entries would be looked at.
    pub(crate) fn new(
        candidates: &'q [Waiting],
        chunks: [u32; LEVELS],
        work_max: usize,
    ) -> Option<Self> {
        let space = Space::new(chunks, work_max)?;
        let choices = candidates.iter().map(|waiting| waiting.choices.len());
        let entries = space.states.checked_mul(choices.sum::<usize>())?;
        if entries > work_max {
            return None;
        }
        let next = space.next();
        let mut table = Self {
            candidates,
            states: space.states,
            sums_us: vec![NEVER_US; space.states * (candidates.len() + 1)],
            from: vec![NOWHERE; space.states * (candidates.len() + 1)],
        };
        table.sums_us[space.index(chunks)] = 0;
        for (head, waiting) in candidates.iter().enumerate() {
            table.fill(head, &waiting.choices, &next);
        }
        Some(table)
    }

    /// What the first so many candidates best start with: back through the table from the best state.
    pub(crate) fn head(&self, head: usize) -> Vec<Choice> {
        let row = &self.sums_us[head * self.states..][..self.states];
        let best = (0..self.states).min_by_key(|&state| row[state]);
        let mut state = best.unwrap_or(0);
        let mut started = Vec::with_capacity(head);
        for at in (0..head).rev() {
            let from = self.from[(at + 1) * self.states + state];
            started.push(self.candidates[at].choices[(from % CHOICES) as usize]);
            state = (from / CHOICES) as usize;
        }
        started.reverse();
        started
    }

    fn fill(&mut self, head: usize, choices: &[Choice], next: &[[u32; LEVELS]]) {
        let begin = (head + 1) * self.states;
        let (before, row) = self.sums_us.split_at_mut(begin);
        let before = &before[head * self.states..];
        let from = &mut self.from[begin..][..self.states];
        for (state, &sum_us) in before.iter().enumerate() {
            if sum_us == NEVER_US {
                continue;
            }
            for (at, choice) in choices.iter().enumerate() {
                let to = match level(choice.units) {
                    Some(level) => next[state][level],
                    None => state as u32,
                };
                if to != NOWHERE && sum_us + choice.us < row[to as usize] {
                    row[to as usize] = sum_us + choice.us;
                    from[to as usize] = state as u32 * CHOICES + at as u32;
                }
            }
        }
    }
}

/// The place of a size among the sizes; `None` for no devices.
fn level(units: u32) -> Option<usize> {
    (units > 0).then(|| units.trailing_zeros() as usize)
}

/// All states, numbered.
struct Space {
    /// How many values each count has.
    radix: [usize; LEVELS],
    states: usize,
}

impl Space {
    fn new(chunks: [u32; LEVELS], states_max: usize) -> Option<Self> {
        // The largest are never made by splitting.
        let made = [1, 1, 1, 0];
        let radix: [usize; LEVELS] =
            std::array::from_fn(|size| chunks[size].max(made[size]) as usize + 1);
        let states = radix
            .iter()
            .try_fold(1_usize, |all, one| all.checked_mul(*one))?;
        (states <= states_max).then_some(Self { radix, states })
    }

    fn index(&self, chunks: [u32; LEVELS]) -> usize {
        let digits = chunks.into_iter().zip(self.radix).rev();
        digits.fold(0, |index, (count, radix)| index * radix + count as usize)
    }

    fn chunks(&self, index: usize) -> [u32; LEVELS] {
        let mut left = index;
        self.radix.map(|radix| {
            let count = left % radix;
            left /= radix;
            count as u32
        })
    }

    /// The state after taking a chunk of each size from each state.
    fn next(&self) -> Vec<[u32; LEVELS]> {
        let after = |state: usize, size: usize| {
            let mut chunks = self.chunks(state);
            if !take(&mut chunks, size) {
                return NOWHERE;
            }
            // Only states that are never reached have more than can be counted.
            let counted = chunks
                .iter()
                .zip(self.radix)
                .all(|(n, radix)| (*n as usize) < radix);
            if counted {
                self.index(chunks) as u32
            } else {
                NOWHERE
            }
        };
        let states = 0..self.states;
        states
            .map(|state| std::array::from_fn(|size| after(state, size)))
            .collect()
    }
}

/// Takes the smallest chunk that is large enough, split in halves.
fn take(chunks: &mut [u32; LEVELS], size: usize) -> bool {
    let Some(from) = (size..LEVELS).find(|&from| chunks[from] > 0) else {
        return false;
    };
    chunks[from] -= 1;
    for half in &mut chunks[size..from] {
        *half += 1;
    }
    true
}
