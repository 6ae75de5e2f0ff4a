//! Weights of engines, as handlers of requests and the one that calls engines reach them.

use super::run::Driver;
use super::{DriverHandle, Input};
use crate::recording::{DriverStopped, NotRecorded, Recorder, Recording};
use crate::scheduler;
use std::sync::PoisonError;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use treadle_core::PublishError;
use treadle_core::weights::{State, WeightsCommand, WeightsEvent};

/// What a client wants of the weights of engines, and where to report the result.
pub(crate) struct Publish {
    pub(super) event: WeightsEvent,
    pub(super) reply: oneshot::Sender<Result<(), PublishError>>,
    pub(super) recorder: Recorder,
}

impl Driver {
    /// Handles what a client wants of the weights of engines, unless it is refused.
    pub(super) fn publish(&mut self, input: Publish) {
        let checked = self.scheduler.core().check_weights(&input.event);
        if checked.is_ok() {
            self.handle(scheduler::Input::Event(input.event.into()));
            self.training.changed();
            self.committed.push((self.scheduler.seq(), input.recorder));
        }
        let _ = input.reply.send(checked);
    }

    /// Passes a call on. Without a receiver none is made.
    pub(super) fn call_engine(&mut self, command: WeightsCommand) {
        let _ = self.weights_calls.send(command);
        self.training.changed();
    }
}

impl DriverHandle {
    /// Handles what a client wants of the weights of engines. It is on record when this completes.
    ///
    /// # Errors
    /// It is not on record. The inner error means that it was refused, and nothing has changed.
    pub async fn publish(
        &self,
        event: WeightsEvent,
    ) -> Result<Result<(), PublishError>, NotRecorded> {
        let (reply, checked) = oneshot::channel();
        let (recorder, done) = Recording::new();
        let input = Publish {
            event,
            reply,
            recorder,
        };
        self.send(Input::Publish(Box::new(input)))
            .map_err(|_| NotRecorded::Stopped)?;
        let checked = checked.await.map_err(|_| NotRecorded::Stopped)?;
        if checked.is_ok() {
            done.await?;
        }
        Ok(checked)
    }

    /// Reads what engines hold. What was read is on record when this completes.
    ///
    /// # Errors
    /// The driver has stopped.
    pub async fn weights<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, DriverStopped> {
        let read = self.read(move |view| read(view.core.weights())).await?;
        self.recorded().await?;
        Ok(read)
    }

    /// The calls to engines, in order. Each is to be made after [`DriverHandle::recorded`]: after a
    /// crash the daemon must know that it may have been made. Only the first call has it.
    pub fn take_weights_calls(&self) -> Option<UnboundedReceiver<WeightsCommand>> {
        let mut calls = self
            .weights_calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        calls.take()
    }
}
