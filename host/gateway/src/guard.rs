//! A step's guard, which notifies the scheduler however the handler ends.

use crate::routing::SchedulerClient;
use crate::trace::StepTrace;
use treadle_core::Event;
use treadle_core::programs::{ProgramEvent, StepFailure, StepTokens};
use treadle_http::InUse;
use treadle_model::{FinishReason, Span, StepId};
use treadle_scheduler::Recording;

/// Reports the step as cancelled when dropped before it was settled, which is how a client's
/// disconnect reaches the scheduler.
pub(crate) struct StepGuard {
    client: SchedulerClient,
    step: StepId,
    trace: StepTrace,
    settled: bool,
    /// The permit for a step of its tenant.
    _room: InUse<1>,
}

impl StepGuard {
    pub(crate) fn new(
        client: SchedulerClient,
        step: StepId,
        trace: StepTrace,
        room: InUse<1>,
    ) -> Self {
        Self {
            client,
            step,
            trace,
            settled: false,
            _room: room,
        }
    }

    /// Marks the step as already ended for the scheduler.
    pub(crate) fn settle(&mut self) {
        self.trace.refused();
        self.settled = true;
    }

    /// Whether its end is reported.
    pub(crate) const fn is_settled(&self) -> bool {
        self.settled
    }

    pub(crate) fn first_token(&self) {
        self.trace.first_token();
        self.client
            .event(Event::Program(ProgramEvent::StepFirstToken {
                step: self.step,
            }));
    }

    pub(crate) fn progressed(&self, output_tokens: u64) {
        self.client
            .event(Event::Program(ProgramEvent::StepProgressed {
                step: self.step,
                output_tokens,
            }));
    }

    /// Reports a complete response. Its end is sent to the client once this is on record, so that a
    /// complete response is always durable.
    pub(crate) fn finished(
        &mut self,
        tokens: StepTokens,
        finish: FinishReason,
        weights: Option<&str>,
    ) -> Option<Recording> {
        if std::mem::replace(&mut self.settled, true) {
            return None;
        }
        self.trace.finished(tokens);
        let finished = Event::Program(ProgramEvent::StepFinished {
            step: self.step,
            tokens,
            finish,
            weights: weights.map(Into::into),
        });
        Some(self.client.event_to_record(finished))
    }

    /// Reports that the step failed permanently.
    pub(crate) fn failed(&mut self, cause: &str) {
        if !std::mem::replace(&mut self.settled, true) {
            self.report_failure(cause, false, false, None);
        }
    }

    /// Reports that the engine refused the request as invalid.
    pub(crate) fn rejected(&mut self, cause: &str) {
        if !std::mem::replace(&mut self.settled, true) {
            self.report_failure(cause, false, true, None);
        }
    }

    /// Reports a failed attempt, or for how long the engine is busy; the scheduler decides what
    /// follows.
    pub(crate) fn attempt_failed(&self, cause: &str, busy: Option<Span>) {
        self.report_failure(cause, true, false, busy);
    }

    fn report_failure(&self, cause: &str, retryable: bool, rejected: bool, busy: Option<Span>) {
        self.trace.failed(cause, !retryable);
        let failure = StepFailure {
            cause: cause.into(),
            retryable,
            rejected,
            busy,
        };
        self.client.event(Event::Program(ProgramEvent::StepFailed {
            step: self.step,
            failure,
        }));
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        if !self.settled {
            self.client
                .event(Event::Program(ProgramEvent::StepCancelled {
                    step: self.step,
                }));
        }
    }
}
