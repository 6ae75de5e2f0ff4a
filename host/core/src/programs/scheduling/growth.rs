//! How much memory programs under way will need at most: they grow in step, and
//! those with least to come end first.

/// A program under way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Growing {
    /// Tokens that it is predicted to generate yet.
    pub(crate) remaining: u64,
    /// Context that it holds now.
    pub(crate) held: u64,
}

/// The memory of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    capacity_tokens: u64,
    growth_ppm: u32,
    /// The most to come first.
    under_way: Vec<Growing>,
    /// No other is admitted.
    pub(crate) closed: bool,
}

impl Memory {
    pub(crate) fn new(capacity_tokens: u64, growth_ppm: u32, mut under_way: Vec<Growing>) -> Self {
        under_way.sort_unstable_by_key(|growing| std::cmp::Reverse(growing.remaining));
        Self {
            capacity_tokens,
            growth_ppm,
            under_way,
            closed: false,
        }
    }

    /// Lets a program in if the memory will do for all, or if it is the only one.
    pub(crate) fn admits(&mut self, program: Growing) -> bool {
        if self.closed {
            return false;
        }
        let place = |growing: &Growing| growing.remaining > program.remaining;
        let place = self.under_way.partition_point(place);
        self.under_way.insert(place, program);
        let admitted = self.under_way.len() == 1 || self.peak_tokens() <= self.capacity_tokens;
        if !admitted {
            self.under_way.remove(place);
        }
        admitted
    }

    /// The most that is needed at any time: just before each of them ends, those
    /// with more to come have grown as much as it.
    fn peak_tokens(&self) -> u64 {
        let (mut held, mut peak) = (0_u64, 0_u64);
        for (index, growing) in self.under_way.iter().enumerate() {
            held = held.saturating_add(growing.held);
            let grown = u128::from(growing.remaining) * u128::from(self.growth_ppm) / 1_000_000;
            let grown = u64::try_from(grown).unwrap_or(u64::MAX);
            let all = grown.saturating_mul(index as u64 + 1);
            peak = peak.max(held.saturating_add(all));
        }
        peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(remaining: u64, held: u64) -> Growing {
        Growing { remaining, held }
    }

    #[test]
    fn the_peak_is_when_the_sum_is_largest() {
        // At the end of the short ones three hold 110 each; at the end of the long one it
        // holds 200 alone.
        let under_way = vec![growing(100, 100), growing(10, 100), growing(10, 100)];
        let memory = Memory::new(0, 1_000_000, under_way);
        assert_eq!(memory.peak_tokens(), 330);
    }

    #[test]
    fn a_program_is_let_in_if_all_will_fit_and_the_first_always() {
        let mut memory = Memory::new(250, 1_000_000, Vec::new());
        assert!(memory.admits(growing(900, 100)), "alone");
        assert!(
            !memory.admits(growing(1, 1)),
            "the first needs more than there is"
        );
        let mut memory = Memory::new(250, 1_000_000, vec![growing(100, 100)]);
        assert!(memory.admits(growing(10, 40)));
        assert!(!memory.admits(growing(60, 100)));
        memory.closed = true;
        assert!(!memory.admits(growing(0, 0)));
    }
}
