//! Builds answers to `arrange` that fit into the free units and chunks.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::{ActionColumns, PoolColumns};

/// Sizes of chunks of devices.
const SIZES: [u32; 4] = [1, 2, 4, 8];

/// The remaining units of one pool.
///
/// Devices are granted in the smallest chunk that has them, which is split if it is larger. Because
/// sizes are powers of two, some actions fit together, in any order, if and only if for each size
/// those of that size and above fit into the chunks of that size and above. So it is enough to
/// count what these have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeUnits {
    chunked: bool,
    /// Units in chunks of at least 1, 2, 4 and 8; for a pool without chunks only the first counts.
    left: [u64; 4],
}

impl FreeUnits {
    /// The free units of a pool.
    pub fn of(pools: &PoolColumns<'_>, pool: usize) -> Self {
        let Some(chunks) = pools.chunks(pool) else {
            return Self::plain(pools.free_units[pool]);
        };
        Self::chunked(chunks)
    }

    /// A pool of interchangeable units.
    pub fn plain(units: u32) -> Self {
        Self {
            chunked: false,
            left: [u64::from(units), 0, 0, 0],
        }
    }

    /// A pool with these numbers of chunks of 1, 2, 4 and 8 devices.
    pub fn chunked(chunks: [u32; 4]) -> Self {
        let units = |size: usize| u64::from(chunks[size]) * u64::from(SIZES[size]);
        Self {
            chunked: true,
            left: std::array::from_fn(|size| (size..4).map(units).sum()),
        }
    }

    /// The number of remaining units.
    pub fn units(&self) -> u64 {
        self.left[0]
    }

    /// Units that an action with this demand takes: a whole chunk, if there are chunks. `None` if
    /// no size of chunk is large enough.
    pub fn taken(&self, units: u32) -> Option<u32> {
        if !self.chunked || units == 0 {
            return Some(units);
        }
        SIZES.into_iter().find(|size| *size >= units)
    }

    /// Whether an action with this demand fits.
    pub fn fits(&self, units: u32) -> bool {
        let mut after = *self;
        after.take(units)
    }

    /// Takes the units for an action with this demand, if they are free.
    pub fn take(&mut self, units: u32) -> bool {
        let Some(taken) = self.taken(units) else {
            return false;
        };
        let levels = self.levels(taken);
        let fits = self.left[..levels]
            .iter()
            .all(|left| *left >= u64::from(taken));
        if fits {
            for left in &mut self.left[..levels] {
                *left -= u64::from(taken);
            }
        }
        fits
    }

    /// Returns the units of an action with this demand.
    pub fn give_back(&mut self, units: u32) {
        if let Some(taken) = self.taken(units) {
            let levels = self.levels(taken);
            for left in &mut self.left[..levels] {
                *left += u64::from(taken);
            }
        }
    }

    /// The number of counts that an action of this size is part of.
    fn levels(&self, taken: u32) -> usize {
        if self.chunked {
            SIZES.iter().filter(|size| **size <= taken).count()
        } else {
            1
        }
    }
}

/// An answer to `arrange` under construction, which takes only free units.
#[derive(Debug, Clone)]
pub struct Arrangement<'a> {
    actions: ActionColumns<'a>,
    free: Vec<FreeUnits>,
    chosen: Vec<i32>,
}

impl<'a> Arrangement<'a> {
    /// An answer in which all rows wait.
    pub fn new(actions: &ActionColumns<'a>) -> Self {
        let pools = 0..actions.pools.len();
        Self {
            actions: *actions,
            free: pools
                .map(|pool| FreeUnits::of(&actions.pools, pool))
                .collect(),
            chosen: vec![-1; actions.len()],
        }
    }

    /// The remaining units of a pool.
    pub fn free(&self, pool: usize) -> &FreeUnits {
        &self.free[pool]
    }

    /// Starts a row with an option, by its index within the row, or changes its option. Returns
    /// `false` and changes nothing if that does not fit or there is no such option.
    pub fn start(&mut self, row: usize, option: usize) -> bool {
        let Some(at) = self.actions.options(row).nth(option) else {
            return false;
        };
        let free = &mut self.free[self.actions.pool[row] as usize];
        let before = *free;
        if let Ok(option) = usize::try_from(self.chosen[row]) {
            free.give_back(self.actions.option_units[self.actions.options(row).start + option]);
        }
        if free.take(self.actions.option_units[at]) {
            self.chosen[row] = i32::try_from(option).unwrap_or(i32::MAX);
            return true;
        }
        *free = before;
        false
    }

