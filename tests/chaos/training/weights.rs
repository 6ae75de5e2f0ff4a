//! Updates of the engines' weights, in turn of lineages: versions that the daemon loads, and updates
//! that the trainer drives through its relay.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::trainer::Trainer;
use crate::error::ChaosError;

/// Pause before an update is looked at again, or begun again.
const PAUSE: Duration = Duration::from_millis(100);

/// A version, by its lineage.
#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) lineage: u64,
    pub(super) version: u64,
}

impl Version {
    /// Whether the trainer drives the updates of its lineage.
    pub(super) fn is_driven(self) -> bool {
        !self.lineage.is_multiple_of(2)
    }

    fn name(self) -> String {
        format!("{}.{}", self.lineage, self.version)
    }
}

impl Trainer {
    /// Has engines load a version; it is in service when this completes.
    pub(super) async fn update(&mut self, version: Version) -> Result<(), ChaosError> {
        if version.is_driven() {
            self.drive(version).await?;
            let body = json!({"lineage": version.lineage, "version": version.version});
            self.tell("versions", body).await?;
        } else {
            self.publish(version).await?;
        }
        self.add_version(version)
    }

    /// Publishes until the version is in service.
    async fn publish(&mut self, version: Version) -> Result<(), ChaosError> {
        let body = json!({"lineage": version.lineage, "version": version.version,
            "folder": format!("/weights/{}", version.name()), "ready_s": 5});
        loop {
            let weights = self.weights().await;
            if serves(&weights, version) {
                return Ok(());
            }
            if weights["update"].is_null() || weights["update"]["stage"] == "driven" {
                self.attempt("weights", &body, "a trainer updates").await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Drives updates until an engine serves the version.
    async fn drive(&mut self, version: Version) -> Result<(), ChaosError> {
        loop {
            let weights = self.weights().await;
            if serves(&weights, version) {
                return Ok(());
            }
            self.drive_once(version).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Makes the calls of one update, each once: whatever fails, the update begins again.
    async fn drive_once(&mut self, version: Version) {
        let tensor = json!({"serialized_named_tensors": [version.name()]});
        let steps = [
            ("pause_generation", json!({"mode": "retract"})),
            ("begin_weight_update", json!({})),
            ("update_weights_from_tensor", tensor.clone()),
            ("update_weights_from_tensor", tensor),
            // Its number is the version's.
            (
                "end_weight_update",
                json!({"weight_version": version.version.to_string()}),
            ),
            ("continue_generation", json!({})),
        ];
        for (path, body) in steps {
            if !self
                .attempt(&format!("engine/{path}"), &body, "treadle loads")
                .await
            {
                return;
            }
        }
    }

    /// Has all engines serve the version that is in service, after the last kill.
    pub(super) async fn settle_weights(&mut self, version: Version) -> Result<(), ChaosError> {
        loop {
            let weights = self.weights().await;
            let workers = weights["workers"].as_array();
            let all_serve = workers.is_some_and(|all| all.iter().all(|w| w["fenced"] == false));
            if weights["update"].is_null() && all_serve {
                return Ok(());
            }
            if version.is_driven() {
                self.drive_once(version).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn weights(&self) -> Value {
        let weights = self.api.insist(Method::GET, "weights", &Value::Null).await;
        weights.json()
    }

    /// Makes a call once; whether it was answered, and accepted. If it is refused because the
    /// engines of the job were updated in the other way, that ends.
    async fn attempt(&self, path: &str, body: &Value, other_way: &str) -> bool {
        let reply = self.api.once(Method::POST, path, &[], body).await;
        let Some(reply) = reply else { return false };
        let message = String::from_utf8_lossy(&reply.body);
        if !reply.status.is_success() && message.contains(other_way) {
            self.api
                .once(Method::DELETE, "weights", &[], &Value::Null)
                .await;
        }
        reply.status.is_success()
    }
}

fn serves(weights: &Value, version: Version) -> bool {
    let serving = &weights["serving"];
    serving["lineage"] == version.lineage && serving["version"] == version.version
}
