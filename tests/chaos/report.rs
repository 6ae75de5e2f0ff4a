//! What a run came to.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::checker::Verdict;
use crate::schedule::Victim;

/// What a run came to.
pub(crate) struct Report {
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
    pub(crate) verdict: Verdict,
}

impl Report {
    /// Nothing lost, nothing counted twice, nothing stuck.
    pub(crate) fn is_clean(&self) -> bool {
        self.verdict.is_clean()
    }

    pub(crate) fn to_json(&self) -> Value {
        let verdict = &self.verdict;
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
            "seed": self.seed,
            "seconds": self.seconds.round(),
            "daemons": self.daemons,
            "kills": kills,
            "programs": self.programs,
            "requests": self.requests,
            "acknowledged": verdict.acknowledged,
            "events": verdict.events,
            "messages": verdict.messages,
            "messages_repeated": verdict.messages_repeated,
            "lost": verdict.lost.count,
            "double_counted": verdict.double_counted.count,
            "stuck": verdict.stuck.count,
            "takeover_ms": takeover.map(|outages| spread(outages)),
            "outage_ms": outages,
            "ended_by_themselves": self.ended_by_themselves,
            "checksum": verdict.checksum,
            "problems": verdict.problems(),
            "folder": self.folder,
        })
    }
}

/// Median and greatest.
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
