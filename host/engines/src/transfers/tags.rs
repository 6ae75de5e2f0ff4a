//! The model and weights of a worker: copies of other models or weights can't be used with it.

use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::time::Duration;
use treadle_http::Upstream;
use treadle_transfer::Tags;

/// Timeout for a list of models.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Largest list of models.
const MODELS_BYTES_MAX: usize = 4 << 20;

/// Queries the tags of workers, each time anew, because a worker may have restarted with another
/// model.
pub(super) struct WorkerTags {
    upstream: Upstream,
}

impl WorkerTags {
    pub(super) fn new(upstream: Upstream) -> Self {
        Self { upstream }
    }

    /// The tags of a worker.
    pub(super) async fn of(&self, url: &str) -> Result<Tags, String> {
        let asked = tokio::time::timeout(TIMEOUT, self.ask(url)).await;
        asked.unwrap_or_else(|_| {
            let patience_s = TIMEOUT.as_secs();
            Err(format!(
                "{url} did not return its models within {patience_s} s"
            ))
        })
    }

    async fn ask(&self, url: &str) -> Result<Tags, String> {
        let base = url.trim_end_matches('/');
        let response = self.upstream.get(base, "/v1/models").await;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("{url} returned {status} for its list of models"));
        }
        let body = Limited::new(response.into_body(), MODELS_BYTES_MAX);
        let body = body.collect().await.map_err(|error| error.to_string())?;
        let page: Value =
            serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
        tags_of(&page).ok_or_else(|| format!("{url} lists no model"))
    }
}

/// The tags from a list of models. llama.cpp's executor queries further properties itself.
fn tags_of(page: &Value) -> Option<Tags> {
    Some(Tags {
        model: page["data"][0]["id"].as_str()?.into(),
        shape: None,
        block_tokens: None,
        dtype: None,
    })
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::routing::get;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_first_model_of_a_list_counts() {
        let plain = tags_of(&json!({"data": [{"id": "m"}]})).expect("a model");
        assert_eq!(&*plain.model, "m");
        assert_eq!(tags_of(&json!({"data": []})), None);
    }

    #[tokio::test]
    async fn a_worker_is_queried_each_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU32::new(0));
        let models = get(move || {
            let nth = asked.fetch_add(1, Ordering::SeqCst);
            async move { Json(json!({"data": [{"id": format!("model {nth}")}]})) }
        });
        let router = axum::Router::new().route("/v1/models", models);
        let served = tokio::spawn(async move { axum::serve(listener, router).await });
        let tags = WorkerTags::new(Upstream::new(TIMEOUT));
        for nth in 0..3 {
            let seen = tags.of(&url).await.unwrap();
            assert_eq!(*seen.model, format!("model {nth}"));
        }
        served.abort();
    }
}
