//! A sandbox's files, from outside.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::Sandbox;
use crate::blocking::blocking;
use crate::error::SandboxError;
use crate::files::{Entry, bytes_of};
use crate::inside::IDS;

/// What is made from outside without a word whose it is.
const ROOT: (u32, u32) = (0, 0);
/// Permissions of a file that is written from outside without a word of them.
const MODE: u32 = 0o644;

/// A path that can't be reached.
fn at(path: &str) -> impl FnOnce(io::Error) -> SandboxError {
    let path = path.to_owned();
    |error| SandboxError::File { path, error }
}

fn check_owner(owner: (u32, u32)) -> Result<(), SandboxError> {
    if owner.0.max(owner.1) >= IDS {
        let problem = format!("must have a user and a group below {IDS}");
        return Err(SandboxError::Value("owner", problem));
    }
    Ok(())
}

impl Sandbox {
    /// The bytes of a file that has no more than `bytes_max`.
    pub async fn read(
        self: &Arc<Self>,
        path: &str,
        bytes_max: u64,
    ) -> Result<Vec<u8>, SandboxError> {
        let opened = self.present().await?.open(path, bytes_max).await;
        let file = opened.map_err(at(path))?;
        let bytes = blocking(move || bytes_of(file, bytes_max)).await;
        bytes.map_err(at(path))
    }

    /// A file to be read.
    pub async fn open(self: &Arc<Self>, path: &str) -> Result<File, SandboxError> {
        let opened = self.present().await?.open(path, u64::MAX).await;
        opened.map_err(at(path))
    }

    /// Writes a file, and makes the folders on the way.
    pub async fn write(self: &Arc<Self>, path: &str, bytes: Vec<u8>) -> Result<(), SandboxError> {
        let room = self.room();
        let live = self.present().await?;
        let written = async {
            if bytes.len() as u64 > room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let mut file = live.create(path, MODE, ROOT).await?;
            let file = blocking(move || {
                io::Write::write_all(&mut file, &bytes)?;
                Ok(file)
            });
            live.finish(path, MODE, ROOT, file.await?).await
        };
        written.await.map_err(at(path))
    }

    /// A file to be written from its beginning, with the folders on the way. It is in its place once
    /// it is [finished](Self::finish).
    pub async fn create(self: &Arc<Self>, path: &str, mode: u32) -> Result<File, SandboxError> {
        self.create_as(ROOT, path, mode).await
    }

    /// The same; the file and the folders are a user's and a group's inside, where they are new.
    pub async fn create_as(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
        mode: u32,
    ) -> Result<File, SandboxError> {
        check_owner(owner)?;
        let created = self.present().await?.create(path, mode, owner).await;
        created.map_err(at(path))
    }

    /// Puts a file in its place that was [created](Self::create_as) with the same words, now that all
    /// of it is written.
    pub async fn finish(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
        mode: u32,
        file: File,
    ) -> Result<(), SandboxError> {
        check_owner(owner)?;
        let finished = self.present().await?.finish(path, mode, owner, file).await;
        finished.map_err(at(path))
    }

    /// Bytes that a file may have now that is written from outside, as last measured.
    pub fn room(&self) -> u64 {
        let left = self.disk_bytes_max().saturating_sub(self.lock().disk_bytes);
        left.min(self.place.transfer_bytes_max())
    }

    /// Bytes that it may have on disk.
    pub fn disk_bytes_max(&self) -> u64 {
        self.agent.config.disk_bytes_max
    }

    /// What a path leads to; a link is told as such.
    pub async fn stat(self: &Arc<Self>, path: &str) -> Result<Entry, SandboxError> {
        self.present().await?.stat(path).await.map_err(at(path))
    }

    /// What is in a folder and so many levels below, by path.
    pub async fn list(
        self: &Arc<Self>,
        path: &str,
        depth: u32,
    ) -> Result<Vec<Entry>, SandboxError> {
        let listed = self.present().await?.list(path, depth).await;
        listed.map_err(at(path))
    }

    /// Makes a folder and those on the way. Gives whether it is new.
    pub async fn make_folder(self: &Arc<Self>, path: &str) -> Result<bool, SandboxError> {
        self.make_folder_as(ROOT, path).await
    }

    /// The same; they are a user's and a group's inside, where they are new.
    pub async fn make_folder_as(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
    ) -> Result<bool, SandboxError> {
        check_owner(owner)?;
        let made = self.present().await?.make_folder(path, owner).await;
        made.map_err(at(path))
    }

    /// Gives a file another place.
    pub async fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<(), SandboxError> {
        let renamed = self.present().await?.rename(from, to).await;
        renamed.map_err(at(from))
    }

    /// Removes a file, or a folder with all that is in it.
    pub async fn remove_file(self: &Arc<Self>, path: &str) -> Result<(), SandboxError> {
        self.present().await?.remove(path).await.map_err(at(path))
    }
}
