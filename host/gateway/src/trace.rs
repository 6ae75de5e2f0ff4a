//! Traces of steps for OpenTelemetry: a span from the request to its end, and below it one for each
//! wait in the queue and each time at an engine. Names are those of its conventions for generative
//! AI. Spans are only created if a subscriber accepts [`TRACE_TARGET`].

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::global::get_text_map_propagator;
use opentelemetry::propagation::{Extractor, Injector};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use treadle_core::programs::StepTokens;
use treadle_model::StepId;
use treadle_scheduler::Dispatch;
use treadle_wire::Endpoint;

/// The target of all spans here.
pub const TRACE_TARGET: &str = "treadle::step";

/// The trace of a step, which ends with the last copy of this.
#[derive(Clone)]
pub(crate) struct StepTrace(Option<Arc<Spans>>);

struct Spans {
    step: Span,
    /// The current phase of the step: waiting, or at an engine.
    phase: Mutex<Span>,
}

impl StepTrace {
    /// Begins the trace of a step, as part of the client's trace if there is one.
    pub(crate) fn begin(
        endpoint: Endpoint,
        model: &str,
        program: &str,
        job: &str,
        step: StepId,
        headers: &HeaderMap,
    ) -> Self {
        let (operation, number) = (operation_of(endpoint), step.0);
        let step = tracing::info_span!(
            target: TRACE_TARGET, parent: None, "step",
            otel.kind = "server",
            otel.name = format!("{operation} {model}").trim_end(),
            otel.status_code = Empty,
            error.type = Empty,
            gen_ai.operation.name = operation,
            gen_ai.request.model = model,
            gen_ai.conversation.id = program,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            treadle.job = job,
            treadle.step = number,
        );
        if step.is_disabled() {
            return Self(None);
        }
        let parent = get_text_map_propagator(|known| known.extract(&In(headers)));
        // Only fails if no subscriber accepts spans.
        let _ = step.set_parent(parent);
        let phase = Mutex::new(queue_of(&step));
        Self(Some(Arc::new(Spans { step, phase })))
    }

    /// Begins a wait for an engine.
    pub(crate) fn waits(&self) {
        self.turn(queue_of);
    }

    /// Begins an attempt at an engine; returns the headers to send.
    pub(crate) fn goes<'a>(&self, to: &Dispatch, headers: &'a HeaderMap) -> Cow<'a, HeaderMap> {
        let engine = |step: &Span| {
            tracing::info_span!(
                target: TRACE_TARGET, parent: step, "engine",
                otel.kind = "client",
                otel.status_code = Empty,
                otel.status_description = Empty,
                error.type = Empty,
                url.full = to.url.as_ref() as &str,
                treadle.worker = %to.worker,
            )
        };
        let Some(span) = self.turn(engine) else {
            return Cow::Borrowed(headers);
        };
        let mut headers = headers.clone();
        get_text_map_propagator(|known| {
            known.inject_context(&span.context(), &mut Out(&mut headers));
        });
        Cow::Owned(headers)
    }

    /// Records the first token.
    pub(crate) fn first_token(&self) {
        if let Some(spans) = &self.0 {
            let phase = spans.phase.lock().unwrap_or_else(PoisonError::into_inner);
            tracing::info!(target: TRACE_TARGET, parent: &*phase, "first token");
        }
    }

    /// Records a complete response.
    pub(crate) fn finished(&self, tokens: StepTokens) {
        if let Some(spans) = &self.0 {
            let step = &spans.step;
            step.record("gen_ai.usage.input_tokens", tokens.prompt);
            step.record("gen_ai.usage.output_tokens", tokens.output);
            step.record("gen_ai.usage.cache_read.input_tokens", tokens.cached);
            step.record("otel.status_code", "ok");
        }
    }

    /// Records a failure of an engine.
    pub(crate) fn failed(&self, cause: &str, for_good: bool) {
        if let Some(spans) = &self.0 {
            let phase = spans.phase.lock().unwrap_or_else(PoisonError::into_inner);
            phase.record("otel.status_code", "error");
            phase.record("otel.status_description", cause);
            phase.record("error.type", "engine_failed");
            if for_good {
                spans.step.record("otel.status_code", "error");
            }
        }
    }

    /// Records that the scheduler refused or ended it.
    pub(crate) fn refused(&self) {
        if let Some(spans) = &self.0 {
            spans.step.record("otel.status_code", "error");
            spans.step.record("error.type", "refused");
        }
    }

    fn turn(&self, to: impl FnOnce(&Span) -> Span) -> Option<Span> {
        let spans = self.0.as_ref()?;
        let mut phase = spans.phase.lock().unwrap_or_else(PoisonError::into_inner);
        // The previous phase must end before the next begins.
        *phase = Span::none();
        let next = to(&spans.step);
        phase.clone_from(&next);
        Some(next)
    }
}

fn queue_of(step: &Span) -> Span {
    tracing::info_span!(target: TRACE_TARGET, parent: step, "queue", otel.kind = "internal")
}

const fn operation_of(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::ChatCompletions | Endpoint::Messages | Endpoint::Responses => "chat",
        Endpoint::Completions | Endpoint::VllmGenerate | Endpoint::SglangGenerate => {
            "text_completion"
        }
    }
}

struct In<'a>(&'a HeaderMap);

impl Extractor for In<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Out<'a>(&'a mut HeaderMap);

impl Injector for Out<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (key.parse::<HeaderName>(), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
