//! Shells in sandboxes that outlive the requests that type into them, by their clients' names.

mod command_action;
mod shell;
mod transcript;
mod typed;

pub use command_action::CommandAction;
pub use shell::{Became, Shell, is_typable};
pub use typed::PROMPT;

use super::output_room::OutputRoom;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use treadle_sandbox::{Sandbox, SandboxError, Status};

/// Most concurrent shells of a sandbox. Each uses one of its 64 terminals.
pub const SHELLS_MAX: usize = 32;

/// Shells by sandbox and name.
type Named = BTreeMap<(String, String), Option<Arc<Shell>>>;

/// All shells. One that is being started only reserves its name.
#[derive(Debug, Default)]
pub struct Shells {
    all: Mutex<Named>,
    room: OutputRoom,
}

/// Why there is no new shell.
pub enum NoShell {
    /// The name is in use.
    Exists,
    /// The limit on shells is reached.
    Full,
    /// It can't be started.
    Failed(SandboxError),
}

/// A name that is reserved until its shell has started or failed.
struct NameReservation<'a> {
    shells: &'a Shells,
    key: (String, String),
    is_there: bool,
}

impl Drop for NameReservation<'_> {
    fn drop(&mut self) {
        if !self.is_there {
            self.shells.lock().remove(&self.key);
        }
    }
}

impl Shells {
    fn lock(&self) -> MutexGuard<'_, Named> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shell of this name.
    pub fn get(&self, sandbox: &str, name: &str) -> Option<Arc<Shell>> {
        let key = (sandbox.to_owned(), name.to_owned());
        self.lock().get(&key).cloned().flatten()
    }

    /// Starts a shell that runs some commands first, and waits for their end. It remains if they
    /// take too long.
    pub async fn start(
        &self,
        sandbox: &Arc<Sandbox>,
        name: &str,
        first: &str,
        max: Duration,
    ) -> Result<Became, NoShell> {
        let mut reservation = self.reserve_name(sandbox, name)?;
        let reserved = self.room.reserve(sandbox, transcript::BYTES_MAX);
        let reserved = reserved.map_err(NoShell::Failed)?;
        let shell = Shell::start(sandbox, first, reserved)
            .await
            .map_err(NoShell::Failed)?;
        let became = shell.started(max).await;
        if !matches!(became, Became::Gone(_)) {
            let shell = Some(Arc::new(shell));
            reservation.is_there = self.lock().insert(reservation.key.clone(), shell).is_some();
        }
        Ok(became)
    }

    fn reserve_name(&self, sandbox: &Sandbox, name: &str) -> Result<NameReservation<'_>, NoShell> {
        let key = (sandbox.id().to_owned(), name.to_owned());
        let mut all = self.lock();
        if all.contains_key(&key) {
            return Err(NoShell::Exists);
        }
        if all.keys().filter(|(of, _)| *of == key.0).count() >= SHELLS_MAX {
            return Err(NoShell::Full);
        }
        all.insert(key.clone(), None);
        Ok(NameReservation {
            shells: self,
            key,
            is_there: false,
        })
    }

    /// Ends a shell and all its processes. Returns whether it existed.
    pub async fn close(&self, sandbox: &str, name: &str) -> bool {
        let key = (sandbox.to_owned(), name.to_owned());
        let shell = self.lock().remove(&key);
        if let Some(Some(shell)) = &shell {
            shell.close().await;
        }
        shell.is_some()
    }

    /// Ends all shells of a sandbox.
    pub async fn close_all(&self, sandbox: &str) {
        let names: Vec<String> = {
            let all = self.lock();
            let own = all.keys().filter(|(of, _)| of == sandbox);
            own.map(|(_, name)| name.clone()).collect()
        };
        for name in names {
            self.close(sandbox, &name).await;
        }
    }

    /// Removes the shells of all other sandboxes.
    pub(super) fn keep(&self, sandboxes: &[Status]) {
        let is_there = |id: &String| sandboxes.iter().any(|sandbox| sandbox.id == *id);
        self.lock().retain(|(of, _), _| is_there(of));
    }
}
