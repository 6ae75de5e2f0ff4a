//! A daemon whose store fails or disappears while it runs.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sqlx::Connection;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use treadle_http::Upstream;

use crate::cluster::{Cluster, Served, TIMEOUT, engine, failure, step, treadle, until};

/// Size of the disk that fills.
const DISK_BYTES: usize = 16 << 20;
const PAGE_BYTES: usize = 4 << 10;
/// Programs that take steps meanwhile.
const PROGRAMS: usize = 4;

/// Runs a statement behind the daemon's back.
async fn behind(path: &Path, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let connection = sqlx::SqliteConnection::connect_with(&options).await;
    let mut connection = connection.expect("it opens");
    let done = sqlx::raw_sql(sql).execute(&mut connection).await;
    done.expect("it is done");
    connection.close().await.expect("it closes");
}

/// The daemon's health, as reported.
async fn health(url: &str) -> (bool, Value) {
    let output = treadle(url, "status --json").await;
    let health = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.success(), health)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cant_be_written_is_told_until_it_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("treadle.db");
    let cluster = Cluster::start(path.to_str().expect("UTF-8")).await;
    let url = cluster.daemon.url();
    step(&url, "before").await;
    let (is_well, told) = health(&url).await;
    assert!(is_well, "{told:#}");
    assert_eq!(told["store"]["failing"], serde_json::json!([]));

    behind(&path, "ALTER TABLE journal_head RENAME TO hidden").await;
    let waits = url.clone();
    let under_way = tokio::spawn(async move { step(&waits, "meanwhile").await });
    let told = until(|| async {
        let (is_well, told) = health(&url).await;
        (!is_well).then_some(told)
    })
    .await;
    assert_eq!(told["status"], "store_failing", "{told:#}");
    let failing = told["store"]["failing"].as_array().expect("a list");
    let journal = failing.iter().find(|failing| failing["what"] == "journal");
    let error = journal.expect("it is told")["error"].as_str();
    assert!(
        error.is_some_and(|error| error.contains("journal_head")),
        "{told:#}"
    );
    let (code, text) = failure(&url, "status").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("the journal can't be written"), "{text}");
    let (_, text) = failure(&url, "training").await;
    assert!(text.contains("journal could not be written"), "{text}");
    let metrics = cluster.daemon.app.store.condition();
    assert!(
        metrics
            .failures
            .iter()
            .any(|(what, count)| *what == "journal" && *count > 0)
    );
    assert!(
        !under_way.is_finished(),
        "nothing is acknowledged meanwhile"
    );

    behind(&path, "ALTER TABLE hidden RENAME TO journal_head").await;
    under_way.await.expect("it is acknowledged");
    until(|| async { health(&url).await.0.then_some(()) }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_whose_store_is_gone_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    for role in [
        "",
        " --set cluster.role=all --set cluster.secret=0123456789abcdef0123456789abcdef",
    ] {
        let line = format!("serve --listen 127.0.0.1:0 --set store.path=s/a.db{role}");
        let mut served = Served::start(&line, folder.path());
        served.line().await;
        let path = folder.path().join("s/a.db");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(served.ended().await, Some(3), "{role}");
        assert!(!path.exists(), "it is not made again");
        std::fs::remove_dir_all(folder.path().join("s")).expect("it is there");
    }
}

/// A small disk in a mount namespace, which its keeper holds until the test ends.
struct SmallDisk {
    keeper: Child,
    folder: TempDir,
}

impl SmallDisk {
    /// `None` if mount namespaces can't be made here.
    async fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let script =
            format!("mount -t tmpfs -o size={DISK_BYTES} tmpfs \"$0\" && echo mounted && exec cat");
        let mut keeper = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        let mut lines = BufReader::new(keeper.stdout.take()?).lines();
        let line = lines.next_line().await.ok()?;
        (line.as_deref() == Some("mounted")).then_some(Self { keeper, folder })
    }

    fn keeper(&self) -> u32 {
        self.keeper.id().expect("it runs")
    }

    /// The file that fills the disk, by a path from outside of its namespace.
    fn filler(&self) -> PathBuf {
        let (keeper, folder) = (self.keeper(), self.folder.path().display());
        format!("/proc/{keeper}/root{folder}/filler").into()
    }

    fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("it is created");
        let page = [1; PAGE_BYTES];
        let mut pages = 0..=DISK_BYTES / PAGE_BYTES;
        let full = pages.find_map(|_| filler.write_all(&page).err());
        let full = full.expect("the disk is small");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    /// Starts a daemon whose store is on the disk; returns its URL, too.
    async fn serve(&self, engine: &str) -> (Child, String) {
        let mut daemon = Command::new("nsenter")
            .arg(format!("--mount=/proc/{}/ns/mnt", self.keeper()))
            .arg(env!("CARGO_BIN_EXE_treadle"))
            .args(["serve", "--listen", "127.0.0.1:0", "--engine", engine])
            .arg("--set")
            .arg(format!("store.path={}/a.db", self.folder.path().display()))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(daemon.stdout.take().expect("it is piped")).lines();
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await;
        let line = line.expect("it prints soon").expect("text");
        daemon.stdout = Some(lines.into_inner().into_inner());
        let line = line.expect("it prints before it ends");
        let rest = line.strip_prefix("treadle listens on ").expect("its line");
        let (url, _) = rest.split_once(", engines: ").expect("its engines");
        (daemon, url.to_owned())
    }
}

