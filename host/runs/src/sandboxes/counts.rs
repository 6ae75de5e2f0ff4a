//! Metrics of sandboxes.

use super::Host;
use std::collections::BTreeMap;
use treadle_http::Exposition;
use treadle_sandbox::State;

/// The name of a state.
pub fn state_name(state: &State) -> &'static str {
    match state {
        State::Preparing => "preparing",
        State::Ready => "ready",
        State::Paused => "paused",
        State::Stopped => "stopped",
        State::Failed(_) => "failed",
        State::Removed => "removed",
    }
}

impl Host {
    /// Renders the metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut by_state: BTreeMap<&str, u64> =
            ["preparing", "ready", "paused", "stopped", "failed"]
                .map(|state| (state, 0))
                .into();
        let (mut memory, mut disk) = (0, 0);
        for sandbox in self.sandboxes.list() {
            *by_state.entry(state_name(&sandbox.state)).or_default() += 1;
            memory += sandbox.memory_bytes;
            disk += sandbox.disk_bytes;
        }
        let mut text = Exposition::default();
        let name = "treadle_sandboxes";
        text.head(name, "gauge", "Sandboxes by state.");
        for (state, count) in by_state {
            text.row(name, &format!("state=\"{state}\""), count);
        }
        let help = "Memory used by sandboxes, in bytes.";
        text.gauge("treadle_sandboxes_memory_bytes", help, memory);
        let help = "Bytes that sandboxes have written to disk, at the last measurement.";
        text.gauge("treadle_sandboxes_disk_bytes", help, disk);
        let counters = self.sandboxes.counters();
        let help = "Sandboxes that became ready.";
        text.counter("treadle_sandboxes_prepared_total", help, counters.prepared);
        let name = "treadle_sandboxes_preparation_seconds_total";
        text.head(
            name,
            "counter",
            "Total seconds from the request for a sandbox until it was ready.",
        );
        text.row(name, "", counters.prepared_in.as_secs_f64());
        let help = "Sandboxes that could not be created.";
        text.counter("treadle_sandboxes_failed_total", help, counters.failed);
        text.into_string()
    }
}
