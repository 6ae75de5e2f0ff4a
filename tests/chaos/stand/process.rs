//! One process that is killed and started again.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::error::ChaosError;

/// How long an orderly end may take.
const END_MAX: Duration = Duration::from_mins(1);

/// A daemon or an engine. Dropping it kills it.
pub(super) struct Process {
    pub(super) name: String,
    /// Where it answers.
    pub(super) url: String,
    /// What it says, all its lives one after another.
    pub(super) log: PathBuf,
    binary: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Process {
    pub(super) fn new(
        name: String,
        url: String,
        binary: &Path,
        arguments: Vec<String>,
        folder: &Path,
    ) -> Self {
        Self {
            log: folder.join(format!("{name}.log")),
            name,
            url,
            binary: binary.to_owned(),
            arguments,
            child: None,
        }
    }

    pub(super) fn start(&mut self) -> Result<(), ChaosError> {
        let what = || self.log.display().to_string();
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(ChaosError::file(what()))?;
        let errors = log.try_clone().map_err(ChaosError::file(what()))?;
        let child = Command::new(&self.binary)
            .args(&self.arguments)
            // Nothing of this run in the folder that it is started from.
            .current_dir(self.log.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(ChaosError::file(self.binary.display().to_string()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Starts it again if it has ended by itself; whether it had.
    pub(super) fn revive(&mut self) -> Result<bool, ChaosError> {
        let Some(child) = &mut self.child else {
            return Ok(false);
        };
        let ended = child
            .try_wait()
            .map_err(ChaosError::file(self.name.clone()))?;
        if ended.is_none() {
            return Ok(false);
        }
        self.start()?;
        Ok(true)
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self) -> Result<(), ChaosError> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child
            .kill()
            .await
            .map_err(ChaosError::file(self.name.clone()))
    }

    /// SIGTERM; whether it ended well and in time.
    pub(super) async fn terminate(&mut self) -> Result<bool, ChaosError> {
        let Some(mut child) = self.child.take() else {
            return Ok(true);
        };
        let failed = || ChaosError::file(self.name.clone());
        if let Some(id) = child.id() {
            let asked = Command::new("kill").arg(id.to_string()).status().await;
            asked.map_err(failed())?;
        }
        if let Ok(ended) = tokio::time::timeout(END_MAX, child.wait()).await {
            return Ok(ended.map_err(failed())?.success());
        }
        child.kill().await.map_err(failed())?;
        Ok(false)
    }
}
