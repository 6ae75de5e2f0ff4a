//! Predictions by a service over HTTP: programs are sent in batches, one at a time, and the bound
//! policies answer what the service does not answer in time. `docs/prediction-service.md` has the
//! formats.

use super::samples::{Sample, SampleColumns};
use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use treadle_config::{ConfigError, PredictionConfig};
use treadle_policy::columns::{ENDED_COLUMN, EXTRA_COLUMNS};
use treadle_policy::evaluator::Forecast;
use treadle_scheduler::{Excerpt, Excerpts, Expected, Observation};
use treadle_trust::{Connector, Targets, Trust};

/// Why the service's answer can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    /// The request failed.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// It exceeded the deadline.
    #[error("no answer within {0} ms (`prediction.deadline_ms`)")]
    Late(u64),
    /// It answered with an error status.
    #[error("answered with status {0}")]
    Status(u16),
    /// Its answer is invalid.
    #[error("invalid answer: {0}")]
    Answer(String),
}

/// The service.
pub struct RemotePredictor {
    client: Client<Connector, Full<Bytes>>,
    url: String,
    deadline_ms: u64,
    answer_bytes_max: usize,
    failures: AtomicU64,
    excerpts: Arc<Excerpts>,
}

/// Columns of a request, all of one length.
#[derive(Serialize)]
struct Columns<'c> {
    job: &'c str,
    program: Vec<u64>,
    group: &'c [u64],
    tokens: &'c [u64],
    output_tokens: &'c [u64],
    steps: &'c [u32],
    tool_ms: &'c [u64],
    extra: Extra<'c>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_tokens: Option<&'c [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_tool_ms: Option<&'c [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'c [bool]>,
    /// Prompts as text, if the job's prompts may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<Vec<Option<&'c str>>>,
    /// Prompts as token ids, if the job's prompts may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<Option<&'c [u64]>>>,
}

/// Extra columns by name.
struct Extra<'c>(&'c SampleColumns);

impl Serialize for Extra<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let columns = EXTRA_COLUMNS.iter().enumerate();
        // For outcomes, it is a column of its own.
        let columns = columns.filter(|(at, _)| *at != ENDED_COLUMN);
        serializer.collect_map(columns.map(|(at, name)| (name, self.0.extra(&[at], usize::MAX))))
    }
}

/// The service's estimates, one entry per row.
#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "the names are those on the wire")]
struct Estimates {
    remaining_tokens: Vec<f64>,
    #[serde(default)]
    remaining_tokens_p90: Vec<f64>,
    #[serde(default)]
    remaining_tool_s: Vec<f64>,
}

