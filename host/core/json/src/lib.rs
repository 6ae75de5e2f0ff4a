//! Events and states of the core as JSON. Code that reads and writes each of their types is large;
//! here it is compiled once, not in every crate that stores or replays them.

use serde_json::Error;
use treadle_core::{Event, State};

/// The JSON of an event. Events hold only strings and numbers, so nothing of it can fail.
pub fn write_event(event: &Event) -> String {
    serde_json::to_string(event).unwrap_or_default()
}

/// Parses an event.
pub fn read_event(json: &str) -> Result<Event, Error> {
    // As bytes, like a state and like the lines between daemons: one parser for all of them.
    serde_json::from_slice(json.as_bytes())
}

/// The JSON of a state.
pub fn write_state(state: &State<'_>) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(state)
}

/// Parses a state.
pub fn read_state(json: &[u8]) -> Result<State<'static>, Error> {
    serde_json::from_slice(json)
}
