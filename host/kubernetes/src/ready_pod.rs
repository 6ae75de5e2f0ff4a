//! A pod that is ready: what runs in it, and scripts that are carried out there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::watch;

use crate::copies::Copies;
use crate::exec;
use crate::fate::{Ending, Fate};
use crate::script;

/// How long a script may take that sends a signal.
pub(crate) const SIGNAL_MAX: Duration = Duration::from_secs(5);
/// How often it is tried to end a command.
const TRIES: u32 = 3;

/// A pod that is ready.
#[derive(Clone)]
pub(crate) struct ReadyPod {
    pub(crate) api: Api<Pod>,
    /// Its name.
    pub(crate) name: String,
    pub(crate) fate: watch::Receiver<Fate>,
    /// A folder of this machine for files that come and go.
    pub(crate) folder: PathBuf,
    /// What a file may have that is copied.
    pub(crate) file_bytes_max: u64,
    pub(crate) copies: Arc<Copies>,
    commands: Arc<Mutex<Commands>>,
}

/// Commands that run.
#[derive(Debug, Default)]
struct Commands {
    next: u64,
    running: BTreeMap<u64, Command>,
}

/// A command that runs.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The number of its process inside.
    pub(crate) pid: i32,
    /// What its processes have in their environment.
    pub(crate) mark: String,
    /// Signals that were sent to it.
    pub(crate) sent: BTreeSet<i32>,
}

impl fmt::Debug for ReadyPod {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.debug_struct("ReadyPod")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ReadyPod {
    pub(crate) fn new(
        api: Api<Pod>,
        name: String,
        fate: watch::Receiver<Fate>,
        folder: PathBuf,
        file_bytes_max: u64,
        copies: Arc<Copies>,
    ) -> Self {
        Self {
            api,
            name,
            fate,
            folder,
            file_bytes_max,
            copies,
            commands: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Commands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a command that was started.
    pub(crate) fn started(&self, command: Command) -> u64 {
        let mut commands = self.lock();
        commands.next += 1;
        let id = commands.next;
        commands.running.insert(id, command);
        id
    }

    /// A command that is to be sent a signal, unless it has ended.
    pub(crate) fn signalled(&self, id: u64, signal: i32) -> Option<Command> {
        let mut commands = self.lock();
        let command = commands.running.get_mut(&id)?;
        command.sent.insert(signal);
        Some(command.clone())
    }

    /// Whether the pod has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.fate.borrow(), Fate::Ended(_))
    }

    /// Whether a command was sent a signal.
    pub(crate) fn was_sent(&self, id: u64, signal: i32) -> bool {
        let commands = self.lock();
        let command = commands.running.get(&id);
        command.is_some_and(|command| command.sent.contains(&signal))
    }

    /// Takes in that a command has ended.
    pub(crate) fn ended(&self, id: u64) {
        self.lock().running.remove(&id);
    }

    /// Waits until the pod has ended.
    pub(crate) async fn ending(&self) -> Ending {
        let mut fate = self.fate.clone();
        let ended = fate.wait_for(|fate| matches!(fate, Fate::Ended(_))).await;
        match ended.as_deref() {
            Ok(Fate::Ended(ending)) => ending.clone(),
            _ => Ending::lost("nobody follows it any more"),
        }
    }

    /// Ends a command and all that descends from it.
    pub(crate) async fn end_command(&self, pid: Option<i32>, mark: &str) -> io::Result<()> {
        let text = script::end_command(pid, mark);
        let mut told = Ok(());
        for _ in 0..TRIES {
            told = self.tell(&text, SIGNAL_MAX).await;
            if told.is_ok() || self.has_ended() {
                break;
            }
        }
        told
    }

    /// Carries out a script that tells nothing.
    pub(crate) async fn tell(&self, text: &str, max: Duration) -> io::Result<()> {
        let sink = tokio::io::sink();
        exec::run(&self.api, &self.name, text, None, sink, (u64::MAX, max)).await?;
        Ok(())
    }
}
