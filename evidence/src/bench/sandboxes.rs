//! `treadle-bench sandboxes`: how long sandboxes take until a command has run in them, many at once,
//! and what they leave on disk.

use super::figures::{Figure, Report, Target};
use super::folder::TemporaryFolder;
use super::latencies::Latencies;
use super::server::Server;
use super::{BenchError, report_progress};
use clap::Args;
use http::HeaderMap;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use treadle_demo::exchange::{delete, get, post, put};
use treadle_http::Upstream;

const SANDBOXES: &str = "/api/v1/sandboxes";
const ACTIONS: &str = "/api/v1/actions";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Files of the image that is imported, beside a shell, and bytes of each.
const IMAGE_FILES: (usize, usize) = (2_000, 10_000);
/// What each program writes that comes and goes.
const WRITTEN_BYTES: u64 = 1 << 20;

const NOTE: &str = "Real sandboxes of this machine, made through a daemon over HTTP. Times are from \
    the request for a sandbox until a first command in it has ended, which its action's records \
    are part of. warm is of the machine's own programs, image of an image that is there already, \
    cold of one that is imported first (a shell and 2,000 files of 10 kB), forked of a sandbox in \
    which 1 MiB was written. at_once.last is when the last of all that were asked for at once had \
    run its command. disk.* is what files of sandboxes and copies of them take, images left out, while programs come and go that \
    write 1 MiB each, the mean of the last tenth over that of the first, once eight of them are there.";

/// Arguments of `treadle-bench sandboxes`.
#[derive(Args, Clone, Debug)]
pub(super) struct SandboxesArgs {
    /// Sandboxes of each kind, one after the other.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    samples: u32,
    /// Sandboxes that are asked for at once.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    at_once: u32,
    /// Programs that come and go.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    programs: u32,
}

impl SandboxesArgs {
    /// Makes sandboxes of all kinds.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let mut report = Report::new("sandboxes");
        report.note(NOTE);
        let folder = TemporaryFolder::new().map_err(|error| failed(error.to_string()))?;
        let own = folder.path().join("sandboxes");
        let settings = [
            "actions.enabled=true".to_owned(),
            "auth.anonymous_scope=admin".to_owned(),
            "sandboxes.enabled=true".to_owned(),
            format!("sandboxes.folder={}", own.display()),
        ];
        let engine = Server::engine().await?;
        let daemon = Server::gateway(&engine.url, &settings).await?;
        let api = Arc::new(Api::new(&daemon.url));
        let source = folder.path().join("image");
        make_image(&source).map_err(|error| failed(error.to_string()))?;
        let samples = if quick { 2 } else { self.samples };
        report.setting("samples", samples);
        for kind in ["warm", "cold", "image", "forked"] {
            report_progress(&format!("sandboxes: {kind} ..."));
            let mut times = api.times(kind, samples, &source).await.map_err(failed)?;
            let most = if kind == "cold" { 500.0 } else { 50.0 };
            let median = Figure::new(format!("{kind}.p50"), times.percentile_ms(0.5), "ms");
            report.push(median.target(Target::AtMost(most)));
            let tail = Figure::new(format!("{kind}.p99"), times.percentile_ms(0.99), "ms");
            report.push(tail);
        }
        report_progress("sandboxes: at once ...");
        let count = if quick { 4 } else { self.at_once };
        report.setting("at_once", count);
        let last = api.at_once(count).await.map_err(failed)?;
        report.push(Figure::new("at_once.last", last.as_secs_f64(), "s"));
        report_progress("sandboxes: disk ...");
        let programs = if quick { 20 } else { self.programs };
        report.setting("programs", programs);
        let (first, end) = api.disk(programs, &own).await.map_err(failed)?;
        report.push(Figure::new("disk.first", first, "MiB"));
        let growth = Figure::new("disk.growth", end / first.max(f64::MIN_POSITIVE), "x");
        report.push(growth.target(Target::AtMost(1.1)));
        daemon.stop().await;
        engine.stop().await;
        Ok(report)
    }
}

fn failed(first: String) -> BenchError {
    BenchError::Requests {
        case: "sandboxes".to_owned(),
        count: 1,
        first,
    }
}

/// A folder with a shell, the libraries that it needs, and files.
fn make_image(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder.join("bin"))?;
    std::fs::copy("/bin/sh", folder.join("bin/sh"))?;
    let needed = std::process::Command::new("ldd").arg("/bin/sh").output()?;
    let told = String::from_utf8_lossy(&needed.stdout).into_owned();
    let paths = told.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.map(PathBuf::from) {
        let to = folder.join(path.strip_prefix("/").unwrap_or(&path));
        std::fs::create_dir_all(to.parent().unwrap_or(folder))?;
        std::fs::copy(&path, to)?;
    }
    std::fs::create_dir_all(folder.join("root"))?;
    std::fs::create_dir_all(folder.join("data"))?;
    let (files, bytes) = IMAGE_FILES;
    for number in 0..files {
        std::fs::write(folder.join(format!("data/{number}")), vec![b'x'; bytes])?;
    }
    Ok(())
}

