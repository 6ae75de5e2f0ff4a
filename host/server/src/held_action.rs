//! What a handler does itself once it is its turn, as an action.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

/// How long a handler may take to end its work when that has run for as long as it may. Only then is
/// it told to stop, as if its client had withdrawn it.
const SPARE: Duration = Duration::from_secs(10);

/// Letters of a token that a handler is found by.
pub(crate) const TOKEN_CHARS: usize = 32;

/// What a handler is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldAction {
    /// The program whose action it is, if that lives.
    pub(crate) program: Option<String>,
    /// The job, where no program lives.
    pub(crate) job: String,
    /// The tool.
    pub(crate) kind: String,
    /// The sandbox that it is done in.
    pub(crate) sandbox: String,
    /// What it is, for those who look.
    pub(crate) what: String,
    /// After so long its handler stops it.
    pub(crate) run_max: Duration,
}

impl HeldAction {
    /// The action as it is submitted; it runs for so many seconds at most.
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
