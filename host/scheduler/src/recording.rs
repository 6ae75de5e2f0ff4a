//! Futures for events that are being recorded.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Why an event is not on record.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotRecorded {
    /// The scheduler stopped, or another one took over.
    #[error("treadle stopped before this was on record; send it again")]
    Stopped,
    /// The store can't hold it.
    #[error(
        "the store rejected this event; shorten names and numbers (the daemon's log names the row)"
    )]
    Refused,
}

/// Completes once an event is on record, or never will be.
#[derive(Debug)]
pub struct Recording(oneshot::Receiver<Result<(), NotRecorded>>);

/// The sender. Dropping it means that the scheduler has stopped.
#[derive(Debug)]
pub struct Recorder(oneshot::Sender<Result<(), NotRecorded>>);

impl Recording {
    /// Both ends for one event.
    pub fn new() -> (Recorder, Self) {
        let (sender, receiver) = oneshot::channel();
        (Recorder(sender), Self(receiver))
    }

    /// The result, if it is available.
    pub fn result(&mut self) -> Option<Result<(), NotRecorded>> {
        match self.0.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(Err(NotRecorded::Stopped)),
        }
    }
}

impl Future for Recording {
    type Output = Result<(), NotRecorded>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let told = Pin::new(&mut self.0).poll(context);
        told.map(|told| told.unwrap_or(Err(NotRecorded::Stopped)))
    }
}

impl Recorder {
    /// Reports the result. The receiver may be gone.
    pub fn settle(self, outcome: Result<(), NotRecorded>) {
        let _ = self.0.send(outcome);
    }
}

/// The driver has stopped; it accepts nothing more.
#[derive(Debug, thiserror::Error)]
#[error("the scheduler has stopped")]
pub struct DriverStopped;
