//! The error envelope of the API and its stable codes.
//!
//! The envelope is OpenAI's, `{"error":{"message","type","code","param"}}`, so that the
//! clients of the engines understand it.

use serde::Serialize;
use treadle_model::NameError;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $kind:literal;)*) => {
        /// Why a request was refused or failed. The text of a code never changes.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The text of the code.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }

            /// The HTTP status of the code.
            pub const fn status(self) -> u16 {
                match self { $(ErrorCode::$name => $status,)* }
            }

            /// The envelope's `type`, a class of errors that OpenAI's clients know.
            pub const fn kind(self) -> &'static str {
                match self { $(ErrorCode::$name => $kind,)* }
            }
        }
    };
}

error_codes! {
    /// The body is not JSON, or not UTF-8.
    InvalidJson = "invalid_json", 400, "invalid_request_error";
    /// The body is JSON, but a list or a scalar.
    BodyNotObject = "body_not_object", 400, "invalid_request_error";
    /// A field has the wrong type, exceeds its limit, or may not be sent to engines.
    InvalidField = "invalid_field", 400, "invalid_request_error";
    /// A field that the endpoint needs is absent.
    MissingField = "missing_field", 400, "invalid_request_error";
    /// The body is longer than the configured limit.
    BodyTooLarge = "body_too_large", 413, "invalid_request_error";
    /// The body has a content coding that is not decoded.
    UnsupportedEncoding = "unsupported_encoding", 415, "invalid_request_error";
    /// No such path.
    UnknownPath = "unknown_path", 404, "not_found_error";
    /// The path exists, but not for this method.
    MethodNotAllowed = "method_not_allowed", 405, "invalid_request_error";
    /// The response that the request continues is not stored.
    PreviousResponseNotFound = "previous_response_not_found", 400, "invalid_request_error";
    /// No engine serves the model.
    ModelNotFound = "model_not_found", 404, "invalid_request_error";
    /// The prompt exceeds every worker's context window.
    ContextTooLong = "context_too_long", 400, "invalid_request_error";
    /// No worker is healthy.
    NoHealthyWorker = "no_healthy_worker", 503, "overloaded_error";
    /// Every responding worker is cordoned or draining.
    WorkersCordoned = "workers_cordoned", 503, "overloaded_error";
    /// The request waited longer than the configured bound.
    QueueWaitExceeded = "queue_wait_exceeded", 503, "overloaded_error";
    /// The queue is full.
    QueueFull = "queue_full", 429, "overloaded_error";
    /// The limit on live programs is reached.
    ProgramsFull = "programs_full", 429, "overloaded_error";
    /// The program was released while or before this request ran.
    ProgramReleased = "program_released", 409, "invalid_request_error";
    /// The connection to the engine failed, or the engine ended its response early.
    EngineUnreachable = "engine_unreachable", 502, "engine_error";
    /// The engine's stream ended in the middle.
    EngineStreamBroken = "engine_stream_broken", 502, "engine_error";
    /// The engine's response is too large for the daemon to assemble; it is not retried.
    AnswerTooLarge = "answer_too_large", 502, "engine_error";
    /// The engine did not answer in time.
    EngineTimeout = "engine_timeout", 504, "engine_error";
    /// No such program.
    ProgramUnknown = "program_unknown", 404, "not_found_error";
    /// No such worker.
    WorkerUnknown = "worker_unknown", 404, "not_found_error";
    /// No such node.
    NodeUnknown = "node_unknown", 404, "not_found_error";
    /// The node is not connected.
    NodeAway = "node_away", 409, "invalid_request_error";
    /// No such action.
    ActionUnknown = "action_unknown", 404, "not_found_error";
    /// This daemon runs no actions.
    ActionsDisabled = "actions_disabled", 409, "invalid_request_error";
    /// No such sandbox.
    SandboxUnknown = "sandbox_unknown", 404, "not_found_error";
    /// The sandbox could not be created, or no longer exists.
    SandboxFailed = "sandbox_failed", 502, "engine_error";
    /// The sandbox is in the wrong state for this operation.
    SandboxState = "sandbox_state", 409, "invalid_request_error";
    /// No such image.
    ImageUnknown = "image_unknown", 404, "not_found_error";
    /// This daemon has no sandboxes.
    SandboxesDisabled = "sandboxes_disabled", 409, "invalid_request_error";
    /// No such job is declared.
    JobUnknown = "job_unknown", 404, "not_found_error";
    /// The training job has no such group that is in no batch.
    GroupUnknown = "group_unknown", 404, "not_found_error";
    /// The program is not a member of a group.
    MemberUnknown = "member_unknown", 404, "not_found_error";
    /// The program is a member of another group, or ended otherwise.
    MemberConflict = "member_conflict", 409, "invalid_request_error";
    /// The member was cut or replaced.
    MemberDropped = "member_dropped", 409, "invalid_request_error";
    /// A token of the sample can't be trained.
    SampleInvalid = "sample_invalid", 400, "invalid_request_error";
    /// The batches before this one were not asked for yet.
    BatchAhead = "batch_ahead", 409, "invalid_request_error";
    /// The batch was released by a checkpoint.
    BatchReleased = "batch_released", 410, "invalid_request_error";
    /// The version falls back, is ahead of the batches, or is of an older lineage.
    VersionConflict = "version_conflict", 409, "invalid_request_error";
    /// Another version is being loaded or serves, or an engine has the weights of another job.
    WeightsConflict = "weights_conflict", 409, "invalid_request_error";
    /// treadle loads no weights for the job.
    WeightsUnknown = "weights_unknown", 404, "not_found_error";
    /// A limit on jobs, groups, waiting programs or kept batches is reached.
    TrainingFull = "training_full", 429, "overloaded_error";
    /// The idempotency key belongs to another action.
    IdempotencyKeyTaken = "idempotency_key_taken", 409, "invalid_request_error";
    /// The uploaded plugin is not an acceptable component.
    PluginInvalid = "plugin_invalid", 400, "invalid_request_error";
    /// No such plugin.
    PluginUnknown = "plugin_unknown", 404, "not_found_error";
    /// The binding does not allow this change.
    BindingConflict = "binding_conflict", 409, "invalid_request_error";
    /// The request carries no token, and the path needs one.
    TokenMissing = "token_missing", 401, "invalid_request_error";
    /// The token is malformed, unknown or revoked.
    TokenInvalid = "token_invalid", 401, "invalid_request_error";
    /// The token has expired.
    TokenExpired = "token_expired", 401, "invalid_request_error";
    /// The token may not do this.
    Forbidden = "forbidden", 403, "invalid_request_error";
    /// A limit of the tenant is reached or does not allow this.
    TenantLimit = "tenant_limit", 403, "invalid_request_error";
    /// No such tenant.
    TenantUnknown = "tenant_unknown", 404, "not_found_error";
    /// A tenant of this name already exists.
    TenantExists = "tenant_exists", 409, "invalid_request_error";
    /// The window of a what-if run can't be replayed.
    WhatIfWindow = "whatif_window", 400, "invalid_request_error";
    /// No engine of a what-if run's window reports its profile.
    WhatIfProfile = "whatif_profile", 400, "invalid_request_error";
    /// The limit on queued and running what-if runs is reached.
    WhatIfFull = "whatif_full", 429, "overloaded_error";
    /// No such what-if run.
    WhatIfRunUnknown = "whatif_run_unknown", 404, "not_found_error";
    /// The what-if run was cancelled.
    WhatIfCancelled = "whatif_cancelled", 409, "invalid_request_error";
    /// The what-if run took too long.
    WhatIfTimeout = "whatif_timeout", 400, "invalid_request_error";
    /// No such token.
    TokenUnknown = "token_unknown", 404, "not_found_error";
    /// The tenant exceeds its request rate.
    RateLimited = "rate_limited", 429, "rate_limit_error";
    /// The tenant's limit on live programs is reached.
    TenantProgramsFull = "tenant_programs_full", 429, "overloaded_error";
    /// The tenant's limit on steps, request bytes, sandboxes, waiting clients or stored bytes is
    /// reached.
    TenantBusy = "tenant_busy", 429, "overloaded_error";
    /// The limit on open event streams is reached.
    StreamsFull = "streams_full", 429, "overloaded_error";
    /// What comes after the offset of a stream is not stored any more.
    StreamGone = "stream_gone", 410, "invalid_request_error";
    /// The tenant's limit on pending policy questions is reached.
    AskFull = "ask_full", 429, "overloaded_error";
    /// The daemon is at one of its own limits.
    Overloaded = "overloaded", 503, "overloaded_error";
    /// The client did not send its request in time.
    ClientTimeout = "client_timeout", 408, "invalid_request_error";
    /// Treadle does not support this, or not on the sandbox's backend.
    Unserved = "unserved", 501, "internal_error";
    /// A fault in treadle itself.
    Internal = "internal", 500, "internal_error";
}

