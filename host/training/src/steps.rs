//! The captured steps of a member, and what they form.

use crate::app::{JobName, TrainingApp, stopped, store_failed};
use crate::captured::{CapturedSteps, Unreadable};
use crate::jobs::end_text;
use crate::payloads::digest_text;
use crate::report::{Located, Membership};
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::{InPath, LastInPath, Query};
use treadle_endpoints::{Endpoint, get};
use treadle_http::refuse;
use treadle_model::ClientName;
use treadle_samples::{Delivery, Excluded, Sequence, Step};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// Tokens of the steps of an answer, prompts included.
const TOKENS_MAX: usize = 16 << 20;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    vec![
        get("/api/v1/jobs/{job}/members/{program}/steps", VIEW, show)
            .summary("The captured steps of a member, token by token, and what they form")
            .answers::<MemberSteps>(200, "The answer.")
            .details("Until the batch that the member is in is released.")
            .fails(&[
                ErrorCode::JobUnknown,
                ErrorCode::MemberUnknown,
                ErrorCode::AnswerTooLarge,
                ErrorCode::TrainingFull,
                ErrorCode::Overloaded,
            ]),
    ]
}

/// Where the member is.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepsQuery {
    /// Number of the batch that it is in; needed unless that is one of the newest four.
    batch: Option<u64>,
}

/// The captured steps of a member.
#[derive(Serialize, ToSchema)]
pub(crate) struct MemberSteps {
    /// The program.
    program: String,
    /// Its group.
    group: String,
    /// How it ended: completed or truncated; null while it runs.
    end: Option<&'static str>,
    /// Its reward; null if it has none yet.
    reward: Option<f64>,
    /// Why the tokens of a step could not be captured; absent if those of none were missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
    /// Digest of its sample; null before it is assembled.
    sample: Option<String>,
    /// The kind of the log-probabilities: raw, temperature, processed, mixed or unknown.
    logprobs: String,
    /// In the order in which they were dispatched.
    steps: Vec<MemberStep>,
    /// What they form.
    sequences: Vec<StepSequence>,
    /// Steps whose tokens are not trained.
    excluded: Vec<ExcludedStep>,
    /// Steps that continue no earlier one, except for the first.
    breaks: Vec<SequenceBreak>,
}

/// A captured step.
#[derive(Serialize, ToSchema)]
struct MemberStep {
    /// Its place.
    number: u64,
    /// Ids of the prompt's tokens.
    prompt: Vec<i32>,
    /// Ids of the sampled tokens, the stop token included.
    output: Vec<i32>,
    /// Log-probability of each sampled token.
    logprobs: Vec<f32>,
    /// Oldest version of the weights that sampled it.
    version: u64,
    /// Versions of ranges of it.
    versions: Vec<StepSpan>,
    /// Images and audio in the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    media: Vec<StepMedium>,
    /// complete or unknown: whether its client got the whole answer.
    delivery: &'static str,
    /// If `history` of the job is as_sampled and it continues an answer: as_sampled, or why it was
    /// sent as its client sent it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    history: String,
}

/// Sampled tokens and the weights that sampled them.
#[derive(Serialize, ToSchema)]
struct StepSpan {
    /// First token of the output.
    start: usize,
    /// One past the last.
    end: usize,
    /// The oldest version that may have sampled a token of it.
    version: u64,
    /// The newest: another one if weights changed meanwhile and the engine did not say where.
    newest: u64,
}

/// An image or a piece of audio in a prompt.
#[derive(Serialize, ToSchema)]
struct StepMedium {
    /// Position of its first token; its place among all of them if the ids do not show it.
    position: usize,
    /// SHA-256 of its content, or of its URL.
    digest: String,
}

/// Tokens in the order in which an engine held them.
#[derive(Serialize, ToSchema)]
struct StepSequence {
    /// Ids of all tokens.
    ids: Vec<i32>,
    /// Ranges to train.
    sampled: Vec<SampledRange>,
}

/// A range of tokens that a step sampled.
#[derive(Serialize, ToSchema)]
struct SampledRange {
    /// Number of the step.
    step: u64,
    /// First position.
    start: usize,
    /// One past the last.
    end: usize,
}

/// A step that is not trained.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExcludedStep {
    /// Its number.
    step: u64,
    /// Why.
    reason: String,
}

