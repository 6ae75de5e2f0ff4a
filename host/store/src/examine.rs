//! Checks of a store for `treadle doctor`, which change nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{SchemaStatus, StoreError};

/// Clock difference between host and database beyond which `treadle doctor` warns, in milliseconds.
pub(crate) const CLOCK_SKEW_MS_MAX: i64 = 1_000;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// Works, but should be looked at.
    Warn,
    /// Does not work.
    Fail,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Its severity.
    pub grade: Grade,
    /// Description of the result.
    pub finding: String,
    /// What to do; empty if nothing.
    pub remedy: String,
}

impl Finding {
    /// A finding without a problem.
    pub(crate) fn ok(check: &'static str, finding: impl Into<String>) -> Self {
        Self::of(check, Grade::Ok, finding, "")
    }

    /// A finding with any grade.
    pub(crate) fn of(
        check: &'static str,
        grade: Grade,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            grade,
            finding: finding.into(),
            remedy: remedy.into(),
        }
    }

    /// A check that failed with an error.
    pub(crate) fn failed(check: &'static str, error: &StoreError) -> Self {
        match error {
            StoreError::Postgres { source, remedy, .. } => {
                Self::of(check, Grade::Fail, source.to_string(), *remedy)
            }
            // Other messages end with the remedy.
            other => {
                let text = other.to_string();
                let (finding, remedy) = text.rsplit_once("; ").unwrap_or((&text, ""));
                Self::of(check, Grade::Fail, finding, remedy)
            }
        }
    }

    /// The state of the migrations.
    pub(crate) fn of_schema(status: &SchemaStatus, location: &str) -> Self {
        let check = "schema";
        if let Err(error) = status.demand_usable(location) {
            return Self::failed(check, &error);
        }
        let newest = status.applied.last().map_or(0, |row| row.version);
        if status.pending.is_empty() {
            return Self::ok(check, format!("up to date, at migration {newest}"));
        }
        let finding = format!(
            "at migration {newest}, {} are pending",
            status.pending.len()
        );
        Self::of(check, Grade::Warn, finding, "run `treadle store migrate`")
    }

    /// The difference between the clocks of database and host. `asked` is the host's time of the
    /// query and `took` the time until its answer.
    pub(crate) fn of_clock(asked: SystemTime, took: Duration, database_us: u64) -> Self {
        let host = asked + took / 2;
        let host_us = host.duration_since(UNIX_EPOCH).unwrap_or_default();
        let host_us = i128::try_from(host_us.as_micros()).unwrap_or(i128::MAX);
        let skew_ms = (i128::from(database_us) - host_us) / 1_000;
        let finding = format!("the database's clock is {skew_ms} ms ahead of this host's");
        if skew_ms.abs() <= i128::from(CLOCK_SKEW_MS_MAX) {
            return Self::ok("clock", finding);
        }
        let remedy = "synchronise both clocks (chrony, systemd-timesyncd); leadership depends only on the database's clock";
        Self::of("clock", Grade::Warn, finding, remedy)
    }
}

/// Starts a measurement: the current time, and a timer for the duration.
pub(crate) fn stopwatch() -> (SystemTime, Instant) {
    (SystemTime::now(), Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_far_off_is_a_warning() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let near = Finding::of_clock(now, Duration::from_millis(10), 1_000_004_000);
        assert_eq!(near.grade, Grade::Ok);
        let far = Finding::of_clock(now, Duration::ZERO, 995_000_000);
        assert_eq!(far.grade, Grade::Warn);
        assert!(far.finding.contains("-5000 ms"), "{}", far.finding);
    }
}
