//! Workers that fail, as options name them.

use std::str::FromStr;

/// Latest time and longest absence, in seconds.
const SECONDS_MAX: f64 = 1e6;

/// One worker that fails once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Failure {
    worker: u32,
    at_s: f64,
    for_s: f64,
}

impl Failure {
    /// When, who and for how long, in microseconds.
    pub(super) fn us(self) -> (u64, u32, u64) {
        let us = |seconds: f64| (seconds * 1e6).round() as u64;
        (us(self.at_s), self.worker, us(self.for_s))
    }
}

impl FromStr for Failure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || "give WORKER@S:FOR_S, as 3@60:30".to_owned();
        let (worker, times) = text.split_once('@').ok_or_else(shape)?;
        let (at, lasts) = times.split_once(':').ok_or_else(shape)?;
        let seconds = |text: &str| {
            let seconds = text.parse::<f64>().map_err(|_| shape())?;
            if (0.0..=SECONDS_MAX).contains(&seconds) {
                return Ok(seconds);
            }
            Err(format!("{text} is not from 0 to {SECONDS_MAX:.0} seconds"))
        };
        Ok(Self {
            worker: worker.parse().map_err(|_| shape())?,
            at_s: seconds(at)?,
            for_s: seconds(lasts)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read() {
        let failure: Failure = "3@60:0.5".parse().unwrap();
        assert_eq!(failure.us(), (60_000_000, 3, 500_000));
        for text in ["", "3", "3@60", "x@60:1", "3@-1:1", "3@1:1e9", "3@1:NaN"] {
            assert!(text.parse::<Failure>().is_err(), "{text}");
        }
    }
}
