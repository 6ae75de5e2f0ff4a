//! The course of a sandbox: made, paused, resumed, copied, ended.

use std::fs;
use std::io;
use std::sync::Arc;

use super::{Sandbox, State};
use crate::agent::{blocking, whole};
use crate::error::SandboxError;
use crate::images;
use crate::layers;
use crate::live::Live;
use crate::record::now_us;
use crate::turns::Need;
use crate::wire::Setup;

impl Sandbox {
    /// Makes it, once it is its turn.
    pub(crate) async fn prepare(self: Arc<Self>) {
        let _changing = self.changing.lock().await;
        if *self.state.borrow() == State::Removed {
            return;
        }
        match self.begin().await {
            Ok(()) if *self.state.borrow() == State::Removed => {}
            Ok(()) => {
                let created_at_us = self.lock().record.created_at_us;
                self.agent.preparations.prepared(created_at_us);
            }
            Err(error) => {
                self.agent.preparations.failed();
                let cause = error.to_string();
                tracing::warn!(sandbox = %self.id, %cause, "a sandbox could not be made");
                self.end_processes().await;
                self.set(State::Failed(cause));
            }
        }
    }

    /// Changes its state, unless it is gone.
    pub(crate) fn set(&self, state: State) -> bool {
        self.state.send_if_modified(|now| {
            let is_there = *now != State::Removed;
            if is_there {
                *now = state;
            }
            is_there
        })
    }

    fn need(&self) -> Need {
        let is_made = *self.state.borrow() != State::Preparing;
        if is_made || self.state.receiver_count() > 0 {
            Need::Now
        } else {
            Need::Later
        }
    }

    /// Starts its processes over what files it has, once it is its turn.
    async fn begin(self: &Arc<Self>) -> io::Result<()> {
        let turn = self.agent.turns.take(&self.id, || self.need()).await;
        let _turn = turn.ok_or_else(|| io::Error::other("the daemon is being stopped"))?;
        if *self.state.borrow() == State::Removed {
            return Ok(());
        }
        let record = self.lock().record.clone();
        let image = self
            .agent
            .images
            .get(&record.spec.image)
            .map_err(io::Error::other)?;
        let config = &self.agent.config;
        let copies = config.folder.join("layers");
        let setup = Setup {
            name: self.id.clone(),
            root: self.folder.join("root"),
            overlays: images::overlays(&image, &record, &self.folder, &copies),
            read_only: image.read_only,
            shm_bytes: record.spec.memory_bytes.unwrap_or(config.memory_bytes) / 2,
            owner: self.agent.owner(),
            file_bytes_max: config.disk_bytes_max,
            without: config.without.clone(),
        };
        let (sandbox, uid) = (self.clone(), config.uid);
        let (setup, procs) = blocking(move || {
            for overlay in &setup.overlays {
                let part = overlay.upper.parent().unwrap_or(&sandbox.folder);
                if !overlay.upper.exists() {
                    fs::create_dir_all(part)?;
                    layers::make_owned(&overlay.upper, uid)?;
                }
                layers::remove(&overlay.work)?;
                fs::create_dir(&overlay.work)?;
            }
            fs::create_dir_all(&setup.root)?;
            if sandbox.agent.is_without_cgroups() {
                return Ok((setup, Vec::new()));
            }
            let limits = sandbox.agent.limits(&record.spec);
            let cgroup = sandbox.agent.cgroups.make(&sandbox.id, limits)?;
            // Making it takes a core as an action does.
            cgroup.give(&[&[]])?;
            Ok((setup, cgroup.procs()))
        })
        .await?;
        let live = Live::start(config, &setup, &procs).await?;
        {
            let mut inner = self.lock();
            if inner.record.expires_at_us.is_none() {
                let ttl = inner.record.spec.ttl.unwrap_or(config.ttl);
                let expires = now_us().saturating_add(ttl.as_micros() as u64);
                inner.record.expires_at_us = Some(expires);
                inner.record.write(&self.folder)?;
            }
            inner.live = Some(live);
            inner.is_over_disk = false;
        }
        self.idle();
        if !self.set(State::Ready) {
            // It was removed meanwhile: it is taken away once this is over.
            self.lock().live = None;
        }
        Ok(())
    }

    /// Waits until it was made.
    pub(crate) async fn made(&self) -> Result<State, SandboxError> {
        let mut state = self.state.subscribe();
        if *state.borrow() == State::Preparing {
            self.agent.turns.want(&self.id);
        }
        let made = state.wait_for(|state| *state != State::Preparing).await;
        let made = made.map_or(State::Removed, |state| state.clone());
        match made {
            State::Failed(cause) => Err(SandboxError::Preparation(cause)),
            State::Removed => Err(SandboxError::Unknown(self.id.clone())),
            state => Ok(state),
        }
    }

