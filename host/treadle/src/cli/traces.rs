//! Exports traces of steps to an OpenTelemetry collector, as configured in `[traces]`.

use super::error::CliError;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;
use treadle_config::Config;
use treadle_http::Upstream;
use treadle_trust::{Connector, Targets as Addresses};

/// Timeout of connecting to the collector, and of its response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of exporting the last spans when the daemon stops.
const LAST_SPANS_MAX: Duration = Duration::from_secs(2);
/// Maximum size of a collector's response, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Exports the spans of steps, if configured.
pub(super) struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Starts the exporter; nothing is sent until there are spans.
    pub(super) fn start(config: &Config) -> Result<Self, CliError> {
        let traces = &config.traces;
        if traces.url.is_empty() {
            return Ok(Self(None));
        }
        let connector = Connector::new(Addresses::all(), config.tls.trust(), ANSWER_TIMEOUT);
        let client = Client {
            upstream: Upstream::over(connector),
            runtime: Handle::current(),
            fails: Arc::default(),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", traces.url.trim_end_matches('/')))
            .build()
            .map_err(|error| CliError::Failed(format!("trace export can't be started: {error}")))?;
        let sampler = Sampler::TraceIdRatioBased(traces.share);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_resource(Resource::builder().with_service_name("treadle").build())
            .build();
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self(Some(provider)))
    }

    /// The layer that receives the spans.
    pub(super) fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.0.as_ref()?.tracer("treadle");
        let of_steps = Targets::new().with_target(treadle_gateway::TRACE_TARGET, LevelFilter::INFO);
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        let layer = layer
            .with_location(false)
            .with_threads(false)
            .with_target(false);
        Some(layer.with_tracked_inactivity(false).with_filter(of_steps))
    }

    /// Exports the remaining spans.
    pub(super) async fn stop(self) {
        let Some(provider) = self.0 else {
            return;
        };
        // The shutdown blocks while it waits for the collector.
        let stopping = move || provider.shutdown_with_timeout(LAST_SPANS_MAX);
        match tokio::task::spawn_blocking(stopping).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last traces were not sent"),
            Err(error) => tracing::warn!(%error, "the last traces were not sent"),
        }
    }
}

/// HTTP client of the exporter. The exporter's thread has no runtime, so requests run on the
/// daemon's.
#[derive(Clone)]
struct Client {
    upstream: Upstream,
    runtime: Handle,
    /// Whether the last export failed; only changes are logged.
    fails: Arc<AtomicBool>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.clone();
        let sent = self.runtime.spawn(async move {
            tokio::time::timeout(ANSWER_TIMEOUT, client.exchange(request))
                .await
                .unwrap_or_else(|_| Err("the collector did not answer in time".into()))
        });
        let answer = sent.await?;
        self.note(&answer);
        answer
    }
}

impl Client {
    fn note(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let why = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it returned {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        match (self.fails.swap(why.is_some(), Ordering::Relaxed), why) {
            (false, Some(why)) => tracing::warn!(why, "the collector does not accept traces"),
            (true, None) => tracing::info!("the collector accepts traces again"),
            _ => {}
        }
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let (address, headers) = (parts.uri.to_string(), &parts.headers);
        let answer = self
            .upstream
            .send(parts.method, &address, "", headers, body);
        let (parts, body) = answer.await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}
