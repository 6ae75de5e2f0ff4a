//! The form `training`: agents sample members of a declared job, and a trainer in a process of its
//! own trains on batches, tells versions late, saves checkpoints and goes back to them. Loads of
//! weights fail now and then.

mod api;
mod load_faults;
mod members;
pub(crate) mod trainer;
mod weights;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use crate::error::ChaosError;
use crate::fixture::Fixture;
use api::Api;
pub(crate) use load_faults::{LOAD_FAULTS, LoadFaults};
pub(crate) use members::start;

/// The job.
pub(crate) const JOB: &str = "chaos";
/// Members of a group.
pub(crate) const GROUP_SIZE: u32 = 3;
/// Groups in a batch.
pub(crate) const BATCH_GROUPS: u32 = 3;
/// Bound on the lag.
pub(crate) const LAG_MAX: u64 = 2;
/// The trainer's record, in the folder of the run.
pub(crate) const TRAINER: &str = "trainer.jsonl";
/// Folder of the batches as the trainer received them, in the folder of the run.
pub(crate) const BATCHES: &str = "batches";
/// File that tells the trainer to come to its end.
const STOP: &str = "stop";

/// What was found of the run when it had ended.
pub(crate) struct Ended {
    /// The folder of the run.
    pub(crate) folder: PathBuf,
    /// Whether the trainer came to its end.
    pub(crate) is_trained: bool,
    /// The report of `treadle training check`.
    pub(crate) report: Value,
    /// The job as the daemon shows it.
    pub(crate) job: Value,
    /// The weights of its engines as the daemon shows them.
    pub(crate) weights: Value,
    /// Name and checksum of the weights that each engine reports.
    pub(crate) engines: Vec<Value>,
}

/// Declares the job.
pub(crate) async fn declare(fixture: &Fixture) -> Result<(), ChaosError> {
    let settings = json!({
        "group_size": GROUP_SIZE, "batch_groups": BATCH_GROUPS, "lag_max": LAG_MAX,
        "capture": "tokens", "failures_max": 3, "member_timeout_s": 6,
    });
    let reply = api(fixture).insist(Method::PUT, "", &settings).await;
    if reply.status.is_success() {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&reply.body).into_owned();
    Err(ChaosError::Nonsense(format!("the job: {answer}")))
}

/// Tells the trainer to come to its end.
pub(crate) fn stop(folder: &Path) -> Result<(), ChaosError> {
    std::fs::write(folder.join(STOP), "").map_err(ChaosError::file(STOP))
}

/// Has `treadle training check` prove the run, then ends the programs of the job.
pub(crate) async fn finish(
    fixture: &Fixture,
    folder: &Path,
    is_trained: bool,
) -> Result<Ended, ChaosError> {
    let api = api(fixture);
    let job = api.insist(Method::GET, "", &Value::Null).await.json();
    let weights = api.insist(Method::GET, "weights", &Value::Null).await;
    let mut engines = Vec::new();
    for url in fixture.engine_urls() {
        let engine = Api::new(url);
        let info = engine
            .insist(Method::GET, "/model_info", &Value::Null)
            .await;
        let checksum = json!({"action": "checksum"});
        let checksum = engine
            .insist(Method::POST, "/weights_checker", &checksum)
            .await;
        engines.push(json!({"name": info.json()["weight_version"],
            "checksum": checksum.json()["ranks"]}));
    }
    let batches = folder.join(BATCHES).display().to_string();
    let url = &fixture.daemon_urls()[0];
    let check = ["training", "check", "--json", "--job", JOB];
    let report = fixture
        .output(&[&check[..], &["--batches", &batches, "--url", url]].concat())
        .await?;
    let said = String::from_utf8_lossy(&report.stderr);
    let report = serde_json::from_slice(&report.stdout).map_err(|error| {
        ChaosError::Nonsense(format!("treadle training check: {error}: {said}"))
    })?;
    api.insist(Method::DELETE, "", &Value::Null).await;
    Ok(Ended {
        folder: folder.to_owned(),
        is_trained,
        report,
        job,
        weights: weights.json(),
        engines,
    })
}

fn api(fixture: &Fixture) -> Api {
    Api::new(fixture.daemon_urls()[0].clone())
}

/// A number that only depends on a program's name (FNV-1a).
fn number_of(program: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    program.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The reward of a program; exact in binary and in decimal.
pub(crate) fn reward_of(program: &str) -> f64 {
    (number_of(program) % 4_096) as f64 / 4_096.0
}

/// What a client that samples a member says of it.
pub(crate) fn info_of(program: &str) -> Value {
    json!({"program": program})
}

/// What is submitted with a group.
pub(crate) fn content_of(group: &str) -> Value {
    json!({"task": group})
}

/// A lognormal duration with this median, at most twenty times as long.
fn lognormal(random: &mut Pcg64Mcg, median_ms: f64, sigma: f64) -> Duration {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
    let factor = (sigma * normal).exp().min(20.0);
    Duration::from_secs_f64(median_ms / 1e3 * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn half_of_lognormal_durations_are_longer_than_the_median() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut times: Vec<_> = (0..2_001)
            .map(|_| lognormal(&mut random, 100.0, 1.0))
            .collect();
        times.sort();
        let ms = |at: usize| times[at].as_millis();
        assert!((90..=110).contains(&ms(1_000)), "{}", ms(1_000));
        assert!((240..=310).contains(&ms(1_683)), "{}", ms(1_683));
    }

    #[test]
    fn rewards_of_programs_differ() {
        assert!((reward_of("a") - reward_of("b")).abs() > 0.0);
        assert!((0.0..1.0).contains(&reward_of("a")));
    }
}
