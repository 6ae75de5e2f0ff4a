//! A step's guard: whatever happens to its handler, the scheduler is notified.

use crate::routing::SchedulerClient;
use crate::trace::StepTrace;
use treadle_core::{Event, ProgramEvent, StepFailure, StepTokens};
use treadle_http::InUse;
use treadle_model::{FinishReason, Span, StepId};
use treadle_scheduler::Recording;

/// Reports the step as withdrawn when dropped before it was settled: that is
/// how a client's disconnect reaches the scheduler.
pub(crate) struct StepGuard {
    client: SchedulerClient,
    step: StepId,
    trace: StepTrace,
    settled: bool,
    /// The step, as one of its tenant's; given back at its end.
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

    /// The scheduler knows already that the step is over.
    pub(crate) fn settle(&mut self) {
        self.trace.refused();
        self.settled = true;
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

    /// The answer is complete. Its end goes to the client once this is on record: a client that
    /// holds a whole answer can rely on it.
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

    /// The engine failed the step for good.
    pub(crate) fn failed(&mut self, cause: &str) {
        if !std::mem::replace(&mut self.settled, true) {
            self.report_failure(cause, false, false, None);
        }
    }

    /// The engine refused the request itself.
    pub(crate) fn rejected(&mut self, cause: &str) {
        if !std::mem::replace(&mut self.settled, true) {
            self.report_failure(cause, false, true, None);
        }
    }

    /// The engine failed this attempt, or is busy for so long; the scheduler decides what follows.
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
