//! What sandboxes are made on: the kernel of this machine, or anything else that has room for them.
//!
//! An agent keeps the records of sandboxes, their states, their time and their turns. A
//! [`Platform`] has a [`Place`] for each of them, and what is made there is an [`Environment`], which
//! runs commands and has files.

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
use crate::files::Entry;
use crate::record::Record;

/// Where sandboxes are made.
#[async_trait]
pub trait Platform: Debug + Send + Sync {
    /// Ends what an earlier agent left. Of sandboxes that are not among the `kept` ones nothing stays;
    /// those may be more than have a [`place`](Self::place), as some records can't be read.
    async fn take_in(&self, kept: &BTreeSet<String>) -> Result<(), SandboxError>;

    /// The place of one sandbox, whose own folder on this machine is such.
    fn place(&self, id: &str, folder: &Path) -> Box<dyn Place>;

    /// Whether a sandbox may be made of an image.
    fn check_image(&self, name: &str) -> Result<(), SandboxError>;

    /// Names of all images that are known beforehand.
    fn images(&self) -> Vec<String>;

    /// A sandbox is made of an image now.
    fn used(&self, name: &str) {
        let _ = name;
    }

    /// Images that may be removed to make room, and what they take.
    async fn measured(&self) -> io::Result<Vec<MeasuredImage>> {
        Ok(Vec::new())
    }

    /// The tenant whose an image is; nothing where it is all tenants'.
    fn image_owner(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Whether images are made of files of this machine; why not.
    fn check_imports(&self, name: &str) -> Result<(), SandboxError> {
        let _ = name;
        Ok(())
    }

    /// Makes an image of files of this machine: a tenant's, or all tenants' without one.
    async fn import(
        &self,
        name: &str,
        from: &Path,
        owner: Option<&str>,
    ) -> Result<(), SandboxError>;

    /// Removes an image.
    async fn remove_image(&self, name: &str) -> Result<(), SandboxError>;

    /// Whether processes can be stopped and go on, and files be copied; why not.
    fn check_pauses(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// What is to be done once no sandbox runs any more.
    fn close(&self) {}
}

/// An image that may be removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeasuredImage {
    /// Its name.
    pub name: String,
    /// What it takes of the disk.
    pub bytes: u64,
    /// When a sandbox was made of it last; when it came, before that. In microseconds since 1970.
    pub used_at_us: u64,
}

/// The place of one sandbox.
#[async_trait]
pub trait Place: Debug + Send + Sync {
    /// Takes the room that it needs, before anyone is told that it is on record.
    async fn claim(&self, record: &Record) -> Result<(), SandboxError> {
        let _ = record;
        Ok(())
    }

    /// Makes it, over what files it has.
    async fn make(&self, record: &Record) -> io::Result<Arc<dyn Environment>>;

    /// Ends its processes. Gives whether all have ended.
    async fn end(&self) -> bool;

    /// Ends its processes, and begins to remove what is outside of the sandbox's folder. Waits for no
    /// other sandbox. Gives whether nothing is left.
    async fn remove(&self) -> bool;

    /// Stops its processes, or lets them go on.
    async fn freeze(&self, frozen: bool) -> io::Result<()>;

    /// Copies its files to a folder of layers, while its processes are stopped if it `runs`.
    async fn copy(&self, layer: &str, runs: bool) -> io::Result<()>;

    /// Why the sandbox and its files are gone for good, where they are.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Bytes that it has on disk, if that is to be bounded here.
    async fn disk_bytes(&self) -> Option<u64>;

    /// Bytes that a file may have now that is written from outside.
    fn transfer_bytes_max(&self) -> u64 {
        u64::MAX
    }

    /// Gives its processes the cores of all commands that run.
    fn give(&self, grants: &[&[u32]]) -> io::Result<()>;

    /// Bytes of memory that it has.
    fn memory_bytes(&self) -> u64;

    /// How often a process of it was ended because there was no memory left.
    fn out_of_memory(&self) -> u64;
}

/// A sandbox that is there.
#[async_trait]
pub trait Environment: Debug + Send + Sync {
    /// Whether all its processes have ended.
    fn is_gone(&self) -> bool;

    /// Runs a command with these as its standard input, output and error output.
    async fn spawn(&self, order: Order, streams: [OwnedFd; 3]) -> Result<Started, SandboxError>;

    /// Sends a signal to a command's first process, or to all that descends from it.
    async fn signal(&self, id: u64, signal: i32, tree: bool) -> io::Result<()>;

    /// A file to be read that has no more than `bytes_max`.
    async fn open(&self, path: &str, bytes_max: u64) -> io::Result<File>;

    /// A file to be written from its beginning, with the folders on the way. What is new is `owner`'s.
    async fn create(&self, path: &str, mode: u32, owner: (u32, u32)) -> io::Result<File>;

    /// Puts what was created in its place, now that all is written.
    async fn finish(&self, path: &str, mode: u32, owner: (u32, u32), file: File) -> io::Result<()>;

    /// What a path leads to; a link is told as such.
    async fn stat(&self, path: &str) -> io::Result<Entry>;

    /// What is in a folder and `depth` levels of folders below, by path.
    async fn list(&self, path: &str, depth: u32) -> io::Result<Vec<Entry>>;

    /// Makes a folder and those on the way. Gives whether it is new.
    async fn make_folder(&self, path: &str, owner: (u32, u32)) -> io::Result<bool>;

    /// Gives a file another place.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, or a folder with all that is in it.
    async fn remove(&self, path: &str) -> io::Result<()>;
}

/// What an environment is to run.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Where it runs; where the environment has commands run if empty.
    pub cwd: String,
    /// User and group inside; the environment's own if it is none.
    pub user: Option<(u32, u32)>,
    /// Whether what it tells of errors goes the way of its output.
    pub merged: bool,
}

/// A command that was started.
#[derive(Debug)]
pub struct Started {
    /// Its number for signals.
    pub id: u64,
    /// The number of its process inside.
    pub pid: i32,
    /// How it ended. Nobody knows where this is dropped.
    pub ended: oneshot::Receiver<End>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// With a code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// By the kernel, as the sandbox had no memory left.
    OutOfMemory,
    /// As the sandbox wrote more to disk than it may.
    OutOfDisk,
    /// With the sandbox.
    Gone,
}
