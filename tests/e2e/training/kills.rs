//! A trainer in Python and its daemon are killed in turn.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use treadle_config::Config;
use treadle_tests::support::broker::amqp_url;
use treadle_tests::support::process::DaemonProcess;
use treadle_tests::support::services::Schema;

use super::bandit::Bandit;
use super::on_disk;
use crate::clients::python;
use crate::restart::DAEMON;

/// Batches of the bandit when both sides are killed; `TREADLE_TRAINING_KILLS` says how often.
const KILLED_STEPS: u32 = 60;

fn kills() -> u32 {
    let wanted = std::env::var("TREADLE_TRAINING_KILLS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// A trainer and its rollouts in Python, the daemon, or both are killed in turn. Each restart goes on
/// from the last checkpoint; the checker finds nothing lost, nothing twice and nothing too old.
async fn survives_kills(mut config: Config, folder: &Path, python: PathBuf) {
    let daemon = DaemonProcess::start(DAEMON, &config, folder).await;
    let url = daemon.client.base().to_owned();
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    config.server.listen.set_port(port.expect("a port"));
    let bandit = Bandit {
        python,
        folder,
        url,
        token: daemon.client.token().unwrap_or_default().to_owned(),
        job: "bandit",
    };
    let steps = KILLED_STEPS.to_string();
    let start = || bandit.start(&["--steps", &steps]);
    let (mut daemon, mut trainer) = (Some(daemon), start());
    for kill in 0..kills() {
        // Other points of the run each time, the same in each run of the test.
        let pause = 150 + u64::from(kill) * 7_919 % 400;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if kill % 3 != 0 {
            trainer.kill().expect("it can be killed");
            trainer.wait().expect("it is gone");
        }
        if kill % 3 != 1 {
            daemon.take().expect("it runs").kill();
            daemon = Some(DaemonProcess::start(DAEMON, &config, folder).await);
        }
        if kill % 3 != 0 {
            trainer = start();
        }
    }
    bandit.ends(trainer).await;
    let report = bandit.check();
    assert_eq!(report["batches"], KILLED_STEPS, "{report}");
    assert_eq!(report["samples_checked"], KILLED_STEPS * 64, "{report}");
    assert_eq!(report["violations"], json!([]));
    let log = bandit.log();
    let line = log.lines().rfind(|line| line.contains(" at last"));
    let words = line.unwrap_or_default().split(' ');
    let rewards: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    let [first, last] = rewards[..] else {
        panic!("{log}");
    };
    assert!(last > first + 0.1, "it does not learn: {log}");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_kills_of_daemon_and_trainer() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    survives_kills(on_disk(folder.path()), folder.path(), python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_kills_with_postgresql_and_rabbitmq() {
    let (Some(python), Some(broker)) = (python(), amqp_url()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let schema = Schema::fresh("training");
    let mut config = on_disk(folder.path());
    config.store.url = schema.url.as_str().into();
    config.store.schema = schema.name.clone();
    config.broker.url = broker.as_str().into();
    survives_kills(config, folder.path(), python).await;
}