/// What is wrong with a request's body.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The code of the fault.
    pub code: ErrorCode,
    /// The field at fault, such as `stream` or `messages[2]`.
    pub param: Option<String>,
    /// What is wrong, and the remedy.
    pub message: String,
}

/// The error envelope.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ErrorBody {
    /// The stable code.
    pub code: ErrorCode,
    /// What is wrong, and the remedy.
    pub message: String,
    /// The field at fault.
    pub param: Option<String>,
}

impl ErrorBody {
    /// An envelope without a `param`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ErrorBody {
            code,
            message: message.into(),
            param: None,
        }
    }

    /// Names the field at fault.
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// The envelope as a response body.
    pub fn to_json(&self) -> Vec<u8> {
        let envelope = Envelope {
            error: Inner {
                message: &self.message,
                kind: self.code.kind(),
                code: self.code.as_str(),
                param: self.param.as_deref(),
            },
        };
        // Serialising only strings can't fail.
        serde_json::to_vec(&envelope).unwrap_or_default()
    }

    /// The envelope as one event of a stream whose status is already sent.
    pub fn to_sse_event(&self) -> Vec<u8> {
        let mut event = b"data: ".to_vec();
        event.extend_from_slice(&self.to_json());
        event.extend_from_slice(b"\n\n");
        event
    }
}