    /// Starts the candidates of each pool in order, each with the option that `choose` returns for
    /// its row, up to the first that does not fit.
    pub fn in_order(&mut self, choose: impl Fn(usize) -> usize) {
        let mut ended = vec![false; self.free.len()];
        for row in 0..self.actions.len() {
            let pool = self.actions.pool[row] as usize;
            if self.actions.is_candidate(row) && !ended[pool] {
                ended[pool] = !self.start(row, choose(row));
            }
        }
    }

    /// Distributes remaining units to the rows that start, each time where they save most time per
    /// unit.
    pub fn share_out(&mut self) {
        let rows = 0..self.actions.len();
        let mut steps: BinaryHeap<Step> = rows.filter_map(|row| self.step(row)).collect();
        while let Some(step) = steps.pop() {
            self.start(step.row, step.option);
            // If it no longer fits, a smaller option may.
            steps.extend(self.step(step.row));
        }
    }

    /// The answer.
    pub fn answer(self) -> Vec<i32> {
        self.chosen
    }

    /// The best larger option of a row that starts, among those that fit now.
    fn step(&self, row: usize) -> Option<Step> {
        let actions = &self.actions;
        let chosen = usize::try_from(self.chosen[row]).ok()?;
        let options = actions.options(row);
        let now = options.start + chosen;
        let now_us = actions.option_time_us(now)?;
        let mut free = self.free[actions.pool[row] as usize];
        let held = free.taken(actions.option_units[now])?;
        free.give_back(held);
        let step = |option: usize| {
            let at = options.start + option;
            let saved_us = now_us - actions.option_time_us(at)?;
            let more = free.taken(actions.option_units[at])?.checked_sub(held)?;
            let fits = saved_us > 0.0 && free.fits(actions.option_units[at]);
            fits.then(|| Step {
                saved_us: saved_us / f64::from(more.max(1)),
                row,
                option,
            })
        };
        (chosen + 1..options.len()).filter_map(step).max()
    }
}

/// A larger option for a row.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Time saved per additional unit.
    saved_us: f64,
    row: usize,
    option: usize,
}

impl Ord for Step {
    /// On equal savings the first row wins, and the smaller option.
    fn cmp(&self, other: &Self) -> Ordering {
        let saved = self.saved_us.total_cmp(&other.saved_us);
        saved
            .then(other.row.cmp(&self.row))
            .then(other.option.cmp(&self.option))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Grants devices as the host does: from the smallest sufficient chunk, split in halves.
    fn hand_out(chunks: &mut [u32; 4], units: u32) -> bool {
        let Some(level) = SIZES.iter().position(|size| *size >= units) else {
            return false;
        };
        let Some(from) = (level..4).find(|&from| chunks[from] > 0) else {
            return false;
        };
        chunks[from] -= 1;
        for half in &mut chunks[level..from] {
            *half += 1;
        }
        true
    }

    #[test]
    fn counts_of_chunks_say_what_splitting_them_says() {
        let mut random = SplitMix64::new(3);
        let mut refused = 0;
        for _ in 0..2_000 {
            let mut chunks: [u32; 4] = std::array::from_fn(|_| (random.next_u64() % 4) as u32);
            let mut free = FreeUnits::chunked(chunks);
            while !random.next_u64().is_multiple_of(16) {
                let units = 1 + (random.next_u64() % 9) as u32;
                let before = (chunks, free);
                let fits = free.fits(units);
                assert_eq!(hand_out(&mut chunks, units), fits, "{before:?} {units}");
                assert_eq!(free.take(units), fits);
                refused += u32::from(!fits);
            }
        }
        assert!(refused > 1_000, "{refused}");
    }

    #[test]
    fn units_left_over_go_where_each_saves_most() {
        let actions = ActionColumns {
            pool: &[0, 0, 0],
            candidate: &[1, 1, 1],
            waited_us: &[0; 3],
            option_start: &[0, 3, 6, 8],
            option_units: &[1, 2, 4, 1, 2, 4, 2, 8],
            option_us: &[80.0, 50.0, 30.0, 400.0, 200.0, 100.0, -1.0, 5.0],
            option_load_us: &[0.0; 8],
            pools: PoolColumns {
                free_units: &[8],
                chunked: &[0],
                free_chunks: &[0; 4],
            },
            ..ActionColumns::default()
        };
        assert_eq!(actions.check(0), Ok(()));
        let mut arrangement = Arrangement::new(&actions);
        arrangement.in_order(|_| 0);
        assert_eq!(arrangement.clone().answer(), [0, 0, 0]);
        arrangement.share_out();
        // Four for the second row, and one of them is left for the first; the third is not known.
        assert_eq!(arrangement.clone().answer(), [1, 2, 0]);
        assert!(!arrangement.start(0, 2) && !arrangement.start(0, 3));
        assert!(arrangement.start(1, 0) && arrangement.start(0, 2));
        assert_eq!(arrangement.answer(), [2, 0, 0]);
    }
}
