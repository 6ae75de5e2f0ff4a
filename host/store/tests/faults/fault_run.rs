//! Runs all operations with all faults: each operation either has no effect, or fails, appears in
//! the store's condition, and succeeds after the fault; nothing is lost or stored twice.

use std::fmt::Debug;
use std::sync::Arc;

use treadle_store::{Location, Store, StoreError};

use super::operations::{Operation, Turn};

/// Attempts after a fault before the store counts as broken.
const ATTEMPTS: u32 = 4;
/// Most points of one operation at which a fault is injected.
const PLACES_MAX: u64 = 200;

/// Injects faults into a store.
pub(crate) trait Injector {
    /// A kind of fault.
    type Fault: Copy + Debug;
    /// A sample has one of this many pairs of an operation and a fault.
    const SAMPLED: usize;
    /// All faults.
    fn faults(&self) -> Vec<Self::Fault>;
    /// Arms a fault.
    fn arm(&self, fault: Self::Fault, after: u64, stays: bool);
    /// Disarms the fault; returns how often it was injected.
    fn disarm(&self) -> u64;
    /// Number of statements with a fault, and of pairs of both.
    fn met(&self) -> (usize, usize);
}

/// The results.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub operations: usize,
    pub faults: usize,
    pub statements: usize,
    pub pairs: usize,
    pub cases: u64,
    /// Cases whose operation failed, and succeeded afterwards.
    pub recovered: u64,
    /// Cases whose operation succeeded despite the fault.
    pub unharmed: u64,
    pub violations: Vec<String>,
}

impl Report {
    pub(crate) fn json(&self, store: &str) -> String {
        let violations: Vec<String> = self.violations.iter().map(|v| format!("{v:?}")).collect();
        format!(
            "{{\"store\":\"{store}\",\"operations\":{},\"errors\":{},\"statements\":{},\
             \"statements_with_errors\":{},\"cases\":{},\"recovered\":{},\"unharmed\":{},\
             \"violations\":[{}]}}",
            self.operations,
            self.faults,
            self.statements,
            self.pairs,
            self.cases,
            self.recovered,
            self.unharmed,
            violations.join(",")
        )
    }
}

/// A store under test.
pub(crate) struct FaultRun<'c, I: Injector> {
    pub store: Arc<dyn Store>,
    pub at: Location,
    pub injector: &'c I,
    pub next: u64,
    pub report: Report,
}

impl<I: Injector> FaultRun<'_, I> {
    /// Injects each fault at each point of each operation; in a sample, each fault at the first
    /// points of some operations.
    pub(crate) async fn run(&mut self, operations: &[Operation], is_sample: bool) {
        let faults = self.injector.faults();
        self.report.operations += operations.len();
        self.report.faults = faults.len();
        for (nth, operation) in operations.iter().enumerate() {
            let expected = self.clean(operation).await;
            for (which, fault) in faults.iter().enumerate() {
                if is_sample && !(31 * nth + 7 * which).is_multiple_of(I::SAMPLED) {
                    continue;
                }
                for after in 0..if is_sample { 2 } else { PLACES_MAX } {
                    let mut struck = false;
                    for stays in [false, true] {
                        struck |= self.case(operation, &expected, *fault, after, stays).await;
                    }
                    if !struck {
                        break;
                    }
                }
            }
        }
        (self.report.statements, self.report.pairs) = self.injector.met();
    }

    async fn turn(&mut self) -> Turn {
        self.next += 1;
        Turn {
            k: self.next,
            last_seq: self.store.last_seq().await.expect("nothing fails now"),
            at: self.at.clone(),
        }
    }

    /// Runs an operation without a fault; returns its result and the stored data.
    async fn clean(&mut self, operation: &Operation) -> (String, String) {
        let turn = self.turn().await;
        let store = &*self.store;
        let given = (operation.run)(store, &turn).await;
        let seen = (operation.check)(store, &turn).await;
        let name = operation.name;
        (
            given.unwrap_or_else(|error| panic!("{name} fails without a fault: {error}")),
            seen.unwrap_or_else(|error| panic!("{name} is not seen: {error}")),
        )
    }

    /// Runs one case; returns whether the fault was injected.
    async fn case(
        &mut self,
        operation: &Operation,
        expected: &(String, String),
        fault: I::Fault,
        after: u64,
        stays: bool,
    ) -> bool {
        let turn = self.turn().await;
        self.injector.arm(fault, after, stays);
        let first = (operation.run)(&*self.store, &turn).await;
        let told = self.store.condition();
        let struck = self.injector.disarm() > 0;
        if !struck {
            return false;
        }
        self.report.cases += 1;
        let place = format!(
            "{} with {fault:?} after {after}, stays {stays}",
            operation.name
        );
        match first {
            Ok(given) => {
                self.report.unharmed += 1;
                if given != expected.0 {
                    let wrong = format!("{place}: gave {given} instead of {}", expected.0);
                    self.report.violations.push(wrong);
                }
            }
            Err(error) => {
                self.report.recovered += 1;
                let is_own = operation.name != "open";
                if is_own && is_of_the_store(&error) && told.failing.is_empty() {
                    let untold = format!("{place}: {error} is told by no condition");
                    self.report.violations.push(untold);
                }
                self.again(operation, &turn, &place).await;
            }
        }
        self.look(operation, &turn, expected, &place).await;
        true
    }

    /// Retries the failed operation, which must succeed.
    async fn again(&mut self, operation: &Operation, turn: &Turn, place: &str) {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match (operation.run)(&*self.store, turn).await {
                Ok(_) => return,
                Err(error) => last = Some(error),
            }
        }
        let stuck = format!("{place}: does not recover: {last:?}");
        self.report.violations.push(stuck);
    }

    /// Checks that everything is stored once, and that no failure is reported.
    async fn look(
        &mut self,
        operation: &Operation,
        turn: &Turn,
        expected: &(String, String),
        place: &str,
    ) {
        match (operation.check)(&*self.store, turn).await {
            Ok(seen) if seen == expected.1 => {}
            seen => {
                let wrong = format!("{place}: {seen:?} is there instead of {}", expected.1);
                self.report.violations.push(wrong);
            }
        }
        let condition = self.store.condition();
        if condition.lost.is_some() || !condition.failing.is_empty() {
            let wrong = format!("{place}: is told afterwards: {condition:?}");
            self.report.violations.push(wrong);
        }
    }

    /// Checks that all acknowledged data is there when the store is opened again.
    pub(crate) async fn ends_whole(&mut self) {
        let last = self.store.last_seq().await.expect("it is read");
        self.store.close().await.expect("it closes");
        let store = treadle_store::open(&self.at).await.expect("it opens");
        let mut seen = 0;
        loop {
            let events = store.events_after(seen, 10_000).await.expect("it is read");
            for event in &events {
                assert_eq!(event.seq, seen + 1, "the journal has a gap");
                seen = event.seq;
            }
            if events.is_empty() {
                break;
            }
        }
        assert_eq!(seen, last, "of what was acknowledged, something is gone");
        store.close().await.expect("it closes");
    }
}

/// Whether an error is one of the store, not of the request.
fn is_of_the_store(error: &StoreError) -> bool {
    error.passes()
}