fn program(number: usize) -> String {
    format!("p{number}")
}

/// Runs one step; false if its answer did not come to its end.
async fn is_acknowledged(url: &str, program: &str) -> bool {
    let body = json!({"model": "treadle-sim", "program_id": program, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hello"}]});
    let (upstream, headers) = (Upstream::new(TIMEOUT), HeaderMap::new());
    let (path, body) = ("/v1/chat/completions", Bytes::from(body.to_string()));
    let sent = upstream.send(Method::POST, url, path, &headers, body);
    let Ok(answer) = sent.await else {
        return false;
    };
    answer.status() == 200 && answer.into_body().collect().await.is_ok()
}

/// Programs that take one step after another until one is not acknowledged.
struct Load {
    acknowledged: Arc<[AtomicU64; PROGRAMS]>,
    programs: JoinSet<()>,
}

impl Load {
    fn on(url: &str) -> Self {
        let acknowledged = Arc::<[AtomicU64; PROGRAMS]>::default();
        let mut programs = JoinSet::new();
        for number in 0..PROGRAMS {
            let (url, acknowledged) = (url.to_owned(), acknowledged.clone());
            programs.spawn(async move {
                while is_acknowledged(&url, &program(number)).await {
                    acknowledged[number].fetch_add(1, Relaxed);
                }
            });
        }
        Self {
            acknowledged,
            programs,
        }
    }

    fn counts(&self) -> [u64; PROGRAMS] {
        std::array::from_fn(|number| self.acknowledged[number].load(Relaxed))
    }

    /// Waits until each program has taken further steps.
    async fn goes_on(&self) {
        let before = self.counts();
        until(|| async {
            let now = self.counts();
            let mut pairs = now.iter().zip(&before);
            pairs.all(|(now, before)| now > before).then_some(())
        })
        .await;
    }
}

/// The failure of the journal in a report of health.
fn journal_failure(told: &Value) -> &Value {
    let failing = told["store"]["failing"].as_array().expect("a list");
    let journal = failing.iter().find(|failing| failing["what"] == "journal");
    journal.unwrap_or_else(|| panic!("the journal is not told: {told:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_loses_nothing_and_is_written_again_once_it_has_room() {
    let Some(disk) = SmallDisk::mount().await else {
        eprintln!("skipped: no disk can be mounted in a namespace; run as root");
        return;
    };
    let engine = engine().await;
    let (mut daemon, url) = disk.serve(&engine.url()).await;
    let load = Load::on(&url);
    load.goes_on().await;

    disk.fill();
    let told = until(|| async {
        let (_, told) = health(&url).await;
        (told["status"] == "store_failing").then_some(told)
    })
    .await;
    let journal = journal_failure(&told);
    let error = journal["error"].as_str().expect("it is told");
    assert!(error.contains("full"), "{error}");
    let acknowledged = load.counts();
    for _ in 0..5 {
        let (is_well, now) = health(&url).await;
        assert!(!is_well, "{now:#}");
        assert_eq!(journal_failure(&now)["since_us"], journal["since_us"]);
    }
    assert_eq!(
        load.counts(),
        acknowledged,
        "nothing is acknowledged meanwhile"
    );

    std::fs::remove_file(disk.filler()).expect("it is there");
    until(|| async { health(&url).await.0.then_some(()) }).await;
    load.goes_on().await;

    daemon.kill().await.expect("it ran");
    let Load {
        acknowledged,
        programs,
    } = load;
    programs.join_all().await;
    let (mut daemon, url) = disk.serve(&engine.url()).await;
    let upstream = Upstream::new(TIMEOUT);
    let page = upstream.get(&url, "/programs").await.expect("an answer");
    let page = page.into_body().collect().await.expect("a whole answer");
    let live: Value = serde_json::from_slice(&page.to_bytes()).expect("JSON");
    for (number, count) in acknowledged.iter().enumerate() {
        let (count, stored) = (count.load(Relaxed), &live[program(number)]["step_count"]);
        let stored = stored.as_u64().unwrap_or_else(|| panic!("{live:#}"));
        // The last one may have been stored and not have been answered.
        assert!((count..=count + 1).contains(&stored), "{count}: {live:#}");
    }
    daemon.kill().await.expect("it ran");
    engine.shutdown().await;
}
