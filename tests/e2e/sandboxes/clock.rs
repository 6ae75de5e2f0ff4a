//! A daemon whose wall clock is set while it runs, and between two runs, by libfaketime: nothing that
//! lives is judged by it.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{CHAT, chat, engine_at, streamed};
use treadle_tests::support::process::binary;

use crate::offload::stage::until;

const SANDBOXES: &str = "/api/v1/sandboxes";
const ACTIONS: &str = "/api/v1/actions";
/// The library, below a folder of `/usr/lib`.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// Longer than anything here may live or be idle.
const FAR_S: i64 = 3 * 3600;
/// What a clock that was set may be off by.
const NEAR_S: i64 = 20 * 60;
/// Lifetime of a sandbox that lasts as long as the test.
const TTL_S: u64 = 600;

/// The wall clock of a daemon.
struct Wall {
    library: PathBuf,
    file: PathBuf,
}

impl Wall {
    /// `None` if libfaketime is not installed.
    fn new(folder: &Path) -> Option<Self> {
        let mut places = std::fs::read_dir("/usr/lib").ok()?.flatten();
        let library = places.find_map(|place| {
            let path = place.path().join(LIBRARY);
            path.exists().then_some(path)
        })?;
        let file = folder.join("wall");
        Some(Self { library, file })
    }

    /// Sets it, this far ahead of the machine's.
    fn set(&self, ahead_s: i64) {
        let partial = self.file.with_extension("partial");
        std::fs::write(&partial, format!("{ahead_s:+}")).expect("it is written");
        std::fs::rename(partial, &self.file).expect("it is replaced");
    }

    /// Starts a daemon with this clock.
    async fn serve(&self, folder: &Path, engine: &str, more: &[&str]) -> Daemon {
        let store = format!("store.path={}", folder.join("treadle.db").display());
        let mut command = Command::new(binary());
        command
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .args(["--engine", engine, "--set", &store])
            .args(["--set", "auth.anonymous_scope=admin"])
            .args(["--set", "actions.enabled=true"])
            .args(["--set", "sandboxes.enabled=true"])
            .args(more)
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let output = child.stdout.take().expect("its output");
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        let line = tokio::time::timeout(TIMEOUT, line).await;
        let line = line.expect("it listens in time").expect("no panic");
        let told: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let client = Client::new(told["url"].as_str().expect("its URL"));
        Daemon { child, client }
    }
}

/// A daemon in a separate process. Dropping it kills it at once.
struct Daemon {
    child: Child,
    client: Client,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A process that is killed leaves these behind.
        for name in ["faketime_shm_", "sem.faketime_sem_"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}{}", self.child.id()));
        }
    }
}

impl Daemon {
    async fn create(&self, ttl_s: u64) -> String {
        let made = self.client.post(SANDBOXES, &json!({"ttl_s": ttl_s})).await;
        made.ok()["id"].as_str().expect("a name").to_owned()
    }

    /// Begins a shell line in a sandbox; returns its number.
    async fn begin(&self, sandbox: &str, line: &str) -> Value {
        let run = json!({"sandbox": {"id": sandbox, "command": ["sh", "-c", line]}});
        let action = json!({"kind": "sh", "run": run});
        self.client.post(ACTIONS, &action).await.ok()["action"].take()
    }

    /// The output of a shell line once that has ended.
    async fn output(&self, action: &Value) -> String {
        let path = format!("{ACTIONS}/{action}?wait_s=60");
        let ended = self.client.get(&path).await.ok();
        assert_eq!(ended["outcome"]["code"], 0, "{ended}");
        ended["output"]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// When a sandbox expires by the daemon's wall clock, in seconds since 1970.
    async fn expires_s(&self, sandbox: &str) -> i64 {
        let path = format!("{SANDBOXES}/{sandbox}");
        let shown = self.client.get(&path).await.ok();
        shown["expires_at_us"].as_i64().expect("a time") / 1_000_000
    }

    /// Makes a sandbox that lives for a second, and waits until it is gone.
    async fn outlives_a_short_one(&self) {
        let path = format!("{SANDBOXES}/{}", self.create(1).await);
        until("gone", async || self.client.get(&path).await.status == 404).await;
    }

    async fn lives(&self, program: &str) -> bool {
        let live = self.client.get("/programs").await.ok();
        live[program].is_object()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_lives_is_judged_by_the_wall_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(wall) = Wall::new(folder.path()) else {
        eprintln!("SKIPPED: libfaketime is missing; `scripts/setup.sh test` installs it");
        return;
    };
    // As slow as a real one.
    let engine = engine_at("127.0.0.1:0", 100_000, 1.0).await;
    let (folder, engine) = (folder.path(), engine.url());
    wall.set(0);
    let daemon = wall.serve(folder, &engine, &[]).await;
    let sandbox = daemon.create(TTL_S).await;
    let action = daemon
        .begin(&sandbox, "sleep 2; echo kept > /root/kept")
        .await;
    daemon.client.post(CHAT, &chat("idle", "x", 2)).await.ok();
    let works = streamed(chat("works", "x", 80));
    let mut works = daemon.client.stream(CHAT, &works).await;
    works.piece().await.expect("an event").expect("no break");

    let before_s = daemon.expires_s(&sandbox).await;
    for ahead_s in [FAR_S, -FAR_S] {
        wall.set(ahead_s);
        let moved_s = daemon.expires_s(&sandbox).await - before_s;
        assert!((moved_s - ahead_s).abs() < NEAR_S, "it is set: {moved_s}");
        daemon.outlives_a_short_one().await;
        assert!(daemon.lives("idle").await && daemon.lives("works").await);
    }
    let works = works.finish().await;
    assert!(!works.broken && works.is_done());
    assert_eq!(daemon.output(&action).await, "");

    drop(daemon);
    wall.set(FAR_S);
    let daemon = wall.serve(folder, &engine, &[]).await;
    daemon.outlives_a_short_one().await;
    assert!(daemon.lives("idle").await && daemon.lives("works").await);
    let action = daemon.begin(&sandbox, "cat /root/kept").await;
    assert_eq!(daemon.output(&action).await, "kept\n");

    // Silence is measured although the wall clock is behind everything on record.
    drop(daemon);
    wall.set(-FAR_S);
    let silent = ["--set", "scheduler.program_idle_s_max=1"];
    let daemon = wall.serve(folder, &engine, &silent).await;
    daemon.client.post(CHAT, &chat("silent", "x", 2)).await.ok();
    until("over", async || !daemon.lives("silent").await).await;
    let action = daemon.begin(&sandbox, "cat /root/kept").await;
    assert_eq!(daemon.output(&action).await, "kept\n");
}
