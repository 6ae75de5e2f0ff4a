//! Commands as messages: each is carried out by the handler of its HTTP path, from its fields.

use crate::app::{JobName, TrainingApp};
use crate::batches::{BatchNotReady, BatchQuery, TrainingBatch};
use crate::payloads::Json;
use crate::trainer::CheckpointRequest;
use crate::{batches, groups, jobs, members, open_groups, steps, trainer};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_auth::Caller;
use treadle_endpoints::arguments::{Body, InPath, LastInPath, Query, Verbatim, name, verbatim};
use treadle_http::error_response;
use treadle_model::ClientName;
use treadle_wire::{ErrorBody, ErrorCode};

/// What is escaped in a segment of a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');
/// Where commands are listed.
const REMEDY: &str = "docs/messaging.md lists all commands with their fields";

/// What a command does.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    DeclareJob,
    ShowJob,
    ListJobs,
    SubmitGroups,
    ListGroups,
    BeginMember,
    EndMember,
    RewardMember,
    ShowSteps,
    GetBatch,
    ReportTrained,
    ReportVersion,
    ReportCheckpoint,
    ResumeJob,
}

/// A command to a training run: `command`, what is in the path and the query of its HTTP request,
/// and the fields of its body.
#[derive(Clone, Debug)]
pub struct Command {
    kind: Kind,
    name: String,
    fields: BTreeMap<String, Json>,
}

impl Command {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not a JSON object, or names no command.
    pub fn parse(body: &[u8]) -> Result<Self, ErrorBody> {
        let mut command = Self {
            kind: Kind::ListJobs,
            name: String::new(),
            fields: verbatim(body)?,
        };
        command.name = command.need("command")?;
        let kind = serde_json::from_value(command.name.as_str().into());
        command.kind = kind.map_err(|error| invalid("command", &format!("{error}; {REMEDY}")))?;
        Ok(command)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has to be carried out once, after those before it. Any other one reads, or has the
    /// same result each time.
    pub fn is_change(&self) -> bool {
        !matches!(
            self.kind,
            Kind::ShowJob
                | Kind::ListJobs
                | Kind::ListGroups
                | Kind::BeginMember
                | Kind::ShowSteps
                | Kind::GetBatch
        )
    }

    /// Has it answer at once if it would wait.
    pub fn answer_at_once(&mut self) {
        self.fields.remove("wait_s");
    }

    /// Whether it may wait.
    pub fn waits(&self) -> bool {
        self.fields.contains_key("wait_s")
    }

    /// Removes a field, and returns it unless it is absent or null.
    ///
    /// # Errors
    /// It has the wrong type.
    pub fn take<T: DeserializeOwned>(&mut self, field: &str) -> Result<Option<T>, ErrorBody> {
        let Some(written) = self.fields.remove(field) else {
            return Ok(None);
        };
        let read = serde_json::from_str(written.get());
        read.map_err(|error| invalid(field, &format!("`{field}`: {error}; {REMEDY}")))
    }

    fn need<T: DeserializeOwned>(&mut self, field: &str) -> Result<T, ErrorBody> {
        self.take(field)?.ok_or_else(|| missing(field, REMEDY))
    }

    /// The name in a field.
    fn named(&mut self, field: &str) -> Result<ClientName, Response> {
        let text: String = self.need(field).map_err(|error| error_response(&error))?;
        name(field, text)
    }

    fn program(&mut self) -> Result<LastInPath<ClientName>, Response> {
        self.named("program").map(LastInPath)
    }

    fn batch(&mut self) -> Result<u64, Response> {
        self.need("batch").map_err(|error| error_response(&error))
    }

    /// The fields that are left, as the body of a request.
    fn body<T: DeserializeOwned>(&self) -> Result<T, Response> {
        let body = serde_json::to_vec(&self.fields).unwrap_or_default();
        verbatim(&body).map_err(|error| error_response(&error))
    }

    /// The body of `resume_job`, which names its lineage.
    fn resumption(&self) -> Result<CheckpointRequest, Response> {
        let request: CheckpointRequest = self.body()?;
        if request.lineage.is_some() {
            return Ok(request);
        }
        let remedy = "name the one that ends: a message may come again, and is recognised by it";
        Err(error_response(&missing("lineage", remedy)))
    }

    /// Carries it out; the response is that of its HTTP path. That of a batch has where its tokens
    /// are, too.
    pub async fn carry_out(self, app: &TrainingApp, caller: Caller) -> Response {
        self.carried_out(State(app.clone()), caller)
            .await
            .unwrap_or_else(|refused| refused)
    }

    async fn carried_out(
        mut self,
        app: State<TrainingApp>,
        caller: Caller,
    ) -> Result<Response, Response> {
        if self.kind == Kind::ListJobs {
            let Nothing {} = self.body()?;
            return Ok(jobs::list(app, caller).await.into_response());
        }
        let job = InPath(self.named("job")?);
        Ok(match self.kind {
            Kind::ListJobs | Kind::ShowJob => {
                let Nothing {} = self.body()?;
                jobs::show(app, caller, job).await.into_response()
            }
            Kind::DeclareJob => {
                let settings = Body(self.body()?);
                let declared = jobs::declare(app, caller, job, settings).await;
                declared.into_response()
            }
            Kind::SubmitGroups => {
                let groups = Verbatim(self.body()?);
                let submitted = groups::submit(app, caller, job, groups).await;
                submitted.into_response()
            }
            Kind::ListGroups => {
                let page = Query(self.body()?);
                open_groups::list(app, caller, job, page)
                    .await
                    .into_response()
            }
            Kind::BeginMember => members::begin(app, caller, job, Body(self.body()?)).await?,
            Kind::EndMember => {
                let (program, end) = (self.program()?, Verbatim(self.body()?));
                let ended = members::end(app, caller, job, program, end).await;
                ended.into_response()
            }
            Kind::RewardMember => {
                let (program, reward) = (self.program()?, Body(self.body()?));
                let rewarded = members::reward(app, caller, job, program, reward).await;
                rewarded.into_response()
            }
            Kind::ShowSteps => {
                let (program, query) = (self.program()?, Query(self.body()?));
                let shown = steps::show(app, caller, job, program, query).await;
                shown.into_response()
            }
            Kind::GetBatch => {
                let (batch, query) = (self.batch()?, self.body()?);
                let job = JobName::of(&caller, job.0);
                batch_message(&app, &caller, &job, batch, query).await?
            }
            Kind::ReportTrained => {
                let (batch, body) = (LastInPath(self.batch()?), Body(self.body()?));
                let trained = trainer::trained(app, caller, job, batch, body).await;
                trained.into_response()
            }
            Kind::ReportVersion => {
                let told = trainer::version(app, caller, job, Body(self.body()?)).await;
                told.into_response()
            }
            Kind::ReportCheckpoint => {
                let saved = trainer::checkpoint(app, caller, job, Body(self.body()?)).await;
                saved.into_response()
            }
            Kind::ResumeJob => {
                let resumed = trainer::resume(app, caller, job, Body(self.resumption()?)).await;
                resumed.into_response()
            }
        })
    }
}

/// No fields are left.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn invalid(field: &str, message: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidField, message).with_param(field)
}

