//! Chunks of devices: a state is the number of free chunks of each size (§5.3, instead of the
//! operator in Algorithm 4).
//!
//! An action gets the smallest chunk with its devices, which is split if it is larger. Whatever
//! fits at all fits in this way, in any order. And because a chunk is only split if no smaller one
//! suffices, there is never more than one additional chunk of a size: there are few states.

use crate::queue::{Choice, Waiting};

/// Marks the sum of a state that is not reached.
const NEVER_US: u64 = u64::MAX;
/// Marks no state.
const NOWHERE: u32 = u32::MAX;
/// Sizes of chunks.
const LEVELS: usize = 4;

/// For each prefix of the candidates, and each final state, the least sum of run times, and the
/// previous state.
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
    /// `None` if more than `work_max` entries would be evaluated.
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

    /// The best choices for the first `head` candidates, traced back from the best state.
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

/// Index of a size; `None` for no devices.
fn level(units: u32) -> Option<usize> {
    (units > 0).then(|| units.trailing_zeros() as usize)
}

/// All states, numbered.
struct Space {
    /// Number of values of each count.
    radix: [usize; LEVELS],
    states: usize,
}

impl Space {
    fn new(chunks: [u32; LEVELS], states_max: usize) -> Option<Self> {
        // The largest ones never result from splitting.
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
            // Only unreachable states have more than can be counted.
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
