//! Keepalives: comments, which clients of event streams ignore and which show proxies that a stream
//! is alive.

use bytes::Bytes;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// When the next one is due.
pub(super) struct Keepalive {
    every: Duration,
    next: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Keepalive {
    /// One after each pause of this length; none if it is zero.
    pub(super) fn new(every: Duration) -> Self {
        Self::at(Instant::now() + every, every)
    }

    /// One after each pause of this length, with the first immediately.
    pub(super) fn now(every: Duration) -> Self {
        Self::at(Instant::now(), every)
    }

    fn at(next: Instant, every: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(next));
        Self { every, next, timer }
    }

    /// Something else was sent.
    pub(super) fn sent(&mut self) {
        self.next = Instant::now() + self.every;
    }

    /// The next sign, once it is due.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        if self.every.is_zero() {
            return Poll::Pending;
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            let is_due = Instant::now() >= self.next;
            if is_due {
                self.sent();
            }
            self.timer.as_mut().reset(self.next);
            if is_due {
                return Poll::Ready(COMMENT);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Waker;

    const LONG: Duration = Duration::from_hours(1);

    fn is_due(sign: &mut Keepalive) -> bool {
        sign.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[tokio::test]
    async fn a_sign_comes_after_each_pause_only() {
        let mut sign = Keepalive::now(LONG);
        poll_fn(|context| sign.poll(context)).await;
        assert!(!is_due(&mut sign), "the next comes in an hour");
        let mut sign = Keepalive::new(Duration::from_millis(1));
        poll_fn(|context| sign.poll(context)).await;
        poll_fn(|context| sign.poll(context)).await;
    }

    #[tokio::test]
    async fn none_comes_while_others_are_sent_and_where_none_is_wanted() {
        let mut sign = Keepalive::now(LONG);
        sign.sent();
        assert!(!is_due(&mut sign));
        assert!(!is_due(&mut Keepalive::now(Duration::ZERO)));
    }
}
