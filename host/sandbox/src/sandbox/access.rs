//! A sandbox's files, from outside.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::Sandbox;
use crate::error::SandboxError;
use crate::files::{Entry, Files};
use crate::inside::IDS;
use crate::wire::Guard;

impl Sandbox {
    /// Does something with its files, once it is ready.
    async fn files<T: Send + 'static>(
        self: &Arc<Self>,
        path: &str,
        work: impl FnOnce(Files<'_>) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        self.files_of((0, 0), path, work).await
    }

    /// The same, where what is made is a user's and a group's.
    async fn files_of<T: Send + 'static>(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
        work: impl FnOnce(Files<'_>) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        if owner.0.max(owner.1) >= IDS {
            let problem = format!("must have a user and a group below {IDS}");
            return Err(SandboxError::Value("owner", problem));
        }
        let live = self.present().await?;
        let config = &self.agent.config;
        let (uid, is_unbounded) = (config.uid, config.without.contains(&Guard::Lookup));
        let done = tokio::task::spawn_blocking(move || {
            work(Files {
                root: live.root(),
                uid,
                owner,
                is_unbounded,
            })
        });
        let done = done
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(|error| SandboxError::File {
            path: path.to_owned(),
            error,
        })
    }

    /// The bytes of a file that has no more than `bytes_max`.
    pub async fn read(
        self: &Arc<Self>,
        path: &str,
        bytes_max: u64,
    ) -> Result<Vec<u8>, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.read(&inside, bytes_max))
            .await
    }

    /// A file to be read.
    pub async fn open(self: &Arc<Self>, path: &str) -> Result<File, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.open(&inside)).await
    }

    /// Writes a file, and makes the folders on the way.
    pub async fn write(self: &Arc<Self>, path: &str, bytes: Vec<u8>) -> Result<(), SandboxError> {
        let inside = path.to_owned();
        let room = self.room();
        self.files(path, move |files| {
            if bytes.len() as u64 > room {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let mut file = files.create(&inside, 0o644)?;
            std::io::Write::write_all(&mut file, &bytes)
        })
        .await
    }

    /// A file to be written from its beginning, with the folders on the way.
    pub async fn create(self: &Arc<Self>, path: &str, mode: u32) -> Result<File, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.create(&inside, mode))
            .await
    }

    /// The same; the file and the folders are a user's and a group's inside, where they are new.
    pub async fn create_as(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
        mode: u32,
    ) -> Result<File, SandboxError> {
        let inside = path.to_owned();
        self.files_of(owner, path, move |files| files.create(&inside, mode))
            .await
    }

    /// Bytes that it may write to disk yet, as last measured.
    pub fn room(&self) -> u64 {
        self.agent
            .config
            .disk_bytes_max
            .saturating_sub(self.lock().disk_bytes)
    }

    /// What a path leads to; a link is told as such.
    pub async fn stat(self: &Arc<Self>, path: &str) -> Result<Entry, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.stat(&inside)).await
    }

    /// What is in a folder and so many levels below, by path.
    pub async fn list(
        self: &Arc<Self>,
        path: &str,
        depth: u32,
    ) -> Result<Vec<Entry>, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.list(&inside, depth))
            .await
    }

    /// Makes a folder and those on the way. Gives whether it is new.
    pub async fn make_folder(self: &Arc<Self>, path: &str) -> Result<bool, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.make_folders(Path::new(&inside)))
            .await
    }

    /// The same; they are a user's and a group's inside, where they are new.
    pub async fn make_folder_as(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
    ) -> Result<bool, SandboxError> {
        let inside = path.to_owned();
        let make = move |files: Files<'_>| files.make_folders(Path::new(&inside));
        self.files_of(owner, path, make).await
    }

    /// Gives a file another place.
    pub async fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<(), SandboxError> {
        let (old, new) = (from.to_owned(), to.to_owned());
        self.files(from, move |files| files.rename(&old, &new))
            .await
    }

    /// Removes a file, or a folder with all that is in it.
    pub async fn remove_file(self: &Arc<Self>, path: &str) -> Result<(), SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.remove(&inside)).await
    }
}