impl RemotePredictor {
    /// The configured service, if there is one.
    ///
    /// # Errors
    /// An invalid address.
    pub fn of(
        config: &PredictionConfig,
        trust: Trust,
        excerpts: Arc<Excerpts>,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(uri) = config.service()? else {
            return Ok(None);
        };
        let timeout = Duration::from_millis(config.deadline_ms);
        let connector = Connector::new(Targets::all(), trust, timeout);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Some(Self {
            client,
            url: uri.to_string().trim_end_matches('/').to_owned(),
            deadline_ms: config.deadline_ms,
            answer_bytes_max: config.answer_bytes_max,
            failures: AtomicU64::new(0),
            excerpts,
        }))
    }

    /// The service's forecasts for programs of a job; `None` if it gave no answer, which is logged
    /// and counted.
    pub(super) async fn predict(&self, job: &str, rows: &[Observation]) -> Option<Vec<Expected>> {
        let seen = SampleColumns::of(rows.iter());
        let permitted = self.excerpts.permits(job);
        let excerpt = |row: &Observation| self.excerpts.get(&row.key).unwrap_or_default();
        let excerpts: Vec<Arc<Excerpt>> = rows.iter().filter(|_| permitted).map(excerpt).collect();
        let question = Columns {
            prompt: permitted.then(|| excerpts.iter().map(|e| e.text.as_deref()).collect()),
            prompt_token_ids: permitted
                .then(|| excerpts.iter().map(|e| e.token_ids.as_deref()).collect()),
            ..columns(job, &seen, rows.iter())
        };
        let asked = self.post("predict", &question).await;
        let estimates = asked.and_then(|answer| estimates(&answer, rows.len()));
        match estimates {
            Ok(estimates) => {
                let forecasts = rows
                    .iter()
                    .enumerate()
                    .map(|(row, seen)| Expected::of(seen, forecast(&estimates, row)));
                Some(forecasts.collect())
            }
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    /// Reports actual outcomes to the service.
    pub(super) async fn learn(&self, job: &str, samples: &[Sample]) {
        let seen = SampleColumns::of(samples.iter().map(|sample| &sample.seen));
        let tokens: Vec<u64> = samples.iter().map(|l| l.remaining_tokens).collect();
        let tool_ms: Vec<u64> = samples.iter().map(|l| l.remaining_tool_ms).collect();
        let ended: Vec<bool> = samples.iter().map(|l| l.has_ended).collect();
        let asked = Columns {
            remaining_tokens: Some(&tokens),
            remaining_tool_ms: Some(&tool_ms),
            ended: Some(&ended),
            ..columns(job, &seen, samples.iter().map(|sample| &sample.seen))
        };
        if let Err(error) = self.post("learn", &asked).await {
            self.failed(&error);
        }
    }

    /// Drops the excerpts of ended programs.
    pub(super) fn forget(&self, over: &[Observation]) {
        for end in over {
            self.excerpts.forget(&end.key);
        }
    }

    fn failed(&self, error: &RemoteError) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let url = &self.url;
        tracing::warn!(%url, %error, failures, "the prediction service failed; the bound policies predict");
    }

    async fn post(&self, path: &str, columns: &Columns<'_>) -> Result<Bytes, RemoteError> {
        let late = |_| RemoteError::Late(self.deadline_ms);
        let deadline = Duration::from_millis(self.deadline_ms);
        tokio::time::timeout(deadline, self.exchange(path, columns))
            .await
            .map_err(late)?
    }

    async fn exchange(&self, path: &str, columns: &Columns<'_>) -> Result<Bytes, RemoteError> {
        let unusable = |error: String| RemoteError::Answer(error);
        let uri: Uri = format!("{}/{path}", self.url)
            .parse()
            .map_err(|_| unusable(format!("`{}/{path}` is not an address", self.url)))?;
        let body = serde_json::to_vec(columns).map_err(|error| unusable(error.to_string()))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|error| unusable(error.to_string()))?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| RemoteError::Unreachable(error.to_string()))?;
        if !answer.status().is_success() {
            return Err(RemoteError::Status(answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), self.answer_bytes_max).collect();
        let body = body.await.map_err(|error| unusable(error.to_string()))?;
        Ok(body.to_bytes())
    }
}

fn columns<'c>(
    job: &'c str,
    seen: &'c SampleColumns,
    rows: impl Iterator<Item = &'c Observation>,
) -> Columns<'c> {
    Columns {
        job,
        program: rows.map(|row| row.program.0).collect(),
        group: &seen.group,
        tokens: &seen.tokens,
        output_tokens: &seen.output_tokens,
        steps: &seen.steps,
        tool_ms: &seen.tool_ms,
        extra: Extra(seen),
        remaining_tokens: None,
        remaining_tool_ms: None,
        ended: None,
        prompt: None,
        prompt_token_ids: None,
    }
}

/// Checks the answer: one finite number that is not negative per row.
fn estimates(answer: &[u8], rows: usize) -> Result<Estimates, RemoteError> {
    let unusable = |error: String| RemoteError::Answer(error);
    let estimates: Estimates =
        serde_json::from_slice(answer).map_err(|error| unusable(error.to_string()))?;
    let optional = [
        ("remaining_tokens_p90", &estimates.remaining_tokens_p90),
        ("remaining_tool_s", &estimates.remaining_tool_s),
    ];
    let given = optional
        .into_iter()
        .filter(|(_, column)| !column.is_empty());
    for (name, column) in given.chain([("remaining_tokens", &estimates.remaining_tokens)]) {
        if column.len() != rows {
            let length = column.len();
            return Err(unusable(format!(
                "`{name}` has {length} entries, not {rows}"
            )));
        }
        if !column
            .iter()
            .all(|value| value.is_finite() && *value >= 0.0)
        {
            return Err(unusable(format!("`{name}` has numbers below 0")));
        }
    }
    Ok(estimates)
}