/// Steps that are not trained, as they are shown.
pub(crate) fn excluded_of(excluded: Vec<Excluded>) -> Vec<ExcludedStep> {
    let excluded = excluded.into_iter();
    let shown = excluded.map(|Excluded { step, reason }| ExcludedStep { step, reason });
    shown.collect()
}

/// A step that begins a sequence.
#[derive(Serialize, ToSchema)]
struct SequenceBreak {
    /// Its number.
    step: u64,
    /// repeated, rerendered, thinking_dropped, edited, compacted, volatile, other_agent or
    /// other.
    kind: &'static str,
}

pub(crate) async fn show(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(program): LastInPath<ClientName>,
    Query(query): Query<StepsQuery>,
) -> Result<Response, Response> {
    let job = JobName::of(&caller, job);
    let located = match app.locate(&caller, &job, &program, query.batch).await? {
        Membership::Member(located) => *located,
        found => found.member(&job, &program)?,
    };
    let (recorded, mut room) = (&located.member.captured, app.room_for(&caller));
    let inside = &located.at.program;
    let captured = app.captured_steps(&job, inside, recorded, TOKENS_MAX, Some(&mut room));
    let captured = captured.await.map_err(|error| store_failed(&error))?;
    let captured = captured.map_err(|unreadable| {
        let cause = match unreadable {
            Unreadable::Ever(cause) => cause,
            Unreadable::Now(full) => return *full,
        };
        let message = format!(
            "the captured steps of program `{program}` can't be shown: {cause}; read the payload \
             of its batch"
        );
        refuse(ErrorCode::AnswerTooLarge, message)
    })?;
    if captured.steps.is_empty() {
        let why = located.member.incomplete.as_deref();
        let why = why.unwrap_or("they were released, or none has come yet");
        let message = format!("no captured steps of program `{program}` are stored: {why}");
        return Err(refuse(ErrorCode::MemberUnknown, message));
    }
    let showing = tokio::task::spawn_blocking(move || {
        let shown = shown(&program, located, captured);
        // Numbers and strings always have a JSON form.
        let written = serde_json::to_vec(&shown).unwrap_or_default();
        room.answer("application/json", written)
    });
    showing.await.map_err(|_| stopped())
}

fn shown(program: &ClientName, located: Located, captured: CapturedSteps) -> MemberSteps {
    let member = located.member;
    let assembly = captured.assembly();
    let excluded = assembly.excluded.into_iter();
    let breaks = assembly.breaks.into_iter();
    let logprobs = captured.logprobs().to_owned();
    let steps = captured.steps.into_iter().zip(captured.histories);
    MemberSteps {
        program: program.to_string(),
        group: located.at.group.into(),
        end: member.end.map(end_text),
        reward: member.reward.map(treadle_core::training::Reward::get),
        incomplete: member.incomplete.map(String::from),
        sample: member.sample.map(String::from),
        logprobs,
        sequences: assembly
            .sequences
            .into_iter()
            .map(StepSequence::of)
            .collect(),
        excluded: excluded
            .map(|(step, reason)| ExcludedStep {
                step,
                reason: reason.to_string(),
            })
            .collect(),
        breaks: breaks
            .map(|(step, kind)| SequenceBreak {
                step,
                kind: kind.name(),
            })
            .collect(),
        steps: steps
            .map(|(step, history)| MemberStep::of(step, history))
            .collect(),
    }
}

impl MemberStep {
    fn of(step: Step, history: String) -> Self {
        let versions = step.versions.iter().map(|span| StepSpan {
            start: span.start,
            end: span.end,
            version: span.version,
            newest: span.newest,
        });
        let oldest = step.versions.iter().map(|span| span.version).min();
        let media = step.media.iter().map(|medium| StepMedium {
            position: medium.position,
            digest: digest_text(&medium.digest),
        });
        Self {
            number: step.number,
            prompt: step.prompt,
            output: step.output,
            logprobs: step.logprobs,
            version: oldest.unwrap_or_default(),
            versions: versions.collect(),
            media: media.collect(),
            delivery: match step.delivery {
                Delivery::Complete => "complete",
                Delivery::Broken | Delivery::Unknown => "unknown",
            },
            history,
        }
    }
}

impl StepSequence {
    fn of(sequence: Sequence) -> Self {
        let sampled = sequence.sampled.iter().map(|range| SampledRange {
            step: range.step,
            start: range.start,
            end: range.end,
        });
        Self {
            sampled: sampled.collect(),
            ids: sequence.ids,
        }
    }
}
