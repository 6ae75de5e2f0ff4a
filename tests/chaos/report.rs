//! The report of a run.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::checker::CheckResult;
use crate::schedule::Victim;

/// The result of a run.
pub(crate) struct Report {
    pub(crate) form: &'static str,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) daemons: u16,
    pub(crate) programs: u32,
    pub(crate) requests: u64,
    /// Time without service after each kill, in milliseconds.
    pub(crate) outages_ms: BTreeMap<Victim, Vec<f64>>,
    /// Processes that ended by themselves.
    pub(crate) ended_by_themselves: u64,
    pub(crate) folder: String,
    pub(crate) check_result: CheckResult,
}

impl Report {
    /// Whether nothing was lost, counted twice or stuck, no text was wrong and no promise broken.
    pub(crate) fn is_clean(&self) -> bool {
        self.check_result.is_clean()
    }

    pub(crate) fn to_json(&self) -> Value {
        let check_result = &self.check_result;
        let kills: BTreeMap<&str, usize> = self
            .outages_ms
            .iter()
            .map(|(victim, outages)| (victim.as_str(), outages.len()))
            .collect();
        let outages: BTreeMap<&str, Value> = self
            .outages_ms
            .iter()
            .map(|(victim, outages)| (victim.as_str(), spread(outages)))
            .collect();
        let takeover = self.outages_ms.get(&Victim::Leader);
        json!({
            "form": self.form,
            "seed": self.seed,
            "seconds": self.seconds.round(),
            "daemons": self.daemons,
            "kills": kills,
            "programs": self.programs,
            "requests": self.requests,
            "acknowledged": check_result.acknowledged,
            "events": check_result.events,
            "events_removed": check_result.events_removed,
            "programs_removed": check_result.programs_removed,
            "messages": check_result.messages,
            "messages_repeated": check_result.messages_repeated,
            "lost": check_result.lost.count,
            "double_counted": check_result.double_counted.count,
            "wrong_text": check_result.wrong_text.count,
            "violations": check_result.violations.count,
            "stuck": check_result.stuck.count,
            "not_exercised": check_result.not_exercised.count,
            "counted": check_result.counted,
            "takeover_ms": takeover.map(|outages| spread(outages)),
            "outage_ms": outages,
            "ended_by_themselves": self.ended_by_themselves,
            "checksums": check_result.checksums,
            "problems": check_result.problems(),
            "folder": self.folder,
        })
    }
}

/// Median and maximum.
fn spread(values: &[f64]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    json!({
        "p50": sorted.get(sorted.len() / 2).map(|ms| ms.round()),
        "max": sorted.last().map(|ms| ms.round()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_greatest() {
        assert_eq!(spread(&[3.0, 1.0, 2.2]), json!({"p50": 2.0, "max": 3.0}));
        assert_eq!(spread(&[]), json!({"p50": null, "max": null}));
    }
}
