//! How long simulated engines give no tokens because of an update of their weights: if a trainer stops
//! all of them, and with treadle, in lockstep and one after the other.

use super::super::figures::{Figure, Report};
use super::super::folder::TemporaryFolder;
use super::super::{BenchError, report_progress};
use super::fleet::{Fleet, JOB, Seen};
use super::{MB, TENSOR_BYTES, Weights, WeightsArgs, blocking, failed};
use futures_util::future::try_join_all;
use http::HeaderMap;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use treadle_demo::exchange::post;
use treadle_weight_store::{Places, PublishOptions};

const NOTE: &str = "exposed.*: the engines are simulated. They load weights at --load-mb-per-s, an input, \
    generate nothing while they are paused or load, and don't compute caches again afterwards, under \
    any system. Programs, daemon, store, pulls and calls are real, on one machine, whose disk is \
    that of trainer and hosts. stop_the_world lets no step begin, waits for those that run, pulls, \
    loads all engines and goes on; lockstep and rolling are treadle's updates, whose hosts pull while \
    engines serve. Weights are synthetic; the first two versions are not counted. engine_s is time \
    without tokens for each update, of all engines together, counted from 250 ms on; pause is that \
    of one engine; without_updates the same in a time without updates, for each second. hidden is \
    the share of a pull and a load during which an engine gives tokens; below 0 it gives none for \
    longer than both take. pull of treadle is from the publication until engines are paused.";
/// The share of pulls that rollouts hide in RollArt's evaluation.
const ROLLART: &str = "67 to 78 (RollArt)";
/// Versions that are not counted: the first is whole, and the second makes a copy of its own.
const WARM_UP: u64 = 2;
/// Time without updates, after the start and after each update.
const CALM: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum System {
    StopTheWorld,
    Lockstep,
    Rolling,
}

impl System {
    const ALL: [Self; 3] = [Self::StopTheWorld, Self::Lockstep, Self::Rolling];

    const fn name(self) -> &'static str {
        match self {
            Self::StopTheWorld => "stop_the_world",
            Self::Lockstep => "lockstep",
            Self::Rolling => "rolling",
        }
    }
}

/// Runs each system.
pub(super) async fn measure(args: &WeightsArgs, report: &mut Report) -> Result<(), BenchError> {
    report.note(NOTE);
    report.setting("updates", args.updates);
    report.setting("engines", args.engines);
    report.setting("engines_simulated", true);
    report.setting("programs", args.programs);
    report.setting("load_mb_per_s", args.load_mb_per_s);
    for system in System::ALL {
        report_progress(&format!("weights: exposed, {} ...", system.name()));
        let folder = TemporaryFolder::new().map_err(|error| failed(error.to_string()))?;
        let places = Places {
            store: folder.path().join("store"),
            folder: folder.path().join("local"),
        };
        let fleet = Box::pin(Fleet::start(args, &places)).await?;
        let tensors = args.megabytes as usize * 1_000_000 / TENSOR_BYTES;
        let mut run = Run {
            args,
            system,
            fleet,
            places: places.of_job(JOB),
            saved: folder.path().join("saved"),
            weights: Weights::new(tensors),
        };
        let measured = run.measure().await;
        // A step that failed is why the rest did.
        run.fleet.stop().await?;
        measured?.push(report, args, system);
    }
    Ok(())
}

/// Updates under one system.
struct Run<'a> {
    args: &'a WeightsArgs,
    system: System,
    fleet: Fleet,
    places: Places,
    /// Where the trainer saves its checkpoint.
    saved: PathBuf,
    weights: Weights,
}

/// What one update took.
#[derive(Default)]
struct Cost {
    push_s: f64,
    push_bytes: u64,
    pull_s: f64,
    /// Not known of pulls that the daemon makes.
    pull_bytes: Option<u64>,
    /// From the publication until all engines serve.
    update_s: f64,
}

/// What was measured of a system.
struct Measured {
    costs: Vec<Cost>,
    /// Without updates.
    calm: Seen,
    /// With updates.
    seen: Seen,
}

