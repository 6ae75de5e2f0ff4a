//! A ready pod: its running commands, and scripts that are run in it.

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

/// Timeout for sending a signal.
pub(crate) const SIGNAL_MAX: Duration = Duration::from_secs(5);
/// Attempts to end a command.
const TRIES: u32 = 3;

/// A pod that is ready.
#[derive(Clone)]
pub(crate) struct ReadyPod {
    pub(crate) api: Api<Pod>,
    /// Its name.
    pub(crate) name: String,
    pub(crate) fate: watch::Receiver<Fate>,
    /// A local folder for files in transfer.
    pub(crate) folder: PathBuf,
    /// Maximum size of a file that is transferred.
    pub(crate) file_bytes_max: u64,
    pub(crate) copies: Arc<Copies>,
    commands: Arc<Mutex<Commands>>,
}

/// The running commands.
#[derive(Debug, Default)]
struct Commands {
    next: u64,
    running: BTreeMap<u64, Command>,
}

/// A running command.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// Its pid inside.
    pub(crate) pid: i32,
    /// The mark in the environment of its processes.
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

    /// Registers a started command; returns its id.
    pub(crate) fn started(&self, command: Command) -> u64 {
        let mut commands = self.lock();
        commands.next += 1;
        let id = commands.next;
        commands.running.insert(id, command);
        id
    }

    /// Records a signal to a command; `None` if the command has ended.
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

    /// Whether a signal was sent to a command.
    pub(crate) fn was_sent(&self, id: u64, signal: i32) -> bool {
        let commands = self.lock();
        let command = commands.running.get(&id);
        command.is_some_and(|command| command.sent.contains(&signal))
    }

    /// Removes an ended command.
    pub(crate) fn ended(&self, id: u64) {
        self.lock().running.remove(&id);
    }

    /// Waits until the pod has ended.
    pub(crate) async fn ending(&self) -> Ending {
        let mut fate = self.fate.clone();
        let ended = fate.wait_for(|fate| matches!(fate, Fate::Ended(_))).await;
        match ended.as_deref() {
            Ok(Fate::Ended(ending)) => ending.clone(),
            _ => Ending::lost("it is no longer tracked"),
        }
    }

    /// Ends a command and all its descendants.
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

    /// Runs a script without output.
    pub(crate) async fn tell(&self, text: &str, max: Duration) -> io::Result<()> {
        let sink = tokio::io::sink();
        exec::run(&self.api, &self.name, text, None, sink, u64::MAX, max).await?;
        Ok(())
    }
}