    /// Its processes, ready for a command: it is made, resumed or started again as need be.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Arc<Live>, SandboxError> {
        if self.made().await? == State::Ready
            && let Some(live) = self.running()
        {
            return Ok(live);
        }
        self.resume().await?;
        self.running().ok_or(SandboxError::Gone)
    }

    /// Its processes, stopped or not: for its files.
    pub(crate) async fn present(self: &Arc<Self>) -> Result<Arc<Live>, SandboxError> {
        self.made().await?;
        match self.running() {
            Some(live) => Ok(live),
            None => self.ready().await,
        }
    }

    fn running(&self) -> Option<Arc<Live>> {
        let live = self.lock().live.clone();
        live.filter(|live| !live.is_gone())
    }

    /// Stops all its processes, which keep their memory.
    ///
    /// # Errors
    /// It is gone, or can't be stopped.
    pub async fn pause(self: &Arc<Self>) -> Result<(), SandboxError> {
        self.made().await?;
        let own = self.clone();
        whole(async move {
            let _changing = own.changing.lock().await;
            if *own.state.borrow() == State::Ready {
                own.freeze(true).await?;
                own.set(State::Paused);
            }
            Ok(())
        })
        .await
    }

    /// Lets its processes go on; starts them again if they have ended. One whose time is over gets as
    /// much again.
    ///
    /// # Errors
    /// It is gone, or can't be started.
    pub async fn resume(self: &Arc<Self>) -> Result<(), SandboxError> {
        self.made().await?;
        let own = self.clone();
        whole(async move { own.go_on().await }).await
    }

    async fn go_on(self: Arc<Self>) -> Result<(), SandboxError> {
        let _changing = self.changing.lock().await;
        let state = self.state.borrow().clone();
        if state == State::Ready && self.running().is_some() {
            return Ok(());
        }
        let (expires_at_us, ttl) = {
            let record = &self.lock().record;
            (record.expires_at_us, record.spec.ttl)
        };
        if state != State::Removed && expires_at_us.is_some_and(|at| at <= now_us()) {
            self.live_for(ttl.unwrap_or(self.agent.config.ttl))?;
        }
        match state {
            State::Removed => return Err(SandboxError::Unknown(self.id.clone())),
            State::Paused if self.running().is_some() => self.freeze(false).await?,
            _ => {
                self.end_processes().await;
                let begun = self.begin().await;
                begun.map_err(|error| SandboxError::Preparation(error.to_string()))?;
            }
        }
        self.set(State::Ready);
        Ok(())
    }

    async fn freeze(self: &Arc<Self>, frozen: bool) -> Result<(), SandboxError> {
        let cgroup = self.cgroup.clone();
        let done = blocking(move || cgroup.freeze(frozen)).await;
        done.map_err(|error| SandboxError::System("stopping the sandbox's processes", error))
    }

    /// Ends all its processes, and takes their cgroup away.
    pub(crate) async fn end_processes(self: &Arc<Self>) {
        self.lock().live = None;
        let cgroup = self.cgroup.clone();
        let gone = blocking(move || Ok(cgroup.remove())).await;
        if !gone.unwrap_or(false) {
            tracing::error!(sandbox = %self.id, "processes of a sandbox can't be ended");
        }
    }

    /// Copies its own files as they are now to a folder of layers.
    pub(crate) async fn copy(self: &Arc<Self>, name: &str) -> io::Result<()> {
        let was_paused = *self.state.borrow() == State::Paused;
        let runs = self.running().is_some() && !was_paused && !self.agent.is_without_cgroups();
        let (sandbox, name) = (self.clone(), name.to_owned());
        blocking(move || {
            if runs {
                sandbox.cgroup.freeze(true)?;
            }
            let layer = sandbox.agent.config.folder.join("layers").join(&name);
            let copied = sandbox.copy_to(&layer);
            if runs {
                sandbox.cgroup.freeze(false)?;
            }
            copied.inspect_err(|_| {
                let _ = layers::remove(&layer);
            })
        })
        .await
    }

    fn copy_to(&self, layer: &std::path::Path) -> io::Result<()> {
        fs::create_dir(layer)?;
        for part in layers::names(&self.folder) {
            // Parts have numbers for names.
            if part.parse::<usize>().is_ok() {
                fs::create_dir(layer.join(&part))?;
                let files = self.folder.join(&part).join("files");
                layers::copy(&files, &layer.join(&part).join("files"))?;
            }
        }
        Ok(())
    }
}
