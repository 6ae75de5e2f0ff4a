//! What a worker computes with: copies of other models and weights are not its.

use crate::gateway::Upstream;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use treadle_transfer::Tags;

/// Longest wait for a list of models.
const PATIENCE: Duration = Duration::from_secs(3);
/// Largest list of models.
const MODELS_BYTES_MAX: usize = 4 << 20;
/// Workers of which it is remembered.
const WORKERS_MAX: usize = 4_096;

/// The tags of workers, by URL.
pub(super) struct WorkerTags {
    upstream: Upstream,
    /// The version of the weights that all workers have. What changes weights changes this, and
    /// forgets the workers.
    weights: Box<str>,
    known: Mutex<HashMap<Box<str>, Tags>>,
}

impl WorkerTags {
    pub(super) fn new(upstream: Upstream, weights: &str) -> Self {
        Self {
            upstream,
            weights: weights.into(),
            known: Mutex::default(),
        }
    }

    /// The tags of a worker, which is asked if it was not before.
    pub(super) async fn of(&self, url: &str) -> Result<Tags, String> {
        if let Some(tags) = self.known().get(url) {
            return Ok(tags.clone());
        }
        let asked = tokio::time::timeout(PATIENCE, self.ask(url)).await;
        let tags = asked.unwrap_or_else(|_| {
            let patience_s = PATIENCE.as_secs();
            Err(format!(
                "{url} sent no list of models within {patience_s} s"
            ))
        })?;
        let mut known = self.known();
        if known.len() >= WORKERS_MAX {
            known.clear();
        }
        known.insert(url.into(), tags.clone());
        Ok(tags)
    }

    /// The worker may be another process than before.
    pub(super) fn forget(&self, url: &str) {
        self.known().remove(url);
    }

    async fn ask(&self, url: &str) -> Result<Tags, String> {
        let base = url.trim_end_matches('/');
        let response = self.upstream.get(base, "/v1/models").await;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("{url} answered {status} when asked for its models"));
        }
        let body = Limited::new(response.into_body(), MODELS_BYTES_MAX);
        let body = body.collect().await.map_err(|error| error.to_string())?;
        let page: Value =
            serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
        tags_of(&page, &self.weights).ok_or_else(|| format!("{url} lists no model"))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, Tags>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tags by a list of models. llama.cpp says how many parameters the model has and how large they
/// are, which tells some files of one name apart.
fn tags_of(page: &Value, weights: &str) -> Option<Tags> {
    let model = &page["data"][0];
    let meta = &model["meta"];
    let shape: Vec<String> = ["n_params", "size"]
        .into_iter()
        .filter_map(|field| Some(format!("{field}={}", meta[field].as_u64()?)))
        .collect();
    let weights = std::iter::once(weights.to_owned()).chain(shape);
    Some(Tags {
        model: model["id"].as_str()?.into(),
        weights: weights.collect::<Vec<_>>().join(" ").into(),
        block_tokens: None,
        dtype: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_one_name_may_differ() {
        let page =
            |size: u64| json!({"data": [{"id": "m", "meta": {"n_params": 9, "size": size}}]});
        let (small, large) = (tags_of(&page(1), "1"), tags_of(&page(2), "1"));
        assert_eq!(
            small.as_ref().map(|t| &*t.weights),
            Some("1 n_params=9 size=1")
        );
        assert_ne!(small, large);
        let plain = tags_of(&json!({"data": [{"id": "m"}]}), "7").expect("a model");
        assert_eq!((&*plain.model, &*plain.weights), ("m", "7"));
        assert_eq!(tags_of(&json!({"data": []}), "1"), None);
    }
}
