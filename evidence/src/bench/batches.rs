//! `treadle-bench batches`: how a trainer is served while many samples wait for it, and whether the
//! daemon's memory grows with those that went by.

use super::figures::{Figure, Report, Target};
use super::folder::TemporaryFolder;
use super::latencies::Latencies;
use super::loopback::Loopback;
use super::server::Server;
use super::{BenchError, report_progress};
use bytes::Bytes;
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};
use treadle_demo::exchange::{get, post, put};
use treadle_http::Upstream;

/// Requests at once.
const CLIENTS: usize = 16;
/// Members of a group, and groups in a batch.
const GROUP: u32 = 8;
const BATCH_GROUPS: u32 = 16;
/// Samples of a batch.
const BATCH: u32 = GROUP * BATCH_GROUPS;
/// Batches whose latency is measured.
const MEASURED: u32 = 400;
/// Groups in one submission.
const SUBMISSION: u32 = 500;
/// Output tokens of each sample of the batches whose bytes are read.
const LONG_TOKENS: u32 = 8_192;
const LONG_BATCHES: u32 = 8;
const MB: f64 = 1e6;

const NOTE: &str = "Clients report whole samples over HTTP, each with a prompt of 64 tokens; treadle runs in \
    a process of its own on this machine, with its defaults but for training.bytes_max, which has room \
    for all of them. batch.first is the time of the request that cuts a batch, batch.again of the same \
    request once more, with 128 samples in a batch, while as many samples wait as the setting says. \
    payload.rate is that of GET .../payload, the first one of each batch, whose samples were stored \
    right before, so that a SQLite file of them is in the page cache; payload.cold is that after the \
    file was dropped from there. payload.disk and payload.cache are those at which a file of the same bytes is \
    read in pieces of 1 MiB, from the disk and from the page cache; payload.loopback is that at which \
    the same bytes come from the memory of this process over HTTP, to the same client: no server is \
    faster. What was read is not kept in any of them. payload.share is payload.rate over payload.disk, \
    payload.ceiling is payload.loopback over it: the most that payload.share can be on this machine. \
    flow.* has the daemon's memory after a tenth and after all of further samples that were trained \
    and released.";

/// Arguments of `treadle-bench batches`.
#[derive(Args, Clone, Debug)]
pub(super) struct BatchesArgs {
    /// Samples that wait to be trained.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=120_000))]
    samples: u32,
    /// Output tokens of each.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=8_192))]
    tokens: u32,
    /// Samples that are trained and released after that, while memory is looked at.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    flow: u32,
    /// URL of a PostgreSQL database; a SQLite file without it.
    #[arg(long)]
    store: Option<String>,
}

impl BatchesArgs {
    /// Fills a daemon with samples, asks for batches, and lets samples flow through.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let mut args = self.clone();
        if quick {
            args.samples = args.samples.min(4_000);
            args.flow = args.flow.min(4_000);
        }
        let mut settings = vec!["training.bytes_max=16000000000".to_owned()];
        settings.extend(args.store.iter().map(|url| format!("store.url={url}")));
        let engine = Server::engine().await?;
        let gateway = Server::gateway(&engine.url, &settings).await?;
        let mut report = Report::new("batches");
        report.note(NOTE);
        report.setting("samples", args.samples);
        report.setting("tokens", args.tokens);
        report.setting("flow", args.flow);
        let store = args.store.as_ref().map_or("SQLite file", |_| "PostgreSQL");
        report.setting("store", store);
        let run = Run {
            gateway: &gateway,
            upstream: Upstream::new(Duration::from_secs(5)),
        };
        let measured = run.measure(&args, &mut report).await;
        gateway.stop().await;
        engine.stop().await;
        measured.map_err(|first| BenchError::Requests {
            case: "batches".to_owned(),
            count: 1,
            first,
        })?;
        Ok(report)
    }
}

struct Run<'a> {
    gateway: &'a Server,
    upstream: Upstream,
}