/// The daemon, as its clients see it.
struct Api {
    url: String,
    upstream: Upstream,
}

impl Api {
    fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            upstream: Upstream::new(CONNECT_TIMEOUT),
        }
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, String> {
        let (headers, body) = (HeaderMap::new(), body.to_string());
        let answer = post(&self.upstream, &self.url, path, &headers, body).await?;
        serde_json::from_slice(&answer).map_err(|error| error.to_string())
    }

    async fn create(&self, image: &str) -> Result<String, String> {
        let made = self.post(SANDBOXES, json!({"image": image})).await?;
        name_of(&made)
    }

    async fn run(&self, sandbox: &str, line: &str) -> Result<(), String> {
        let run = json!({"sandbox": {"id": sandbox, "command": ["/bin/sh", "-c", line]}});
        let answer = self
            .post(ACTIONS, json!({"kind": "sh", "run": run}))
            .await?;
        let path = format!("{ACTIONS}/{}?wait_s=600", answer["action"]);
        let view = get(&self.upstream, &self.url, &path).await?;
        let view: Value = serde_json::from_slice(&view).map_err(|error| error.to_string())?;
        if view["outcome"] == json!({"outcome": "exited", "code": 0}) {
            return Ok(());
        }
        Err(format!("a command ended with {}", view["outcome"]))
    }

    async fn remove(&self, sandbox: &str) -> Result<(), String> {
        let path = format!("{SANDBOXES}/{sandbox}");
        delete(&self.upstream, &self.url, &path).await.map(drop)
    }

    async fn times(&self, kind: &str, samples: u32, source: &Path) -> Result<Latencies, String> {
        let mut times = Latencies::default();
        let parent = self.create("system").await?;
        self.run(&parent, "head -c 1048576 /dev/zero > /root/data")
            .await?;
        let mut image = "system".to_owned();
        for number in 0..samples {
            let mut began = Instant::now();
            if kind == "cold" || (kind == "image" && number == 0) {
                image = format!("{kind}-{number}");
                let (path, body) = (format!("/api/v1/images/{image}"), json!({"path": source}));
                put(&self.upstream, &self.url, &path, body.to_string()).await?;
            }
            if kind != "cold" {
                began = Instant::now();
            }
            let made = if kind == "forked" {
                let path = format!("{SANDBOXES}/{parent}/fork");
                let made = self.post(&path, json!({"count": 1})).await?;
                name_of(&made["sandboxes"][0])?
            } else {
                self.create(&image).await?
            };
            self.run(&made, "true").await?;
            times.push(began.elapsed());
            self.remove(&made).await?;
        }
        self.remove(&parent).await?;
        Ok(times)
    }

    /// Asks for many at once; gives when the last one has run a command.
    async fn at_once(self: &Arc<Self>, count: u32) -> Result<Duration, String> {
        let began = Instant::now();
        let mut made = JoinSet::new();
        for _ in 0..count {
            let api = self.clone();
            made.spawn(async move {
                let sandbox = api.create("system").await?;
                api.run(&sandbox, "true").await?;
                Ok::<_, String>(sandbox)
            });
        }
        let made = made.join_all().await;
        let last = began.elapsed();
        for sandbox in made {
            self.remove(&sandbox?).await?;
        }
        Ok(last)
    }

    /// Lets programs come and go, eight at a time; gives the mean size of their files and of copies over their
    /// first and their last tenth, in mebibytes.
    async fn disk(&self, programs: u32, folder: &Path) -> Result<(f64, f64), String> {
        let mut sizes = Vec::new();
        let mut open = std::collections::VecDeque::new();
        for _ in 0..programs {
            let sandbox = self.create("system").await?;
            let line = format!("head -c {WRITTEN_BYTES} /dev/urandom > /root/data");
            self.run(&sandbox, &line).await?;
            open.push_back(sandbox);
            if open.len() > 8
                && let Some(oldest) = open.pop_front()
            {
                self.remove(&oldest).await?;
            }
            // Without images, which stay.
            let parts = ["sandboxes", "layers"].map(|part| size(&folder.join(part)));
            sizes.push(parts.iter().sum::<u64>() as f64 / f64::from(1 << 20));
        }
        // The first eight only come.
        let sizes = sizes.get(8..).unwrap_or_default();
        let tenth = (sizes.len() / 10).max(1);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        let first = mean(&sizes[..tenth]);
        Ok((first, mean(&sizes[sizes.len() - tenth..])))
    }
}

fn name_of(view: &Value) -> Result<String, String> {
    let name = view["id"].as_str();
    name.map(str::to_owned)
        .ok_or_else(|| "a sandbox has no name".to_owned())
}

/// Bytes of a folder. What vanishes meanwhile is not counted.
fn size(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        let own = metadata.blocks() * 512;
        Some(
            own + if metadata.is_dir() {
                size(&entry.path())
            } else {
                0
            },
        )
    });
    sizes.sum()
}
