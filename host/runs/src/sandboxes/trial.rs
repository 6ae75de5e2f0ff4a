//! A trial sandbox, to check that sandboxes work.

use super::start::{folder, settings};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use treadle_config::Config;
use treadle_sandbox::{
    End, Exec, SandboxConfig, SandboxError, SandboxSpec, Sandboxes, random_name,
};

/// Time limit of the trial.
const TRIAL_MAX: Duration = Duration::from_mins(1);
/// Exit code of its command.
const CODE: i32 = 7;
/// Length of its folder's random name.
const NAME_CHARS: usize = 8;
/// How often removing its folder is tried: sandboxes in it may still be being removed.
const REMOVALS_MAX: u32 = 50;

/// The folder of a trial, removed on drop.
struct Own(PathBuf);

impl Drop for Own {
    fn drop(&mut self) {
        for _ in 0..REMOVALS_MAX {
            if std::fs::remove_dir_all(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Creates a sandbox as this configuration does, runs a command in it, and removes it. Returns how
/// long that took.
///
/// # Errors
/// What went wrong.
pub async fn try_sandbox(config: &Config) -> Result<Duration, String> {
    let (began, folder) = (Instant::now(), folder(config));
    let is_new = !folder.exists();
    let trial = tokio::time::timeout(TRIAL_MAX, trial(settings(config, ""), &folder)).await;
    if is_new {
        // Only succeeds if nothing else was created in it.
        let _ = std::fs::remove_dir(&folder);
    }
    let late = || {
        Err(format!(
            "it did not finish within {} s",
            TRIAL_MAX.as_secs()
        ))
    };
    trial.unwrap_or_else(|_| late()).map(|()| began.elapsed())
}

/// Uses a separate folder on the disk of the configured sandboxes.
async fn trial(settings: SandboxConfig, within: &Path) -> Result<(), String> {
    let name = random_name(NAME_CHARS).map_err(|error| error.to_string())?;
    let own = Own(within.join(format!("trial-{name}")));
    std::fs::create_dir_all(&own.0).map_err(|error| format!("{}: {error}", within.display()))?;
    let settings = SandboxConfig {
        folder: own.0.clone(),
        ..settings
    };
    let sandboxes = Sandboxes::start(settings)
        .await
        .map_err(|error| error.to_string())?;
    let ended = command(&sandboxes).await;
    for status in sandboxes.list() {
        sandboxes.remove(&status.id).await;
    }
    sandboxes.stop().await;
    match ended.map_err(|error| error.to_string())? {
        End::Exited(CODE) => Ok(()),
        end => Err(format!("its command ended unexpectedly: {end:?}")),
    }
}

async fn command(sandboxes: &Sandboxes) -> Result<End, SandboxError> {
    let sandbox = sandboxes.create(SandboxSpec::default()).await?;
    let line = format!("exit {CODE}");
    let mut running = sandbox.run(Exec::new(["/bin/sh", "-c", &line])).await?;
    Ok(running.follow(TRIAL_MAX, |_| ()).await.0)
}