impl Run<'_> {
    async fn measure(&self, args: &BatchesArgs, report: &mut Report) -> Result<(), String> {
        self.declare("waiting").await?;
        report_progress(&format!("batches: {} samples ...", args.samples));
        let began = Instant::now();
        let groups = args.samples.div_ceil(GROUP);
        self.sample("waiting", 0, groups, args.tokens).await?;
        let rate = f64::from(groups * GROUP) / began.elapsed().as_secs_f64();
        report.push(Figure::new("samples.rate", rate, "/s"));
        self.latencies(groups / BATCH_GROUPS, report).await?;
        self.payloads(args, report).await?;
        if args.flow > 0 {
            self.flow(args, report).await?;
        }
        Ok(())
    }

    async fn declare(&self, job: &str) -> Result<(), String> {
        let settings = json!({"group_size": GROUP, "batch_groups": BATCH_GROUPS,
            "lag_max": 1_000, "pipeline": 1_000});
        let path = format!("/api/v1/jobs/{job}");
        put(
            &self.upstream,
            &self.gateway.url,
            &path,
            settings.to_string(),
        )
        .await?;
        Ok(())
    }

    async fn post(&self, path: &str, body: &Value) -> Result<(), String> {
        let (url, headers) = (&self.gateway.url, HeaderMap::new());
        post(&self.upstream, url, path, &headers, body.to_string()).await?;
        Ok(())
    }

    /// Submits groups and reports all their members.
    async fn sample(&self, job: &str, from: u32, groups: u32, tokens: u32) -> Result<(), String> {
        let sample = sample(tokens);
        for first in (from..from + groups).step_by(SUBMISSION as usize) {
            let last = (first + SUBMISSION).min(from + groups);
            let submitted: Vec<Value> = (first..last)
                .map(|g| json!({"group": g.to_string()}))
                .collect();
            let path = format!("/api/v1/jobs/{job}/groups");
            self.post(&path, &json!({"groups": submitted})).await?;
            let members =
                (first * GROUP..last * GROUP).map(|member| self.member(job, member, &sample));
            let all = stream::iter(members).buffer_unordered(CLIENTS);
            all.try_collect::<Vec<()>>().await?;
        }
        Ok(())
    }

    async fn member(&self, job: &str, member: u32, sample: &Value) -> Result<(), String> {
        let program = format!("{job}-{member}");
        let begins = json!({"program": program, "group": (member / GROUP).to_string()});
        self.post(&format!("/api/v1/jobs/{job}/members"), &begins)
            .await?;
        let report = json!({"end": "completed", "reward": f64::from(member % 2), "sample": sample});
        let path = format!("/api/v1/jobs/{job}/members/{program}");
        put(&self.upstream, &self.gateway.url, &path, report.to_string()).await?;
        Ok(())
    }

    async fn batch(&self, job: &str, batch: u32) -> Result<Duration, String> {
        let path = format!("/api/v1/jobs/{job}/batches/{batch}");
        let began = Instant::now();
        let answer = get(&self.upstream, &self.gateway.url, &path).await?;
        let took = began.elapsed();
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        if answer["ready"] != true {
            return Err(format!("batch {batch} is not ready: {}", answer["waits"]));
        }
        Ok(took)
    }

    async fn latencies(&self, batches: u32, report: &mut Report) -> Result<(), String> {
        report_progress("batches: latency ...");
        let (mut first, mut again) = (Latencies::default(), Latencies::default());
        for batch in 1..=batches.min(MEASURED) {
            first.push(self.batch("waiting", batch).await?);
            again.push(self.batch("waiting", batch).await?);
        }
        for (name, mut times) in [("first", first), ("again", again)] {
            let median = Figure::new(format!("batch.{name}.p50"), times.percentile_ms(0.5), "ms");
            report.push(median);
            let tail = Figure::new(format!("batch.{name}.p99"), times.percentile_ms(0.99), "ms");
            report.push(tail.target(Target::AtMost(20.0)));
        }
        Ok(())
    }

    /// Reads whole payloads, and the same bytes in other ways.
    async fn payloads(&self, args: &BatchesArgs, report: &mut Report) -> Result<(), String> {
        report_progress("batches: payloads ...");
        self.declare("long").await?;
        self.sample("long", 0, LONG_BATCHES * BATCH_GROUPS, LONG_TOKENS)
            .await?;
        let mut all = Reads::default();
        for batch in 1..=LONG_BATCHES {
            self.batch("long", batch).await?;
            let path = format!("/api/v1/jobs/long/batches/{batch}/payload");
            let (bytes, first_s) = self.read_through(&self.gateway.url, &path).await?;
            let payload = get(&self.upstream, &self.gateway.url, &path).await?;
            if payload.len() != bytes {
                return Err(format!("{path} had {bytes} bytes, then {}", payload.len()));
            }
            let [disk_s, cache_s] = read_file(&payload).map_err(|error| error.to_string())?;
            let loopback = Loopback::of(payload).await;
            let loopback = loopback.map_err(|error| error.to_string())?;
            // The first one opens the connection; the daemon has one already.
            self.read_through(&loopback.url, "/").await?;
            let (_, loopback_s) = self.read_through(&loopback.url, "/").await?;
            if args.store.is_none() {
                let files = self.gateway.journal_files();
                let dropped = files.and_then(|files| files.iter().try_for_each(drop_from_cache));
                dropped.map_err(|error| error.to_string())?;
                all.cold_s += self.read_through(&self.gateway.url, &path).await?.1;
            }
            all.bytes += bytes;
            all.first_s += first_s;
            all.disk_s += disk_s;
            all.cache_s += cache_s;
            all.loopback_s += loopback_s;
        }
        all.report(report);
        Ok(())
    }

    /// Reads an answer in the pieces in which it comes, and returns its length and the seconds that it
    /// took.
    async fn read_through(&self, url: &str, path: &str) -> Result<(usize, f64), String> {
        let (headers, began) = (HeaderMap::new(), Instant::now());
        let sent = self
            .upstream
            .send(Method::GET, url, path, &headers, Bytes::new());
        let answer = sent.await.map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("{path}: {}", answer.status()));
        }
        let (mut body, mut length) = (answer.into_body(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            length += frame.data_ref().map_or(0, Bytes::len);
        }
        Ok((length, began.elapsed().as_secs_f64()))
    }

    /// Lets samples flow through: each batch is trained and released.
    async fn flow(&self, args: &BatchesArgs, report: &mut Report) -> Result<(), String> {
        self.declare("flow").await?;
        let batches = args.flow.div_ceil(BATCH);
        let tenth = batches.div_ceil(10);
        let mut resident = [0.0, 0.0];
        for batch in 1..=batches {
            let from = (batch - 1) * BATCH_GROUPS;
            self.sample("flow", from, BATCH_GROUPS, args.tokens).await?;
            self.batch("flow", batch).await?;
            let path = format!("/api/v1/jobs/flow/batches/{batch}/trained");
            self.post(&path, &json!({})).await?;
            self.post("/api/v1/jobs/flow/versions", &json!({"version": batch}))
                .await?;
            let path = "/api/v1/jobs/flow/checkpoints";
            self.post(path, &json!({"batch": batch})).await?;
            if batch == tenth || batch == batches {
                let now = self
                    .gateway
                    .resident_mib()
                    .map_err(|error| error.to_string())?;
                resident[usize::from(batch != tenth)] = now;
            }
            if batch % tenth == 0 {
                report_progress(&format!("batches: {batch} of {batches} went by ..."));
            }
        }
        report.push(Figure::new("flow.memory.tenth", resident[0], "MiB"));
        report.push(Figure::new("flow.memory.all", resident[1], "MiB"));
        let ratio = Figure::new("flow.memory.ratio", resident[1] / resident[0], "x");
        report.push(ratio.target(Target::AtMost(1.1)));
        Ok(())
    }
}

