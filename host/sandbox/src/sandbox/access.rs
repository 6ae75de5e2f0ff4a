//! Access to a sandbox's files from outside.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::Sandbox;
use crate::blocking::blocking;
use crate::error::SandboxError;
use crate::files::{Entry, UserIds, bytes_of};
use crate::inside::IDS;

/// Default owner of files made from outside.
const ROOT: UserIds = UserIds::ROOT;
/// Default permissions of files written from outside.
const MODE: u32 = 0o644;

/// The error for a path.
fn at(path: &str) -> impl FnOnce(io::Error) -> SandboxError {
    let path = path.to_owned();
    |error| SandboxError::File { path, error }
}

fn check_owner(owner: UserIds) -> Result<(), SandboxError> {
    if owner.user.max(owner.group) >= IDS {
        let problem = format!("must have a user and a group below {IDS}");
        return Err(SandboxError::Value("owner", problem));
    }
    Ok(())
}

impl Sandbox {
    /// Reads a file of at most `bytes_max`.
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

    /// Opens a file for reading.
    pub async fn open(self: &Arc<Self>, path: &str) -> Result<File, SandboxError> {
        let opened = self.present().await?.open(path, u64::MAX).await;
        opened.map_err(at(path))
    }

    /// Writes a file, including missing folders.
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

    /// Creates or truncates a file for writing, including missing folders. It is moved to its place
    /// when it is [finished](Self::finish).
    pub async fn create(self: &Arc<Self>, path: &str, mode: u32) -> Result<File, SandboxError> {
        self.create_as(ROOT, path, mode).await
    }

    /// Creates or truncates a file for writing; it and missing folders get this owner inside.
    pub async fn create_as(
        self: &Arc<Self>,
        owner: UserIds,
        path: &str,
        mode: u32,
    ) -> Result<File, SandboxError> {
        check_owner(owner)?;
        let created = self.present().await?.create(path, mode, owner).await;
        created.map_err(at(path))
    }

    /// Moves a completely written file to its place; the arguments must be those of
    /// [`create_as`](Self::create_as).
    pub async fn finish(
        self: &Arc<Self>,
        owner: UserIds,
        path: &str,
        mode: u32,
        file: File,
    ) -> Result<(), SandboxError> {
        check_owner(owner)?;
        let finished = self.present().await?.finish(path, mode, owner, file).await;
        finished.map_err(at(path))
    }

    /// Maximum size of a file written from outside now, as last measured.
    pub fn room(&self) -> u64 {
        let left = self.disk_bytes_max().saturating_sub(self.lock().disk_bytes);
        left.min(self.place.transfer_bytes_max())
    }

    /// The limit on its files, in bytes.
    pub fn disk_bytes_max(&self) -> u64 {
        self.agent.config.disk_bytes_max
    }

    /// The entry of a path; links are not followed.
    pub async fn stat(self: &Arc<Self>, path: &str) -> Result<Entry, SandboxError> {
        self.present().await?.stat(path).await.map_err(at(path))
    }

    /// Lists a folder and `depth` levels of subfolders, by path.
    pub async fn list(
        self: &Arc<Self>,
        path: &str,
        depth: u32,
    ) -> Result<Vec<Entry>, SandboxError> {
        let listed = self.present().await?.list(path, depth).await;
        listed.map_err(at(path))
    }

    /// Makes a folder and its missing parents. Returns whether it is new.
    pub async fn make_folder(self: &Arc<Self>, path: &str) -> Result<bool, SandboxError> {
        self.make_folder_as(ROOT, path).await
    }

    /// Makes a folder and its missing parents with this owner inside. Returns whether it is new.
    pub async fn make_folder_as(
        self: &Arc<Self>,
        owner: UserIds,
        path: &str,
    ) -> Result<bool, SandboxError> {
        check_owner(owner)?;
        let made = self.present().await?.make_folder(path, owner).await;
        made.map_err(at(path))
    }

    /// Renames a file or folder.
    pub async fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<(), SandboxError> {
        let renamed = self.present().await?.rename(from, to).await;
        renamed.map_err(at(from))
    }

    /// Removes a file, or a folder with its contents.
    pub async fn remove_file(self: &Arc<Self>, path: &str) -> Result<(), SandboxError> {
        self.present().await?.remove(path).await.map_err(at(path))
    }
}
