//! Commands of shells as actions, which hold cores while they run.

use crate::actions::Failure;
use crate::sandboxes::{Host, Task};
use std::sync::Arc;
use treadle_actions::{Hold, outcome};
use treadle_core::actions::Outcome;
use treadle_sandbox::{End, Grant, Sandbox, Share};

/// A command of a shell as an action. Dropping this ends the action, and the command may continue
/// in the background.
pub struct CommandAction {
    hold: Hold,
    grant: Grant,
}

impl CommandAction {
    /// Waits for a command's turn.
    pub async fn wait(host: &Host, sandbox: &Arc<Sandbox>, task: &Task) -> Result<Self, Failure> {
        let hold = host.hold(sandbox, task).await?;
        let grant = sandbox.grant(hold.share.clone());
        Ok(Self { hold, grant })
    }

    /// Its share of the processors.
    pub fn share(&self) -> Share {
        self.hold.share.clone()
    }

    /// Waits until it is cancelled.
    pub async fn stopped(&mut self) {
        self.hold.stopped().await;
    }

    /// Ends it. Returns how it really ended.
    pub fn end(mut self, end: End, is_late: bool, output: Vec<u8>) -> End {
        let end = self.grant.end(end);
        self.hold.end(outcome(end, is_late), output);
        end
    }

    /// Ends it as cancelled.
    pub fn withdraw(self) {
        self.hold.end(Outcome::Cancelled, Vec::new());
    }
}
