//! A step's guard: whatever becomes of its handler, the scheduler hears of it.

use crate::driver::DriverHandle;
use treadle_core::{Event, StepFailure, StepTokens};
use treadle_model::{FinishReason, StepId};

/// Reports the step as withdrawn when dropped before it was settled: that is
/// how a client's disconnect reaches the scheduler.
pub(super) struct StepGuard {
    driver: DriverHandle,
    step: StepId,
    settled: bool,
}

impl StepGuard {
    pub(super) fn new(driver: DriverHandle, step: StepId) -> Self {
        Self {
            driver,
            step,
            settled: false,
        }
    }

    /// The scheduler knows already that the step is over.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    pub(super) fn first_token(&self) {
        self.driver.event(Event::StepFirstToken { step: self.step });
    }

    pub(super) fn progressed(&self, output_tokens: u64) {
        self.driver.event(Event::StepProgressed {
            step: self.step,
            output_tokens,
        });
    }

    pub(super) fn finished(&mut self, tokens: StepTokens, finish: FinishReason) {
        if !std::mem::replace(&mut self.settled, true) {
            self.driver.event(Event::StepFinished {
                step: self.step,
                tokens,
                finish,
            });
        }
    }

    /// The engine failed the step for good.
    pub(super) fn failed(&mut self, cause: &str) {
        if !std::mem::replace(&mut self.settled, true) {
            self.report_failure(cause, false);
        }
    }

    /// The engine failed this attempt; the scheduler decides what follows.
    pub(super) fn attempt_failed(&self, cause: &str) {
        self.report_failure(cause, true);
    }

    fn report_failure(&self, cause: &str, retryable: bool) {
        let failure = StepFailure {
            cause: cause.into(),
            retryable,
        };
        self.driver.event(Event::StepFailed {
            step: self.step,
            failure,
        });
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        if !self.settled {
            self.driver.event(Event::StepCancelled { step: self.step });
        }
    }
}
