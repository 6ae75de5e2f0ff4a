//! Limits on requests to an external service: concurrent requests, requests per period, and a pause
//! after a refusal.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use treadle_model::{ActionId, Span, Timestamp};

/// A period is divided into this many parts; requests of a part are counted together. A part counts
/// until its last moment is a period ago, so that no period exceeds the limit.
const PARTS: u64 = 64;
/// The first pause after a refusal that names none; each further refusal doubles it.
const PAUSE: Span = Span::from_secs(1);
/// Maximum number of doublings.
const DOUBLINGS_MAX: u32 = 6;
/// The longest pause.
const PAUSE_MAX: Span = Span::from_secs(3_600);

/// Recent requests.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// Requests by the part of a period in which they began.
    recent: VecDeque<(u64, u64)>,
    /// No request is sent before this time.
    pub paused_until: Timestamp,
    /// Refusals since the last successful request.
    pub refusals: u32,
}

fn part(period: Span) -> u64 {
    period.micros().div_ceil(PARTS).max(1)
}

/// When the requests of a part stop counting.
fn over(number: u64, period: Span) -> Timestamp {
    let end = number.saturating_add(1).saturating_mul(part(period));
    Timestamp(end.saturating_add(period.micros()))
}

impl Quota {
    /// Requests that count at `now`.
    pub fn requests(&self, period: Span, now: Timestamp) -> u64 {
        let counts = |(number, _): &&(u64, u64)| over(*number, period) > now;
        self.recent.iter().filter(counts).map(|(_, n)| *n).sum()
    }

    /// Counts requests that begin now.
    pub(crate) fn ask(&mut self, requests: u64, period: Span, now: Timestamp) {
        let is_over = |(number, _): &mut (u64, u64)| over(*number, period) <= now;
        while self.recent.pop_front_if(is_over).is_some() {}
        let number = now.0 / part(period);
        match self.recent.back_mut() {
            Some((last, n)) if *last == number => *n += requests,
            _ => self.recent.push_back((number, requests)),
        }
    }

    /// When more requests become possible by time alone, if ever.
    pub fn eases_at(&self, period: Span, now: Timestamp) -> Option<Timestamp> {
        if self.paused_until > now {
            return Some(self.paused_until);
        }
        let ends = self.recent.iter().map(|(number, _)| over(*number, period));
        ends.filter(|at| *at > now).min()
    }

    /// Handles a refusal: no request is sent for the time that the service gave, or for twice the
    /// last pause, plus up to a quarter, so that not all come back together. Refusals of requests
    /// that were under way during a pause count as one.
    pub(crate) fn refused(&mut self, retry_after: Span, by: ActionId, now: Timestamp) {
        if self.paused_until <= now {
            self.refusals = self.refusals.saturating_add(1);
        }
        let doublings = self.refusals.saturating_sub(1).min(DOUBLINGS_MAX);
        let pause = retry_after.micros().max(PAUSE.micros() << doublings);
        let pause = pause.min(PAUSE_MAX.micros());
        let jitter = scattered(by.0 ^ (u64::from(self.refusals) << 48)) % (pause / 4).max(1);
        self.paused_until = self.paused_until.max(now + Span(pause + jitter));
    }

    /// Handles a successful request.
    pub(crate) fn answered(&mut self) {
        self.refusals = 0;
    }
}

/// Hashes a number so that neighbours differ (`SplitMix64`'s last steps).
const fn scattered(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
