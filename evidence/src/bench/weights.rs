//! `treadle-bench weights`: how fast versions of weights are published and reach hosts, beside what
//! the disk does with the same bytes; and how long engines give no tokens because of them.

mod exposed;
mod fleet;

use super::figures::{Figure, Report, Target};
use super::folder::TemporaryFolder;
use super::{BenchError, report_progress};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;
use treadle_weight_store::{Local, PublishOptions, Stream};

const NOTE: &str = "Synthetic weights on the disk of the folder for temporary files, by one process. \
    Changed tensors have other random bytes, which no compression makes smaller, unless --density \
    says that a share of their bytes changes. copy and write are what the disk does with as many \
    bytes, read and written in pieces of 1 MiB and made durable with fsync: the mean of runs \
    directly before and after. Publications and pulls are durable too, and read and prove every \
    tensor, also those that did not change. Hosts pull one after the other. pull.first has nothing \
    on the host; pull.second makes a copy beside the version that stays in service; pull.next is \
    every later one, into the copy before last, and is what an update of a run is. moved is what \
    was read from the store. Files may be in the page cache, for both.";
/// Bytes of a tensor.
const TENSOR_BYTES: usize = 10_000_000;
/// Files of a checkpoint.
const SHARDS: usize = 4;
const PIECE: usize = 1 << 20;
const MB: f64 = 1e6;

/// What is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Part {
    /// Publications and pulls, beside the disk.
    Store,
    /// Time without tokens during updates of simulated engines.
    Exposed,
}

/// Arguments of `treadle-bench weights`.
#[derive(Args, Clone, Debug)]
pub(super) struct WeightsArgs {
    /// What to measure; all unless given.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Store, Part::Exposed])]
    parts: Vec<Part>,
    /// Megabytes of weights.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    megabytes: u32,
    /// Tensors in a hundred that change from one version to the next.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100))]
    changed_percent: u32,
    /// Bytes in a thousand of a changed tensor that change; 1,000 for all.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    density: u32,
    /// Hosts.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    hosts: u32,
    /// Versions of `exposed`, after two that are not counted.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    updates: u32,
    /// Simulated engines of `exposed`.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    engines: u32,
    /// Programs of `exposed` that are at work all the time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    programs: u32,
    /// Megabytes of weights that a simulated engine loads in a second.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    load_mb_per_s: u32,
}

impl WeightsArgs {
    /// Measures the parts.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let mut args = self.clone();
        if quick {
            args.megabytes = args.megabytes.min(100);
            args.updates = args.updates.min(2);
            // Loads take a second.
            args.load_mb_per_s = args.megabytes;
        }
        let mut report = Report::new("weights");
        report.setting("megabytes", args.megabytes);
        report.setting("changed_percent", args.changed_percent);
        report.setting("density", args.density);
        if args.parts.contains(&Part::Store) {
            let args = args.clone();
            report = blocking(move || args.measure(report)).await?;
        }
        if args.parts.contains(&Part::Exposed) {
            Box::pin(exposed::measure(&args, &mut report)).await?;
        }
        Ok(report)
    }

    /// Publishes and pulls three versions.
    fn measure(&self, mut report: Report) -> Result<Report, Failure> {
        report.note(NOTE);
        report.setting("hosts", self.hosts);
        let folder = TemporaryFolder::new()?;
        let saved = folder.path().join("saved");
        let stream = Stream::new(folder.path().join("store"));
        let plain = folder.path().join("plain");
        let disk = Disk {
            to: &plain,
            from: &saved,
        };
        let mut weights = Weights::new(self.megabytes as usize * 1_000_000 / TENSOR_BYTES);
        for (version, name) in [(1, "first"), (2, "second"), (3, "next")] {
            report_progress(&format!("weights: {name} version ..."));
            weights.write(&saved)?;
            let mut published = None;
            let mut rates = Rates::default();
            // The trainer has the bytes: the disk only writes them.
            let bytes = weights.changed_bytes();
            disk.compare(&mut rates, bytes, false, || {
                let options = PublishOptions::default();
                published = Some(stream.publish(&saved, version, options)?);
                Ok(bytes)
            })?;
            rates.push(&mut report, &format!("publish.{name}"), "write");
            let written = published.map_or(0, |published| published.written_bytes);
            let name_of = |what: &str| format!("publish.{name}.{what}");
            report.push(Figure::new(name_of("written"), ratio(written, bytes), "x"));
            let began = Instant::now();
            stream.prepare_next()?;
            let after = began.elapsed().as_secs_f64();
            report.push(Figure::new(name_of("after"), after, "s"));
            report_progress(&format!("weights: {name} pull ..."));
            let mut rates = Rates::default();
            let mut moved = 0;
            for host in 0..self.hosts {
                let local = Local::new(folder.path().join(format!("host-{host}")));
                disk.compare(&mut rates, 0, true, || {
                    let pulled = local.pull(&stream, version, &[version - 1])?;
                    moved += pulled.moved_bytes;
                    Ok(pulled.written_bytes)
                })?;
            }
            rates.push(&mut report, &format!("pull.{name}"), "copy");
            let moved = ratio(moved, bytes * u64::from(self.hosts));
            report.push(Figure::new(format!("pull.{name}.moved"), moved, "x"));
            weights.train(self.changed_percent as usize, self.density);
        }
        Ok(report)
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Does work that keeps its thread busy.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, BenchError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| failed(error.to_string()))?;
    done.map_err(|error| failed(error.to_string()))
}

