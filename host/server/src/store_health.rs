//! Health of the store, for `/health` and metrics.

use serde::Serialize;
use std::time::Duration;
use treadle_http::Exposition;
use treadle_store::{Condition, Failing};
use utoipa::ToSchema;

/// How long a failure must last before the daemon reports itself unhealthy.
const GRACE: Duration = Duration::from_secs(2);

/// Current failures of the store; empty if there are none.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StoreHealth {
    /// Operations that fail at present.
    failing: Vec<StoreFailure>,
    /// The cause, if the opened store is gone and nothing is written any more.
    lost: Option<String>,
}

/// An operation of the store that fails at present.
#[derive(Debug, Serialize, ToSchema)]
struct StoreFailure {
    /// The operation, such as `journal`, without which nothing is acknowledged.
    what: &'static str,
    /// When it started to fail, in microseconds since 1970.
    since_us: u64,
    /// The last error, with its remedy.
    error: String,
}

impl StoreHealth {
    /// The health for a store's condition.
    pub(crate) fn of(condition: &Condition) -> Self {
        let failure = |failing: &Failing| StoreFailure {
            what: failing.what,
            since_us: failing.since_us,
            error: failing.error.clone(),
        };
        Self {
            failing: condition.failing.iter().map(failure).collect(),
            lost: condition.lost.as_deref().map(str::to_owned),
        }
    }
}

/// Why the daemon can't serve because of its store: a status word, and a cause that anyone may see.
pub(crate) fn objection(condition: &Condition) -> Option<(&'static str, &'static str)> {
    if condition.lost.is_some() {
        let detail = "the store was deleted, moved or replaced; the daemon ends";
        return Some(("store_lost", detail));
    }
    let journal = condition.journal()?;
    let detail = "the journal can't be written; nothing is acknowledged until it can";
    (journal.lasts >= GRACE).then_some(("store_failing", detail))
}

/// The metrics of a store's condition.
pub(crate) fn render(condition: &Condition) -> String {
    let mut text = Exposition::default();
    let name = "treadle_store_failures_total";
    text.head(
        name,
        "counter",
        "Failed reads and writes of the store, by kind.",
    );
    for (what, count) in &condition.failures {
        text.row(name, &format!("what=\"{what}\""), *count);
    }
    let name = "treadle_store_failing_seconds";
    text.head(
        name,
        "gauge",
        "How long the store has been failing, by kind.",
    );
    for failing in &condition.failing {
        let seconds = failing.lasts.as_secs_f64();
        text.row(name, &format!("what=\"{}\"", failing.what), seconds);
    }
    text.gauge(
        "treadle_store_lost",
        "1 once the opened store is gone, else 0.",
        u64::from(condition.lost.is_some()),
    );
    text.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(what: &'static str, lasts: Duration) -> Condition {
        Condition {
            failing: vec![Failing {
                what,
                since_us: 7,
                lasts,
                error: "the disk is full".into(),
            }],
            failures: vec![(what, 3)],
            lost: None,
        }
    }

    #[test]
    fn only_the_journal_takes_a_daemon_out_and_not_at_once() {
        let word = |condition: &Condition| objection(condition).map(|(word, _)| word);
        assert_eq!(word(&Condition::default()), None);
        assert_eq!(word(&failing("journal", GRACE / 2)), None);
        assert_eq!(word(&failing("journal", GRACE)), Some("store_failing"));
        assert_eq!(word(&failing("audit", GRACE * 9)), None);
        let lost = Condition {
            lost: Some("it was deleted".into()),
            ..Condition::default()
        };
        assert_eq!(word(&lost), Some("store_lost"));
    }

    #[test]
    fn metrics_name_what_fails() {
        let text = render(&failing("journal", Duration::from_millis(1_500)));
        for row in [
            "treadle_store_failures_total{what=\"journal\"} 3",
            "treadle_store_failing_seconds{what=\"journal\"} 1.5",
            "treadle_store_lost 0",
        ] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
    }
}
