//! Actions whose work a handler does itself.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

/// How long a handler may take to end its work after its time limit. Only then is it stopped as if
/// its client had cancelled it.
const SPARE: Duration = Duration::from_secs(10);

/// Length of the token that identifies a handler.
pub const TOKEN_CHARS: usize = 32;

/// The work of a handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldAction {
    /// Its program, if it is live.
    pub program: Option<String>,
    /// The job, if no program is live.
    pub job: String,
    /// The tool.
    pub kind: String,
    /// Its sandbox.
    pub sandbox: String,
    /// Its description for display.
    pub what: String,
    /// Its time limit, which the handler enforces.
    pub run_max: Duration,
}

impl HeldAction {
    /// The action as it is submitted, with a time limit in seconds.
    pub(crate) fn submission(
        &self,
        token: &str,
        with_program: bool,
        run_s_max: u64,
    ) -> serde_json::Value {
        let run_s = (self.run_max + SPARE).as_secs().clamp(1, run_s_max);
        let run = json!({"held": {"token": token, "sandbox": self.sandbox, "what": self.what}});
        let mut whole = json!({"kind": self.kind, "run_s_max": run_s, "run": run});
        match &self.program {
            Some(program) if with_program => whole["program_id"] = json!(program),
            _ => whole["job"] = json!(self.job),
        }
        whole
    }
}