fn failed(first: String) -> BenchError {
    BenchError::Requests {
        case: "weights".to_owned(),
        count: 1,
        first,
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Times of the store, and of the disk with the same bytes.
#[derive(Default)]
struct Rates {
    bytes: u64,
    took_s: f64,
    plain_s: f64,
}

impl Rates {
    fn push(&self, report: &mut Report, name: &str, plain: &str) {
        let rate = self.bytes as f64 / MB / self.took_s;
        report.push(Figure::new(format!("{name}.rate"), rate, "MB/s"));
        let plain_rate = self.bytes as f64 / MB / self.plain_s;
        report.push(Figure::new(format!("{name}.{plain}"), plain_rate, "MB/s"));
        let share = Figure::new(format!("{name}.share"), self.plain_s / self.took_s, "x");
        report.push(share.target(Target::AtLeast(0.8)));
    }
}

/// What the disk does by itself.
struct Disk<'d> {
    /// A file to write to.
    to: &'d Path,
    /// Where to copy from.
    from: &'d Path,
}

impl Disk<'_> {
    /// Measures work, and before and after it how long the disk takes for as many bytes. How many
    /// these are may be known only afterwards.
    fn compare(
        &self,
        rates: &mut Rates,
        bytes: u64,
        copies: bool,
        work: impl FnOnce() -> Result<u64, Failure>,
    ) -> Result<(), Failure> {
        let before = if bytes > 0 {
            Some(self.plain(bytes, copies)?)
        } else {
            None
        };
        let began = Instant::now();
        let bytes = work()?;
        rates.took_s += began.elapsed().as_secs_f64();
        rates.bytes += bytes;
        let after = self.plain(bytes, copies)?;
        rates.plain_s += before.map_or(after, |before| f64::midpoint(before, after));
        Ok(())
    }

    /// Seconds that it takes to write bytes, or to copy them from the trainer's files, durably.
    fn plain(&self, bytes: u64, copies: bool) -> io::Result<f64> {
        let mut piece: Vec<u8> = noise(7).take(PIECE).collect();
        let began = Instant::now();
        let mut to = File::create(self.to)?;
        let (mut left, mut shard) = (bytes, 0);
        while left > 0 {
            let mut from = File::open(self.from.join(shard_name(shard % SHARDS)))?;
            loop {
                let mut length = PIECE.min(left as usize);
                if copies {
                    length = from.read(&mut piece[..length])?;
                }
                if length == 0 {
                    break;
                }
                to.write_all(&piece[..length])?;
                left -= length as u64;
            }
            shard += 1;
        }
        to.sync_all()?;
        let took = began.elapsed().as_secs_f64();
        fs::remove_file(self.to)?;
        Ok(took)
    }
}

/// Bytes that look random.
fn noise(mut seed: u64) -> impl Iterator<Item = u8> {
    std::iter::repeat_with(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    })
    .flatten()
}

fn shard_name(shard: usize) -> String {
    format!("model-{:05}-of-{SHARDS:05}.safetensors", shard + 1)
}

/// The weights of a trainer: seeds of tensors, not their bytes.
#[derive(Clone)]
struct Weights {
    tensors: Vec<Vec<Training>>,
    steps: u64,
    changed: usize,
}

/// A change to a tensor: the first one is its beginning.
#[derive(Clone, Copy)]
struct Training {
    seed: u64,
    /// Bytes in a thousand.
    density: u32,
}

impl Weights {
    fn new(tensors: usize) -> Self {
        let first = |seed| {
            vec![Training {
                seed: seed as u64 + 1,
                density: 1_000,
            }]
        };
        Self {
            tensors: (0..tensors).map(first).collect(),
            steps: 0,
            changed: tensors,
        }
    }

    /// Bytes of the tensors that the last step changed.
    fn changed_bytes(&self) -> u64 {
        (self.changed * TENSOR_BYTES) as u64
    }

    /// Changes a share of the tensors, others each time.
    fn train(&mut self, percent: usize, density: u32) {
        self.steps += 1;
        let steps = self.steps;
        let is_changed = |at: &usize| (at * 37 + steps as usize * 61) % 100 < percent;
        let changed: Vec<usize> = (0..self.tensors.len()).filter(is_changed).collect();
        self.changed = changed.len();
        for at in changed {
            let seed = steps * 1_000_003 + at as u64;
            let history = &mut self.tensors[at];
            if density == 1_000 {
                history.clear();
            }
            history.push(Training { seed, density });
        }
    }

    fn bytes(&self, tensor: usize) -> Vec<u8> {
        let mut bytes = vec![0; TENSOR_BYTES];
        for training in &self.tensors[tensor] {
            let step = 1_000 / training.density as usize;
            for (byte, noise) in bytes.iter_mut().step_by(step).zip(noise(training.seed)) {
                *byte ^= noise;
            }
        }
        bytes
    }

    /// Writes them as Hugging Face does.
    fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut map = serde_json::Map::new();
        for shard in 0..SHARDS {
            let name = shard_name(shard);
            let own: Vec<usize> = (shard..self.tensors.len()).step_by(SHARDS).collect();
            let mut header = json!({"__metadata__": {"format": "pt"}});
            for (at, tensor) in own.iter().enumerate() {
                let tensor_name = format!("model.layers.{tensor}.weight");
                header[&tensor_name] = json!({
                    "dtype": "BF16",
                    "shape": [TENSOR_BYTES / 2],
                    "data_offsets": [at * TENSOR_BYTES, (at + 1) * TENSOR_BYTES],
                });
                map.insert(tensor_name, json!(name));
            }
            let header = header.to_string();
            let mut file = BufWriter::new(File::create(folder.join(&name))?);
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(header.as_bytes())?;
            for tensor in own {
                file.write_all(&self.bytes(tensor))?;
            }
            file.into_inner()?.sync_all()?;
        }
        let index = json!({"metadata": {}, "weight_map": map}).to_string();
        fs::write(folder.join("model.safetensors.index.json"), index)
    }
}
