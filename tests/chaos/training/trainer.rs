//! The trainer, a process of its own. It stores each batch as it comes, and its progress before it
//! goes on; after its death it goes on with the batch that it had, or back to its checkpoint.

use std::path::{Path, PathBuf};

use http::Method;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use super::api::Api;
use super::weights::Version;
use super::{BATCHES, STOP, TRAINER, lognormal};
use crate::error::ChaosError;
use crate::record::{self, Record};

/// Its progress, in the folder of the run.
const PROGRESS: &str = "progress.json";
/// Batches that it trains on once it is told to come to its end; none of them is in a checkpoint, so
/// that their samples can be proven.
const LAST: u32 = 3;

/// What the trainer knows after its death.
#[derive(Default)]
struct Progress {
    lineage: u64,
    /// The last batch that it trained on.
    trained: u64,
    /// The last batch in its checkpoint.
    checkpoint: u64,
    /// It goes back to its checkpoint.
    resumes: bool,
}

impl Progress {
    fn of(value: &Value) -> Self {
        let number = |field: &str| value[field].as_u64().unwrap_or_default();
        Self {
            lineage: number("lineage"),
            trained: number("trained"),
            checkpoint: number("checkpoint"),
            resumes: value["resumes"] == true,
        }
    }

    fn to_json(&self) -> Value {
        json!({"lineage": self.lineage, "trained": self.trained, "checkpoint": self.checkpoint,
            "resumes": self.resumes})
    }
}

pub(super) struct Trainer {
    pub(super) api: Api,
    folder: PathBuf,
    record: Record,
    progress: Progress,
    random: Pcg64Mcg,
    /// The version of the last batch was not told yet.
    is_late: bool,
}

/// Trains until it is told to come to its end.
pub(crate) async fn train(url: String, folder: &Path, seed: u64) -> Result<(), ChaosError> {
    let path = folder.join(TRAINER);
    let record = Record::append(&path)?;
    // Another one decides differently after each death.
    let lived = record::read(&path)?.len() as u64;
    let progress = std::fs::read(folder.join(PROGRESS)).unwrap_or_default();
    let progress = serde_json::from_slice(&progress).unwrap_or_default();
    let batches = folder.join(BATCHES);
    std::fs::create_dir_all(&batches).map_err(ChaosError::file(BATCHES))?;
    let mut trainer = Trainer {
        api: Api::new(url),
        folder: folder.to_owned(),
        record,
        progress: Progress::of(&progress),
        random: Pcg64Mcg::seed_from_u64(seed ^ (lived << 20)),
        is_late: false,
    };
    trainer.recover().await?;
    let mut last = 0;
    while last < LAST {
        let ends = folder.join(STOP).exists();
        trainer.step(!ends).await?;
        last += u32::from(ends);
        if ends && trainer.progress.lineage == 0 {
            // However short the run was, some batches come again.
            trainer.resume().await?;
        }
    }
    trainer.version().await?;
    trainer.settle_weights(trainer.newest()).await
}

impl Trainer {
    /// Repeats what it may not have told before its death; then goes on, or back to its checkpoint.
    async fn recover(&mut self) -> Result<(), ChaosError> {
        if self.progress.resumes {
            return self.resume().await;
        }
        if self.progress.checkpoint > 0 {
            self.checkpoint().await?;
        }
        if self.progress.trained > self.progress.checkpoint {
            if self.random.random_bool(0.5) {
                return self.resume().await;
            }
            self.trained().await?;
        }
        self.version().await
    }

    /// Trains on the next batch.
    async fn step(&mut self, saves: bool) -> Result<(), ChaosError> {
        let batch = self.progress.trained + 1;
        for _ in 0..=u32::from(self.random.random_ratio(1, 3)) {
            self.receive(batch).await?;
        }
        self.pause().await;
        self.progress.trained = batch;
        self.save()?;
        self.trained().await?;
        // Engines that lag a version behind wait for nothing.
        self.is_late = !self.is_late && self.random.random_ratio(1, 4);
        if !self.is_late {
            if self.random.random_ratio(1, 3) {
                self.pause().await;
            }
            self.version().await?;
        }
        if saves && self.random.random_ratio(1, 3) {
            self.progress.checkpoint = batch;
            self.save()?;
            self.checkpoint().await?;
        }
        let has_more = self.progress.trained > self.progress.checkpoint;
        if saves && has_more && self.random.random_ratio(1, 20) {
            self.resume().await?;
        }
        Ok(())
    }

    /// Waits for a batch and stores it as it came.
    async fn receive(&mut self, batch: u64) -> Result<(), ChaosError> {
        let path = format!("batches/{batch}?wait_s=5");
        let view = loop {
            let reply = self.call(Method::GET, &path, &Value::Null).await?;
            if reply.status.as_u16() == 200 {
                break reply;
            }
        };
        let path = format!("batches/{batch}/payload");
        let payload = self.call(Method::GET, &path, &Value::Null).await?;
        let (mut stem, mut again) = (format!("batch-{batch}"), 0);
        while self.batch_file(&stem, "json").exists() {
            again += 1;
            stem = format!("batch-{batch}.{again}");
        }
        write(&self.batch_file(&stem, "safetensors"), &payload.body)?;
        write(&self.batch_file(&stem, "json"), &view.body)?;
        let view = view.json();
        let lineage = &view["lineage"];
        self.add(&json!({"kind": "batch", "lineage": lineage, "batch": batch, "file": stem}))?;
        if self.random.random_ratio(1, 6) {
            self.receive_slices(batch, &view).await?;
        }
        Ok(())
    }