fn missing(field: &str, remedy: &str) -> ErrorBody {
    let message = format!("`{field}` is missing; {remedy}");
    ErrorBody::new(ErrorCode::MissingField, message).with_param(field)
}

/// A batch, and where its tokens are.
#[derive(Serialize)]
struct BatchMessage {
    #[serde(flatten)]
    batch: TrainingBatch,
    payload: PayloadMessage,
}

/// Where the tokens of a batch are.
#[derive(Serialize)]
struct PayloadMessage {
    /// Their HTTP path.
    path: String,
    /// SHA-256 of the file.
    digest: String,
    /// Its length.
    size_bytes: usize,
}

async fn batch_message(
    app: &TrainingApp,
    caller: &Caller,
    job: &JobName,
    number: u64,
    query: BatchQuery,
) -> Result<Response, Response> {
    let mut room = app.room_for(caller);
    let batch = match batches::view(app, job, number, query, &mut room).await? {
        Ok(batch) => batch,
        Err(not_ready) => return Ok(axum::Json::<BatchNotReady>(not_ready).into_response()),
    };
    let payload = batches::payload_of(app, job, number, query, &mut room).await?;
    let size_bytes = payload.size_bytes;
    let slice = match (query.rank, query.of) {
        (Some(rank), Some(of)) => format!("?rank={rank}&of={of}"),
        _ => String::new(),
    };
    let own = utf8_percent_encode(&job.own, ESCAPED);
    let payload = PayloadMessage {
        path: format!("/api/v1/jobs/{own}/batches/{number}/payload{slice}"),
        digest: payload.digest().await?,
        size_bytes,
    };
    Ok(axum::Json(BatchMessage { batch, payload }).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (ErrorCode, String) {
        let error = Command::parse(body.as_bytes()).expect_err(body);
        (error.code, error.message)
    }

    #[test]
    fn a_command_keeps_the_fields_of_its_body_as_they_were_written() {
        let body = br#"{"command": "submit_groups", "tenant": "acme", "job": "math",
            "groups": [{"group": "a", "content": {"b": 1.0, "a":  2}}]}"#;
        let mut command = Command::parse(body).expect("a command");
        assert_eq!(
            (command.name(), command.is_change()),
            ("submit_groups", true)
        );
        let tenant: Option<String> = command.take("tenant").expect("text");
        assert_eq!(tenant.as_deref(), Some("acme"));
        assert_eq!(command.named("job").expect("a name").as_str(), "math");
        let left: BTreeMap<String, Json> = command.body().expect("an object");
        assert_eq!(
            left.len(),
            1,
            "path, tenant and command are no fields of the body"
        );
        assert!(left["groups"].get().contains(r#"{"b": 1.0, "a":  2}"#));
    }

    #[test]
    fn only_what_reads_or_repeats_itself_is_no_change() {
        let of = |name: &str| {
            let body = format!(r#"{{"command": "{name}", "wait_s": 9}}"#);
            Command::parse(body.as_bytes()).expect("a command")
        };
        for name in ["begin_member", "get_batch", "show_job", "list_groups"] {
            assert!(!of(name).is_change(), "{name}");
        }
        for name in ["declare_job", "end_member", "reward_member", "resume_job"] {
            assert!(of(name).is_change(), "{name}");
        }
        let mut begin = of("begin_member");
        assert!(begin.waits());
        begin.answer_at_once();
        assert!(!begin.waits());
    }

    #[test]
    fn what_is_no_command_is_refused_with_a_remedy() {
        for (body, code, words) in [
            ("[]", ErrorCode::BodyNotObject, "must be a JSON object"),
            ("{}", ErrorCode::MissingField, "`command` is missing; docs/"),
            (
                r#"{"command": 1}"#,
                ErrorCode::InvalidField,
                "`command`: invalid type",
            ),
            (
                r#"{"command": "dance"}"#,
                ErrorCode::InvalidField,
                "unknown variant `dance`",
            ),
        ] {
            let (found, message) = refused(body);
            assert_eq!(found, code, "{body}");
            assert!(message.contains(words), "{body}: {message}");
        }
    }
}