impl From<RequestError> for ErrorBody {
    fn from(error: RequestError) -> Self {
        ErrorBody {
            code: error.code,
            message: error.message,
            param: error.param,
        }
    }
}

impl From<NameError> for RequestError {
    fn from(error: NameError) -> Self {
        RequestError {
            code: ErrorCode::InvalidField,
            param: Some(error.field().to_owned()),
            message: error.to_string(),
        }
    }
}

impl From<NameError> for ErrorBody {
    fn from(error: NameError) -> Self {
        RequestError::from(error).into()
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    code: &'a str,
    param: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_distinct_and_statuses_are_errors() {
        let texts: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert!((400..600).contains(&code.status()), "{code:?}");
            assert_eq!(
                code.kind() == "invalid_request_error" || code.kind() == "not_found_error",
                code.status() < 500 && code.status() != 429,
                "{code:?}"
            );
        }
    }

    #[test]
    fn the_envelope_is_openais() {
        let body = ErrorBody::new(ErrorCode::InvalidField, "a \"quoted\"\nline").with_param("n");
        assert_eq!(
            String::from_utf8(body.to_json()).unwrap(),
            r#"{"error":{"message":"a \"quoted\"\nline","type":"invalid_request_error","code":"invalid_field","param":"n"}}"#
        );
        let event = ErrorBody::new(ErrorCode::Internal, "x\n\ny").to_sse_event();
        let text = String::from_utf8(event).unwrap();
        assert!(text.starts_with("data: {\"error\":{") && text.ends_with("}}\n\n"));
        assert_eq!(text.matches('\n').count(), 2);
    }
}