    /// Has the two halves of a batch, as two ranks would.
    async fn receive_slices(&mut self, batch: u64, whole: &Value) -> Result<(), ChaosError> {
        for rank in 0..2 {
            let path = format!("batches/{batch}?rank={rank}&of=2");
            let slice = self.call(Method::GET, &path, &Value::Null).await?.json();
            let groups = whole["groups"].as_array().into_iter().flatten();
            let groups: Vec<&Value> = groups.skip(rank).step_by(2).collect();
            if slice["groups"] != json!(groups) {
                let what = format!("slice {rank} of batch {batch} has other groups: {slice}");
                self.add(&json!({"kind": "violation", "what": what}))?;
            }
        }
        Ok(())
    }

    fn batch_file(&self, stem: &str, ending: &str) -> PathBuf {
        self.folder.join(BATCHES).join(format!("{stem}.{ending}"))
    }

    async fn trained(&mut self) -> Result<(), ChaosError> {
        let (lineage, batch) = (self.progress.lineage, self.progress.trained);
        let path = format!("batches/{batch}/trained");
        self.tell(&path, json!({"lineage": lineage})).await?;
        self.add(&json!({"kind": "trained", "lineage": lineage, "batch": batch}))
    }

    /// The weights after the last batch that it trained on.
    fn newest(&self) -> Version {
        Version {
            lineage: self.progress.lineage,
            version: self.progress.trained,
        }
    }

    async fn version(&mut self) -> Result<(), ChaosError> {
        self.update(self.newest()).await
    }

    pub(super) fn add_version(&self, of: Version) -> Result<(), ChaosError> {
        let kind = if of.is_driven() {
            "version"
        } else {
            "published"
        };
        self.add(&json!({"kind": kind, "lineage": of.lineage, "version": of.version}))
    }

    async fn checkpoint(&mut self) -> Result<(), ChaosError> {
        let (lineage, batch) = (self.progress.lineage, self.progress.checkpoint);
        let body = json!({"lineage": lineage, "batch": batch});
        self.tell("checkpoints", body).await?;
        self.add(&json!({"kind": "checkpoint", "lineage": lineage, "batch": batch}))
    }

    /// Goes back to its checkpoint. Repeated after a death, it must not go back twice.
    async fn resume(&mut self) -> Result<(), ChaosError> {
        let (lineage, batch) = (self.progress.lineage, self.progress.checkpoint);
        self.progress.resumes = true;
        self.save()?;
        let body = json!({"lineage": lineage, "batch": batch});
        let answer = self.tell("resume", body).await?;
        let now = &answer["lineage"];
        self.add(&json!({"kind": "resumed", "lineage": lineage, "batch": batch, "now": now}))?;
        self.progress = Progress {
            lineage: now.as_u64().unwrap_or_default(),
            trained: batch,
            checkpoint: batch,
            resumes: false,
        };
        self.save()?;
        self.is_late = false;
        self.outlive(lineage, batch).await?;
        self.version().await
    }

    /// What a trainer of an older lineage says must be refused.
    async fn outlive(&mut self, lineage: u64, version: u64) -> Result<(), ChaosError> {
        let body = json!({"lineage": lineage, "version": version});
        let reply = self.api.insist(Method::POST, "versions", &body).await;
        if reply.json()["error"]["code"] != "version_conflict" {
            let what = format!("{body} was told in lineage {}", self.progress.lineage);
            self.add(&json!({"kind": "violation", "what": what}))?;
        }
        Ok(())
    }

    pub(super) async fn tell(&mut self, path: &str, body: Value) -> Result<Value, ChaosError> {
        Ok(self.call(Method::POST, path, &body).await?.json())
    }

    /// Repeats a request until it is answered; a refusal is recorded and ends the trainer.
    async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<crate::exchange::Reply, ChaosError> {
        let reply = self.api.insist(method, path, body).await;
        if reply.status.is_success() {
            return Ok(reply);
        }
        let error = &reply.json()["error"];
        self.add(&json!({"kind": "refused", "path": path, "sent": body, "error": error}))?;
        Err(ChaosError::Nonsense(format!("{path} {body}: {error}")))
    }

    fn add(&self, line: &Value) -> Result<(), ChaosError> {
        self.record.add(line)
    }

    fn save(&self) -> Result<(), ChaosError> {
        let progress = self.progress.to_json().to_string();
        write(&self.folder.join(PROGRESS), progress.as_bytes())
    }

    async fn pause(&mut self) {
        tokio::time::sleep(lognormal(&mut self.random, 80.0, 0.8)).await;
    }
}

/// Writes a file; a reader finds all of it or none.
fn write(path: &Path, content: &[u8]) -> Result<(), ChaosError> {
    let name = || path.display().to_string();
    let new = path.with_extension("new");
    std::fs::write(&new, content).map_err(ChaosError::file(name()))?;
    std::fs::rename(&new, path).map_err(ChaosError::file(name()))
}
