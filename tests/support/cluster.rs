//! Several daemons on one store, each a process of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use treadle_config::{Config, Role};

use super::client::{Client, TIMEOUT};
use super::process::DaemonProcess;

/// Daemons and what they share.
pub struct Cluster {
    /// The test that is a daemon when asked to be.
    daemon_test: &'static str,
    folder: tempfile::TempDir,
    config: Config,
    started: usize,
}

impl Cluster {
    /// A cluster without daemons yet; `tune` applies to all.
    pub fn new(daemon_test: &'static str, tune: impl FnOnce(&mut Config, &Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = super::fixture::config();
        config.store.path = folder.path().join("treadle.db").to_string_lossy().into();
        config.store.snapshot_events = 500;
        config.cluster.role = Role::All;
        config.cluster.secret = "a secret of these tests".into();
        // A daemon that only stalls must not count as gone.
        config.cluster.gateway_timeout_s = 20;
        tune(&mut config, folder.path());
        Self {
            daemon_test,
            folder,
            config,
            started: 0,
        }
    }

    /// Starts one more daemon.
    pub async fn start(&mut self, role: Role) -> DaemonProcess {
        self.started += 1;
        let mut config = self.config.clone();
        config.cluster.role = role;
        config.cluster.name = format!("d{}", self.started);
        let folder = self.folder.path().join(&config.cluster.name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut daemon = DaemonProcess::start(self.daemon_test, &config, &folder).await;
        // The first leader leaves the admin's token beside the store.
        let token = self.folder.path().join("admin-token");
        let began = Instant::now();
        while !token.exists() {
            assert!(began.elapsed() < TIMEOUT, "no token was created");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let token = std::fs::read_to_string(&token).expect("a token");
        daemon.client = daemon.client.with_token(token.trim());
        daemon
    }

    /// The file of the admin's token, which the first leader leaves.
    pub fn token_file(&self) -> std::path::PathBuf {
        self.folder.path().join("admin-token")
    }

    /// The daemon's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// A daemon's report about the cluster, once it accepts its caller's token.
pub async fn cluster_of(client: &Client) -> Value {
    let began = Instant::now();
    loop {
        let answer = client.get("/api/v1/cluster").await;
        if answer.status.is_success() {
            return answer.json();
        }
        assert!(began.elapsed() < TIMEOUT, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a daemon schedules a shard.
pub async fn schedules(client: &Client, shard: usize) -> bool {
    cluster_of(client).await["shards"][shard]["here"] == true
}

/// Waits until one of the daemons schedules a shard; returns its index.
pub async fn until_scheduled(daemons: &[&DaemonProcess], shard: usize) -> usize {
    let began = Instant::now();
    loop {
        for (at, daemon) in daemons.iter().enumerate() {
            if schedules(&daemon.client, shard).await {
                return at;
            }
        }
        assert!(began.elapsed() < TIMEOUT, "no daemon schedules");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
