//! Tests that need only the policy's type: they call it with generated columns, from usual to
//! extreme ones, and check that the host would accept every answer. Native builds only.
//!
//! ```
//! # use treadle_plugin::{NoConfig, Policy, PolicyError, PriorityPolicy, QueueColumns};
//! # struct ShortestFirst;
//! # impl Policy for ShortestFirst {
//! #     type Config = NoConfig;
//! #     fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
//! #         Ok(Self)
//! #     }
//! # }
//! # impl PriorityPolicy for ShortestFirst {
//! #     fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
//! #         Ok(programs.tokens.iter().map(|&tokens| -(tokens as f64)).collect())
//! #     }
//! # }
//! use treadle_plugin::harness::Harness;
//!
//! Harness::new("{}").by_row().priority::<ShortestFirst>();
//! ```
//!
//! The tables in this module are public, for tests of a policy's own properties.

mod actions;
mod checks;
pub mod draw;
mod shaping;
mod tables;
mod worlds;

pub use actions::Actions;
pub use shaping::{Groups, Members};
pub use tables::{
    Acting, Active, Answers, Assign, Finished, Live, Migrate, Parallelism, Preempt, Queue,
    Retention, Route, Waiting, Workers,
};

use crate::random::SplitMix64;
use crate::{Policy, PolicyError, host};

use checks::Check;

/// Row counts of the first cases; later ones have up to `ROWS_MAX`.
const FIRST_ROWS: [usize; 3] = [0, 1, 2];
const ROWS_MAX: u64 = 48;
const CASES: u64 = 200;

/// Calls a policy of any world with generated columns. A failed check panics, which fails the test,
/// with the configuration, the number of the case and the problem.
#[derive(Debug, Clone, Copy)]
pub struct Harness<'c> {
    config: &'c str,
    by_row: bool,
    cases: u64,
}

impl<'c> Harness<'c> {
    /// A harness for this configuration.
    pub fn new(config: &'c str) -> Self {
        Self {
            config,
            by_row: false,
            cases: CASES,
        }
    }

    /// Also requires that the answer for a row does not depend on its position. This applies to
    /// scores and estimates; assignments, arrangements and the like depend on the order of the
    /// rows.
    #[must_use]
    pub fn by_row(mut self) -> Self {
        self.by_row = true;
        self
    }

    /// Sets the number of cases; the default is 200.
    #[must_use]
    pub fn cases(mut self, cases: u64) -> Self {
        self.cases = cases;
        self
    }

    /// Checks for policies of every world: an unknown key is refused by name, the defaults and the
    /// given configuration are accepted, a snapshot can be restored, and a damaged one does no
    /// harm.
    fn policy<P: Policy>(&self) {
        let Err(refusal) = P::configure(r#"{"no_such_key": 1}"#) else {
            panic!("an unknown key is accepted; refuse it by name");
        };
        assert!(
            refusal.message.contains("no_such_key"),
            "the refusal of an unknown key does not name it: {refusal}"
        );
        self.configured::<P>("{}");
        self.configured::<P>(self.config);
    }

    #[allow(clippy::unused_self)]
    fn configured<P: Policy>(&self, config: &str) -> P {
        host::set_config(config);
        P::configure(config).unwrap_or_else(|error| panic!("{config} is refused: {error}"))
    }

    /// Runs each case with a new policy.
    fn run<P: Policy>(&self, mut check: impl FnMut(&mut Case<P>) -> Check) {
        self.policy::<P>();
        for number in 0..self.cases {
            let mut case = self.case::<P>(number);
            if let Err(wrong) = check(&mut case) {
                panic!("case {number} with {}: {wrong}", case.config);
            }
        }
    }

    fn case<P: Policy>(&self, number: u64) -> Case<P> {
        let mut random = SplitMix64::new(number);
        let rows = match FIRST_ROWS.get(number as usize) {
            Some(&rows) => rows,
            None => draw::below(&mut random, ROWS_MAX) as usize,
        };
        host::clear_state();
        host::set_now_ms(draw::amount(&mut random));
        host::set_seed(number);
        Case {
            policy: self.configured(self.config),
            twin: self.by_row.then(|| self.configured(self.config)),
            order: draw::order(&mut random, rows),
            random,
            rows,
            extra_columns: P::COLUMNS.len(),
            config: self.config.to_owned(),
        }
    }
}

/// One case: a policy, a twin if answers must not depend on the order of rows, and the random
/// source of the columns.
struct Case<P> {
    policy: P,
    twin: Option<P>,
    order: Vec<usize>,
    random: SplitMix64,
    rows: usize,
    extra_columns: usize,
    config: String,
}

impl<P: Policy> Case<P> {
    /// Calls the policy, and its twin with the rows in another order: equal rows must get equal
    /// values.
    fn ask<T, V: Copy>(
        &mut self,
        what: &str,
        table: &T,
        permuted: &T,
        ask: impl Fn(&mut P, &T) -> Result<Vec<V>, PolicyError>,
        same: impl Fn(V, V) -> bool,
    ) -> Result<Option<Vec<V>>, String> {
        let Some(answer) = answered(what, ask(&mut self.policy, table))? else {
            return Ok(None);
        };
        if let Some(twin) = &mut self.twin {
            let moved = answered(what, ask(twin, permuted))?.unwrap_or_default();
            checks::length(what, moved.len(), answer.len())?;
            let differs = |place: &usize| !same(moved[*place], answer[self.order[*place]]);
            if let Some(place) = (0..moved.len()).find(differs) {
                return Err(format!(
                    "{what}: the answer for row {} depends on where the row stands",
                    self.order[place]
                ));
            }
        }
        Ok(Some(answer))
    }

    /// Restores the policy's snapshot in a new policy; then tries a damaged one.
    fn snapshot(&mut self) -> Check {
        let snapshot = self.policy.snapshot().map_err(|error| error.to_string())?;
        let Some(half) = snapshot.len().checked_div(2).filter(|half| *half > 0) else {
            return Ok(());
        };
        let mut successor = P::configure(&self.config).map_err(|error| error.to_string())?;
        // It may be refused, but must neither panic nor break the policy.
        let _ = successor.restore(&snapshot[..half]);
        let _ = successor.restore(&[0xff; 64]);
        successor
            .restore(&snapshot)
            .map_err(|error| format!("its own snapshot is refused: {error}"))?;
        self.policy = successor;
        Ok(())
    }
}

/// An answer; `None` where the policy leaves the decision to the host.
fn answered<T>(what: &str, answer: Result<T, PolicyError>) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_not_supported() => Ok(None),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

/// An answer to an optional function.
fn optional<T>(what: &str, functions: &[&str], answer: Option<T>) -> Result<Option<T>, String> {
    if answer.is_some() && !functions.contains(&what) {
        return Err(format!(
            "{what} is implemented but not in FUNCTIONS, so the host will not call it; add it there"
        ));
    }
    Ok(answer)
}
