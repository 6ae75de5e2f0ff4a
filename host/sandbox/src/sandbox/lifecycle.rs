//! The lifecycle of a sandbox: made, paused, resumed, copied, ended.

use std::io;
use std::sync::Arc;

use super::{Sandbox, State};
use crate::blocking::whole;
use crate::creation_queue::Need;
use crate::error::SandboxError;
use crate::platform::Environment;

impl Sandbox {
    /// Makes it, when there is a free slot.
    pub(crate) async fn prepare(self: Arc<Self>) {
        let _changing = self.changing.lock().await;
        if *self.state.borrow() == State::Removed {
            return;
        }
        match self.begin().await {
            _ if *self.state.borrow() == State::Removed => {}
            Ok(()) => {
                let took = self.age(&self.lock().record);
                self.agent.preparations.prepared(took.as_micros() as u64);
            }
            Err(error) => {
                self.agent.preparations.failed();
                let cause = error.to_string();
                tracing::warn!(sandbox = %self.id, %cause, "a sandbox could not be made");
                self.leave().await;
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

    /// Starts its processes over its existing files, when there is a free slot.
    async fn begin(self: &Arc<Self>) -> io::Result<()> {
        let slot = self.agent.creations.take(&self.id, || self.need()).await;
        let _slot = slot.ok_or_else(|| io::Error::other("the daemon is being stopped"))?;
        if *self.state.borrow() == State::Removed {
            return Ok(());
        }
        let record = self.lock().record.clone();
        let live = self.place.make(&record).await?;
        let config = &self.agent.config;
        {
            let mut inner = self.lock();
            if inner.record.life.is_none() {
                let ttl = inner.record.spec.ttl.unwrap_or(config.ttl);
                inner.record.live_for(ttl, &self.agent.clock);
                inner.record.write(&self.folder)?;
            }
            inner.live = Some(live);
            inner.is_over_disk = false;
        }
        self.idle();
        if !self.set(State::Ready) {
            // It was removed meanwhile, and is cleaned up after this.
            self.lock().live = None;
        }
        Ok(())
    }

    /// Waits until it was made.
    pub(crate) async fn made(&self) -> Result<State, SandboxError> {
        let mut state = self.state.subscribe();
        if *state.borrow() == State::Preparing {
            self.agent.creations.want(&self.id);
        }
        let made = state.wait_for(|state| *state != State::Preparing).await;
        let made = made.map_or(State::Removed, |state| state.clone());
        match made {
            State::Failed(cause) => Err(SandboxError::Preparation(cause)),
            State::Removed => Err(SandboxError::Unknown(self.id.clone())),
            state => Ok(state),
        }
    }

    /// Its environment, ready for a command: it is made, resumed or restarted if necessary.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Arc<dyn Environment>, SandboxError> {
        if self.made().await? == State::Ready
            && let Some(live) = self.running()
        {
            return Ok(live);
        }
        self.resume().await?;
        self.running().ok_or(SandboxError::Gone)
    }

    /// Its environment, paused or not, for access to files.
    pub(crate) async fn present(self: &Arc<Self>) -> Result<Arc<dyn Environment>, SandboxError> {
        self.made().await?;
        match self.running() {
            Some(live) => Ok(live),
            None => self.ready().await,
        }
    }

    fn running(&self) -> Option<Arc<dyn Environment>> {
        let live = self.lock().live.clone();
        live.filter(|live| !live.is_gone())
    }

    /// Freezes all its processes, which keep their memory.
    ///
    /// # Errors
    /// If it is gone, or can't be frozen.
    pub async fn pause(self: &Arc<Self>) -> Result<(), SandboxError> {
        self.agent.platform.check_pauses()?;
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

    /// Resumes its processes, or restarts them if they have ended. If it has expired, its lifetime
    /// begins anew.
    ///
    /// # Errors
    /// If it is gone, or can't be started.
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
        let (life, ttl) = {
            let record = &self.lock().record;
            (record.life, record.spec.ttl)
        };
        let now_us = self.agent.clock.now_us();
        if state != State::Removed && life.is_some_and(|life| life.ends_us <= now_us) {
            self.live_for(ttl.unwrap_or(self.agent.config.ttl))?;
        }
        match state {
            State::Removed => return Err(SandboxError::Unknown(self.id.clone())),
            State::Paused if self.running().is_some() => self.freeze(false).await?,
            _ => {
                self.end_processes().await;
                let begun = self.begin().await;
                if let Some(cause) = self.place.lost() {
                    self.set(State::Failed(cause));
                }
                begun.map_err(|error| SandboxError::Preparation(error.to_string()))?;
            }
        }
        self.set(State::Ready);
        Ok(())
    }

    async fn freeze(self: &Arc<Self>, frozen: bool) -> Result<(), SandboxError> {
        let done = self.place.freeze(frozen).await;
        done.map_err(|error| SandboxError::System("stopping the sandbox's processes", error))
    }

    /// Ends all its processes.
    pub(crate) async fn end_processes(self: &Arc<Self>) {
        self.lock().live = None;
        if !self.place.end().await {
            tracing::error!(sandbox = %self.id, "could not end processes of a sandbox");
        }
    }

    /// Ends all its processes, and releases its place. Returns whether nothing is left.
    pub(crate) async fn leave(self: &Arc<Self>) -> bool {
        self.lock().live = None;
        self.place.remove().await
    }

    /// Copies its current files to a layer.
    pub(crate) async fn copy(self: &Arc<Self>, name: &str) -> io::Result<()> {
        let was_paused = *self.state.borrow() == State::Paused;
        let runs = self.running().is_some() && !was_paused;
        self.place.copy(name, runs).await
    }
}