/// The bytes of all payloads that were read, and how long it took in each way, in seconds.
#[derive(Default)]
struct Reads {
    bytes: usize,
    /// From the daemon, right after the samples were stored.
    first_s: f64,
    /// From the daemon, after its files were dropped from the page cache; 0 without such files.
    cold_s: f64,
    /// A file, from the disk.
    disk_s: f64,
    /// A file, from the page cache.
    cache_s: f64,
    /// From memory, over HTTP.
    loopback_s: f64,
}

impl Reads {
    fn report(&self, report: &mut Report) {
        for (name, seconds) in [
            ("payload.rate", self.first_s),
            ("payload.cold", self.cold_s),
            ("payload.disk", self.disk_s),
            ("payload.cache", self.cache_s),
            ("payload.loopback", self.loopback_s),
        ] {
            report.push(if seconds > 0.0 {
                Figure::new(name, self.bytes as f64 / MB / seconds, "MB/s")
            } else {
                let reason = "a PostgreSQL server has its files, and a cache, for itself";
                Figure::absent(name, "MB/s", reason)
            });
        }
        let share = Figure::new("payload.share", self.disk_s / self.first_s, "x");
        report.push(share.target(Target::AtLeast(0.8)));
        let ceiling = self.disk_s / self.loopback_s;
        report.push(Figure::new("payload.ceiling", ceiling, "x"));
    }
}

/// A sample of one step.
fn sample(tokens: u32) -> Value {
    let prompt: Vec<u32> = (1..=64).collect();
    let output: Vec<u32> = (0..tokens)
        .map(|token| 1_000 + token * 7 % 100_000)
        .collect();
    let logprobs: Vec<f64> = (0..tokens)
        .map(|token| -f64::from(token % 97) / 64.0)
        .collect();
    json!({"steps": [{"prompt": prompt, "output": output, "logprobs": logprobs, "version": 0}]})
}

/// Seconds that reading a file of these bytes takes: from the disk, and from the page cache.
fn read_file(bytes: &[u8]) -> io::Result<[f64; 2]> {
    let folder = TemporaryFolder::new()?;
    let path = folder.path().join("payload");
    fs::write(&path, bytes)?;
    drop_from_cache(&path)?;
    let disk = read_through(&File::open(&path)?)?;
    let cache = read_through(&File::open(&path)?)?;
    Ok([disk, cache])
}

/// Drops a file from the page cache.
fn drop_from_cache(path: impl AsRef<Path>) -> io::Result<()> {
    let file = File::open(path)?;
    // What is not written yet would stay.
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

fn read_through(mut file: &File) -> io::Result<f64> {
    let mut piece = vec![0; 1 << 20];
    let began = Instant::now();
    while file.read(&mut piece)? > 0 {}
    Ok(began.elapsed().as_secs_f64())
}
