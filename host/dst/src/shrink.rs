//! Shrinking: the same seed with fewer programs and fewer faults, as long as
//! a rule is still broken.

use super::{FaultKind, Options, Outcome, explore};

/// Maximum number of variants that are tried.
const TRIES_MAX: usize = 120;

/// The smallest failing variant found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The options of that variant.
    pub options: Options,
    /// Its outcome.
    pub outcome: Outcome,
    /// Number of variants that were tried.
    pub tries: usize,
}

/// Shrinks a failing simulation.
pub fn shrink(seed: u64, options: &Options) -> Option<Shrunk> {
    let outcome = explore(seed, options);
    outcome.violation.as_ref()?;
    let mut shrunk = Shrunk {
        options: options.clone(),
        outcome,
        tries: 1,
    };
    shrunk.leave_kinds_out(seed);
    shrunk.halve(
        seed,
        |o| o.faults_planned,
        |options, most| options.faults_max = Some(most),
    );
    shrunk.halve(
        seed,
        |o| o.programs,
        |options, most| options.programs_max = Some(most),
    );
    shrunk.leave_kinds_out(seed);
    Some(shrunk)
}

impl Shrunk {
    fn attempt(&mut self, seed: u64, options: Options) -> bool {
        if self.tries >= TRIES_MAX {
            return false;
        }
        self.tries += 1;
        let outcome = explore(seed, &options);
        let fails = outcome.violation.is_some();
        if fails {
            self.options = options;
            self.outcome = outcome;
        }
        fails
    }

    fn leave_kinds_out(&mut self, seed: u64) {
        for kind in FaultKind::ALL {
            if self.options.without.contains(kind)
                || !self.outcome.faults.0.contains_key(kind.name())
            {
                continue;
            }
            let mut options = self.options.clone();
            options.without.push(*kind);
            self.attempt(seed, options);
        }
    }

    /// Reduces a number: first by halves, then by one.
    fn halve(
        &mut self,
        seed: u64,
        count: impl Fn(&Outcome) -> usize,
        set: impl Fn(&mut Options, usize),
    ) {
        let mut step = count(&self.outcome).div_ceil(2);
        while step > 0 {
            let mut options = self.options.clone();
            let left = count(&self.outcome);
            if left >= step {
                set(&mut options, left - step);
                if self.attempt(seed, options) {
                    continue;
                }
            }
            step /= 2;
        }
    }
}