fn forecast(estimates: &Estimates, row: usize) -> Forecast {
    let remaining_tokens = estimates.remaining_tokens[row];
    let p90 = estimates.remaining_tokens_p90.get(row).copied();
    Forecast {
        remaining_tokens,
        remaining_tokens_p90: p90.unwrap_or(remaining_tokens).max(remaining_tokens),
        remaining_tool_s: estimates.remaining_tool_s.get(row).copied().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::reservoir::tests::seen;
    use super::*;
    use axum::routing::post;
    use axum::{Json, Router};
    use serde_json::{Value, json};
    use treadle_scheduler::Moment;

    const ACTING: Moment = Moment::Acting;

    /// A service with this answer function.
    async fn service(answer: fn(Value) -> Value) -> RemotePredictor {
        let asked = move |Json(asked): Json<Value>| async move { Json(answer(asked)) };
        let routes = Router::new()
            .route("/predict", post(asked))
            .route("/learn", post(asked));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let config = PredictionConfig {
            url,
            deadline_ms: 5_000,
            ..PredictionConfig::default()
        };
        let excerpts = Excerpts::of_jobs(&["shared".to_owned()]);
        for job in ["run", "shared"] {
            let text = Some(format!("of {job}"));
            let token_ids = None;
            excerpts.put(job, "p-1", Excerpt { text, token_ids });
        }
        RemotePredictor::of(&config, Trust::default(), Arc::new(excerpts))
            .unwrap()
            .unwrap()
    }

    #[tokio::test]
    async fn a_batch_is_asked_about_and_its_answer_taken() {
        let ten_times = |asked: Value| {
            assert_eq!(asked["job"], "run");
            assert_eq!(asked["extra"]["prompt-tokens"], json!([1.0, 1.0]));
            let outputs = asked["output_tokens"].as_array().unwrap();
            let tokens = outputs.iter().map(|tokens| tokens.as_u64().unwrap() * 10);
            json!({ "remaining_tokens": tokens.collect::<Vec<_>>() })
        };
        let remote = service(ten_times).await;
        let forecasts = remote
            .predict("run", &[seen(1, 1, ACTING), seen(2, 3, ACTING)])
            .await
            .unwrap();
        let tokens: Vec<_> = forecasts
            .iter()
            .map(|told| (told.program.0, told.forecast.remaining_tokens))
            .collect();
        assert_eq!(tokens, [(1, 500.0), (2, 1_500.0)]);
    }

    #[tokio::test]
    async fn prompts_are_given_of_the_jobs_that_share_them_alone() {
        let rows = [seen(1, 1, ACTING), seen(2, 1, ACTING)];
        let with = |asked: Value| {
            assert_eq!(asked["prompt"], json!(["of shared", null]));
            assert_eq!(asked["prompt_token_ids"], json!([null, null]));
            assert_eq!(asked["program"], json!([1, 2]));
            json!({ "remaining_tokens": [1.0, 2.0] })
        };
        assert!(service(with).await.predict("shared", &rows).await.is_some());
        let without = |asked: Value| {
            assert!(asked.get("prompt").is_none() && asked.get("prompt_token_ids").is_none());
            json!({ "remaining_tokens": [1.0, 2.0] })
        };
        assert!(service(without).await.predict("run", &rows).await.is_some());
    }

    #[tokio::test]
    async fn what_was_cut_short_is_told_apart() {
        let told = |asked: Value| {
            assert_eq!(asked["ended"], json!([true, false]));
            assert!(asked["extra"].get("ended").is_none());
            json!({})
        };
        let remote = service(told).await;
        let sample = |program, has_ended| Sample {
            seen: seen(program, 1, ACTING),
            remaining_tokens: 5,
            remaining_tool_ms: 0,
            has_ended,
        };
        remote
            .learn("run", &[sample(1, true), sample(2, false)])
            .await;
        assert_eq!(remote.failures.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn an_answer_of_no_use_is_counted_and_left() {
        for answer in [
            (|_| json!({ "remaining_tokens": [1.0, 2.0] })) as fn(Value) -> Value,
            |_| json!({ "remaining_tokens": [-1.0] }),
            |_| json!({ "tokens": [1.0] }),
        ] {
            let remote = service(answer).await;
            assert!(remote.predict("run", &[seen(1, 1, ACTING)]).await.is_none());
            assert_eq!(remote.failures.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn an_unreachable_service_is_reported() {
        let mut remote = service(|_| json!({})).await;
        remote.url.push_str("/none");
        let sample = Sample {
            seen: seen(1, 1, ACTING),
            has_ended: true,
            remaining_tokens: 5,
            remaining_tool_ms: 0,
        };
        remote.learn("run", &[sample]).await;
        assert_eq!(remote.failures.load(Ordering::Relaxed), 1, "no such route");
    }

    #[test]
    fn an_address_that_is_none_is_refused_by_name() {
        let config = PredictionConfig {
            url: "ftp://predictor".to_owned(),
            ..PredictionConfig::default()
        };
        let error = RemotePredictor::of(&config, Trust::default(), Arc::default())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("prediction.url"), "{error}");
    }
}
