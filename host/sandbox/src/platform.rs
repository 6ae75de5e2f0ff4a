//! Platforms for sandboxes: this machine's kernel, or other systems.
//!
//! An agent manages the records, states, lifetimes and queue of sandboxes. A [`Platform`] has a
//! [`Place`] for each of them, where it makes an [`Environment`], which runs commands and has
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::error::SandboxError;
use crate::files::{Entry, UserIds};
use crate::record::Record;

/// A system on which sandboxes are made.
#[async_trait]
pub trait Platform: Debug + Send + Sync {
    /// Ends what an earlier agent left. Nothing is kept of sandboxes that are not in `kept`; those
    /// may be more than have a [`place`](Self::place), because some records may be unreadable.
    async fn take_in(&self, kept: &BTreeSet<String>) -> Result<(), SandboxError>;

    /// The place of a tenant's sandbox with this local folder.
    fn place(&self, id: &str, tenant: &str, folder: &Path) -> Box<dyn Place>;

    /// Limits the memory of all sandboxes of a tenant together, if this agent has to.
    ///
    /// # Errors
    /// If they have more, and the system can't take it from them.
    async fn limit_memory(&self, tenant: &str, bytes: u64) -> io::Result<()> {
        let _ = (tenant, bytes);
        Ok(())
    }

    /// Checks that sandboxes can be made of an image.
    fn check_image(&self, name: &str) -> Result<(), SandboxError>;

    /// Names of all images that are known in advance.
    fn images(&self) -> Vec<String>;

    /// Records that a sandbox is made of an image.
    fn used(&self, name: &str) {
        let _ = name;
    }

    /// Images that may be removed to free space, with their sizes.
    async fn measured(&self) -> io::Result<Vec<MeasuredImage>> {
        Ok(Vec::new())
    }

    /// The tenant that owns an image; `None` if all tenants may use it.
    fn image_owner(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Checks that images can be imported from this machine's files.
    fn check_imports(&self, name: &str) -> Result<(), SandboxError> {
        let _ = name;
        Ok(())
    }

    /// Imports an image from this machine's files, for a tenant or for all.
    async fn import(
        &self,
        name: &str,
        from: &Path,
        owner: Option<&str>,
    ) -> Result<(), SandboxError>;

    /// Removes an image.
    async fn remove_image(&self, name: &str) -> Result<(), SandboxError>;

    /// Checks that processes can be paused and files copied.
    fn check_pauses(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// Cleans up when no sandbox runs any more.
    fn close(&self) {}
}

/// A removable image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeasuredImage {
    /// Its name.
    pub name: String,
    /// Its size on disk.
    pub bytes: u64,
    /// When a sandbox was last made of it, or when it was imported; in microseconds since 1970.
    pub used_at_us: u64,
}

/// The place of a sandbox on a platform.
#[async_trait]
pub trait Place: Debug + Send + Sync {
    /// Reserves the required room, before the sandbox is acknowledged.
    async fn claim(&self, record: &Record) -> Result<(), SandboxError> {
        let _ = record;
        Ok(())
    }

    /// Starts the environment over the existing files.
    async fn make(&self, record: &Record) -> io::Result<Arc<dyn Environment>>;

    /// Ends its processes. Returns whether all have ended.
    async fn end(&self) -> bool;

    /// Ends its processes, and starts removing what is outside of the sandbox's folder. Does not
    /// wait for other sandboxes. Returns whether nothing is left.
    async fn remove(&self) -> bool;

    /// Pauses or resumes its processes.
    async fn freeze(&self, frozen: bool) -> io::Result<()>;

    /// Copies its files to a layer; its processes are frozen meanwhile if it `runs`.
    async fn copy(&self, layer: &str, runs: bool) -> io::Result<()>;

    /// Why the sandbox and its files are permanently lost, if they are.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Bytes that it uses on disk, if this agent has to enforce the limit.
    async fn disk_bytes(&self) -> Option<u64>;

    /// Maximum size of a file written from outside now.
    fn transfer_bytes_max(&self) -> u64 {
        u64::MAX
    }

    /// Assigns the cores of all running commands to its processes.
    fn give(&self, grants: &[&[u32]]) -> io::Result<()>;

    /// Current memory use in bytes.
    fn memory_bytes(&self) -> u64;

    /// Number of processes that were killed because of the memory limit.
    fn out_of_memory(&self) -> u64;
}

/// A running sandbox.
#[async_trait]
pub trait Environment: Debug + Send + Sync {
    /// Whether all its processes have ended.
    fn is_gone(&self) -> bool;

    /// Runs a command with these as standard input, output and error.
    async fn spawn(&self, order: Order, streams: [OwnedFd; 3]) -> Result<Started, SandboxError>;

    /// Sends a signal to a command's first process, or to its whole process tree.
    async fn signal(&self, id: u64, signal: i32, tree: bool) -> io::Result<()>;

    /// Opens a file for reading, of at most `bytes_max`.
    async fn open(&self, path: &str, bytes_max: u64) -> io::Result<File>;

    /// Creates or truncates a file for writing, including missing folders. New ones belong to
    /// `owner`.
    async fn create(&self, path: &str, mode: u32, owner: UserIds) -> io::Result<File>;

    /// Moves a completely written file to its place.
    async fn finish(&self, path: &str, mode: u32, owner: UserIds, file: File) -> io::Result<()>;

    /// The entry of a path; links are not followed.
    async fn stat(&self, path: &str) -> io::Result<Entry>;

    /// Lists a folder and `depth` levels of subfolders, by path.
    async fn list(&self, path: &str, depth: u32) -> io::Result<Vec<Entry>>;

    /// Makes a folder and its missing parents. Returns whether it is new.
    async fn make_folder(&self, path: &str, owner: UserIds) -> io::Result<bool>;

    /// Renames a file or folder.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, or a folder with its contents.
    async fn remove(&self, path: &str) -> io::Result<()>;
}

/// A command to run.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// The program and its arguments, without a shell.
    pub command: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Working folder; the environment's default if empty.
    pub cwd: String,
    /// User and group inside; the environment's default if `None`.
    pub user: Option<UserIds>,
    /// Whether standard error is merged into standard output.
    pub merged: bool,
}

/// A started command.
#[derive(Debug)]
pub struct Started {
    /// Its id for signals.
    pub id: u64,
    /// Its pid inside.
    pub pid: i32,
    /// How it ended; unknown if the channel is closed without a value.
    pub ended: oneshot::Receiver<End>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// It exited with a code.
    Exited(i32),
    /// It was killed by a signal.
    Killed(i32),
    /// The kernel killed it because of the sandbox's memory limit.
    OutOfMemory,
    /// The sandbox exceeded its disk limit.
    OutOfDisk,
    /// The sandbox ended.
    Gone,
}
