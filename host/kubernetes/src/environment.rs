//! A ready pod as the environment of a sandbox.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use async_trait::async_trait;
use treadle_sandbox::{Entry, Environment, Order, SandboxError, Started, UserIds};

use crate::commands;
use crate::files;
use crate::ready_pod::{ReadyPod, SIGNAL_MAX};
use crate::script;

#[async_trait]
impl Environment for ReadyPod {
    fn is_gone(&self) -> bool {
        self.has_ended()
    }

    async fn spawn(&self, order: Order, streams: [OwnedFd; 3]) -> Result<Started, SandboxError> {
        commands::spawn(self.clone(), order, streams).await
    }

    async fn signal(&self, id: u64, signal: i32, tree: bool) -> io::Result<()> {
        let Some(command) = self.signalled(id, signal) else {
            return Ok(());
        };
        if !tree {
            return self
                .tell(&script::signal(command.pid, signal), SIGNAL_MAX)
                .await;
        }
        self.end_command(Some(command.pid), &command.mark).await
    }

    async fn open(&self, path: &str, bytes_max: u64) -> io::Result<File> {
        files::open(self, path, bytes_max).await
    }

    async fn create(&self, _: &str, _: u32, _: UserIds) -> io::Result<File> {
        self.copies.make(&self.folder)
    }

    async fn finish(&self, path: &str, mode: u32, owner: UserIds, file: File) -> io::Result<()> {
        files::write(self, path, mode, owner, file).await
    }

    async fn stat(&self, path: &str) -> io::Result<Entry> {
        files::stat(self, path).await
    }

    async fn list(&self, path: &str, depth: u32) -> io::Result<Vec<Entry>> {
        files::list(self, path, depth).await
    }

    async fn make_folder(&self, path: &str, owner: UserIds) -> io::Result<bool> {
        files::make_folder(self, path, owner).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        files::rename(self, from, to).await
    }

    async fn remove(&self, path: &str) -> io::Result<()> {
        files::remove(self, path).await
    }
}