impl Run<'_> {
    async fn measure(&mut self) -> Result<Measured, BenchError> {
        if self.system != System::StopTheWorld {
            self.fleet.declare().await?;
        }
        for version in 1..=WARM_UP {
            self.update(version).await?;
        }
        let watch = self.fleet.watch();
        tokio::time::sleep(CALM).await;
        let calm = watch.end().await?;
        let watch = self.fleet.watch();
        let mut costs = Vec::new();
        for version in WARM_UP + 1..=WARM_UP + u64::from(self.args.updates) {
            costs.push(self.update(version).await?);
            tokio::time::sleep(CALM).await;
        }
        let seen = watch.end().await?;
        Ok(Measured { costs, calm, seen })
    }

    /// Saves, pushes and loads a version.
    async fn update(&mut self, version: u64) -> Result<Cost, BenchError> {
        if self.system != System::StopTheWorld {
            self.fleet.train(version).await?;
        }
        if version > 1 {
            let percent = self.args.changed_percent as usize;
            self.weights.train(percent, self.args.density);
        }
        let (weights, saved) = (self.weights.clone(), self.saved.clone());
        blocking(move || Ok(weights.write(&saved)?)).await?;
        let began = Instant::now();
        let (stream, saved) = (self.places.stream(0), self.saved.clone());
        let published = blocking(move || {
            let options = PublishOptions::default();
            Ok(stream.publish(&saved, version, options)?)
        });
        let published = published.await?;
        let mut cost = Cost {
            push_s: began.elapsed().as_secs_f64(),
            push_bytes: published.written_bytes,
            ..Cost::default()
        };
        let began = Instant::now();
        match self.system {
            System::StopTheWorld => self.stop_the_world(version, &mut cost).await?,
            System::Lockstep | System::Rolling => self.publish(version, &mut cost).await?,
        }
        cost.update_s = began.elapsed().as_secs_f64();
        let stream = self.places.stream(0);
        blocking(move || Ok(stream.prepare_next()?)).await?;
        Ok(cost)
    }

    /// No step begins before all engines have the version.
    async fn stop_the_world(&self, version: u64, cost: &mut Cost) -> Result<(), BenchError> {
        self.fleet.drain().await;
        let began = Instant::now();
        let (stream, local) = (self.places.stream(0), self.places.local(0));
        let pulled = blocking(move || Ok(local.pull(&stream, version, &[version - 1])?));
        let pulled = pulled.await?;
        cost.pull_s = began.elapsed().as_secs_f64();
        cost.pull_bytes = Some(pulled.moved_bytes);
        let body = json!({"model_path": pulled.folder, "weight_version": format!("0.{version}")});
        let body = body.to_string();
        let engines = self.fleet.engines();
        let loads = engines.iter().map(|url| self.load(url, &body));
        try_join_all(loads).await.map_err(failed)?;
        self.fleet.open();
        Ok(())
    }

    async fn load(&self, url: &str, body: &str) -> Result<(), String> {
        let (upstream, headers) = (&self.fleet.upstream, HeaderMap::new());
        let path = "/update_weights_from_disk";
        post(upstream, url, path, &headers, body.to_owned()).await?;
        post(upstream, url, "/flush_cache", &headers, String::new()).await?;
        Ok(())
    }

    /// treadle has the hosts pull, and loads the engines.
    async fn publish(&self, version: u64, cost: &mut Cost) -> Result<(), BenchError> {
        let rolling = self.system == System::Rolling;
        let body = json!({"version": version, "rolling": rolling});
        self.fleet.post("/weights", &body).await?;
        let view = loop {
            let view = self.fleet.get("/weights?wait_s=60").await?;
            if view["update"].is_null() {
                break view;
            }
        };
        let last = &view["last"];
        if last["weights"]["version"] != version || last["held"] != self.args.engines {
            return Err(failed(format!("not all engines serve {version}: {view}")));
        }
        let seconds = |field: &str| last[field].as_f64().unwrap_or_default();
        cost.pull_s = seconds("took_s") - seconds("exposed_s");
        Ok(())
    }
}

impl Measured {
    fn push(&self, report: &mut Report, args: &WeightsArgs, system: System) {
        let mut push = |what: &str, value: f64, unit: &'static str| {
            report.push(figure(system, what, value, unit));
        };
        let updates = self.costs.len() as f64;
        let mean = |of: fn(&Cost) -> f64| self.costs.iter().map(of).sum::<f64>() / updates;
        let engine_s = self.seen.silent_s / updates;
        let pause_s = engine_s / f64::from(args.engines);
        push("pause", pause_s, "s");
        push("engine_s", engine_s, "engine-s");
        let calm = self.calm.silent_s / self.calm.took_s;
        push("without_updates", calm, "engine-s/s");
        push("update", mean(|cost| cost.update_s), "s");
        push("push", mean(|cost| cost.push_s), "s");
        push("push.bytes", mean(|cost| cost.push_bytes as f64) / MB, "MB");
        let pull_s = mean(|cost| cost.pull_s);
        push("pull", pull_s, "s");
        if self.costs.iter().all(|cost| cost.pull_bytes.is_some()) {
            let bytes = mean(|cost| cost.pull_bytes.unwrap_or_default() as f64);
            push("pull.bytes", bytes / MB, "MB");
        }
        push(
            "tokens",
            self.seen.tokens as f64 / self.seen.took_s,
            "tokens/s",
        );
        let load_s = f64::from(args.megabytes) / f64::from(args.load_mb_per_s);
        let hidden = 100.0 * (1.0 - pause_s / (pull_s + load_s));
        report.push(figure(system, "hidden", hidden, "%").reference(ROLLART));
    }
}

fn figure(system: System, what: &str, value: f64, unit: &'static str) -> Figure {
    Figure::new(format!("exposed.{}.{what}", system.name()), value, unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::weights::Part;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WeightsArgs,
    }

    #[test]
    fn what_is_hidden_is_what_an_engine_does_not_lose() {
        let line = "x --parts exposed --engines 2 --megabytes 100 --load-mb-per-s 100";
        let args = Line::try_parse_from(line.split(' ')).unwrap().args;
        assert_eq!(args.parts, [Part::Exposed]);
        let seen = |silent_s: f64| Seen {
            took_s: 10.0,
            tokens: 500,
            silent_s,
        };
        let hidden = |silent_s: f64| {
            let cost = || Cost {
                pull_s: 3.0,
                ..Cost::default()
            };
            let measured = Measured {
                costs: vec![cost(), cost()],
                calm: seen(0.0),
                seen: seen(silent_s),
            };
            let mut report = Report::new("weights");
            measured.push(&mut report, &args, System::Rolling);
            let figures = report.to_json()["figures"].clone();
            assert_eq!(figures["exposed.rolling.tokens"]["value"], 50.0);
            figures["exposed.rolling.hidden"]["value"].as_f64()
        };
        // Two engines, two updates, each of 3 s of pulling and 1 s of loading.
        assert_eq!(hidden(4.0), Some(75.0));
        assert_eq!(hidden(16.0), Some(0.0));
    }
}
