//! Events of a training run, as the journal and `GET /api/v1/events` have them.

use crate::error::Error;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::io::{BufRead, Read};

/// Longest line of the events, in bytes.
const LINE_MAX: u64 = 64 << 20;
/// Most events of a run.
const EVENTS_MAX: usize = 50_000_000;

/// An event that the journal has, and that says something of a training run.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub(crate) seq: u64,
    pub(crate) event: Event,
}

impl Recorded {
    /// Its number in the journal.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

/// A member of a group.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Member {
    pub(crate) job: String,
    pub(crate) group: String,
    pub(crate) program: String,
}

/// What a job declared, as far as it is checked. Missing fields have the defaults of
/// `docs/training.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) group_size: u64,
    pub(crate) batch_groups: u64,
    pub(crate) lag_max: u64,
    pub(crate) rewarded: bool,
    pub(crate) capture: Capture,
}

/// What is captured of steps.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Capture {
    #[default]
    None,
    Tokens,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            group_size: 8,
            batch_groups: 16,
            lag_max: 1,
            rewarded: true,
            capture: Capture::None,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    JobDeclared {
        job: String,
        settings: Settings,
    },
    GroupSubmitted {
        job: String,
        group: String,
        size: Option<u64>,
    },
    MemberArrived {
        member: Member,
    },
    MemberEnded {
        member: Member,
        end: String,
        #[serde(default, deserialize_with = "maybe_finite")]
        reward: Option<f64>,
        sample: Option<String>,
        version: Option<u64>,
    },
    StepCaptured {
        member: Member,
    },
    CaptureFailed {
        member: Member,
    },
    RewardGiven {
        member: Member,
        #[serde(deserialize_with = "finite")]
        reward: f64,
    },
    RewardFailed {
        member: Member,
    },
    MemberDeleted {
        member: Member,
    },
    MemberDropped {
        member: Member,
        end: String,
    },
    BatchRequested {
        job: String,
        batch: u64,
    },
    BatchTrained {
        job: String,
        batch: u64,
    },
    VersionTold {
        job: String,
        lineage: u64,
        version: u64,
    },
    VersionServed {
        job: String,
        lineage: u64,
        version: u64,
    },
    Checkpointed {
        job: String,
        batch: u64,
    },
    RolledBack {
        job: String,
        lineage: u64,
        batch: u64,
    },
    JobRemoved {
        job: String,
    },
    /// A program ended between two steps: a member that was not reported to have ended is
    /// completed with this. It names no job.
    ProgramReleased {
        program: String,
        #[serde(default)]
        aborted: bool,
    },
    /// The reward of a program, which is that of the member that it is. It names no job.
    ProgramRewarded {
        program: String,
        reward_millionths: i64,
    },
    /// Anything else.
    #[serde(other)]
    Other,
}

impl Event {
    /// The job that it names.
    pub(crate) fn job(&self) -> Option<&str> {
        match self {
            Self::JobDeclared { job, .. }
            | Self::GroupSubmitted { job, .. }
            | Self::BatchRequested { job, .. }
            | Self::BatchTrained { job, .. }
            | Self::VersionTold { job, .. }
            | Self::VersionServed { job, .. }
            | Self::Checkpointed { job, .. }
            | Self::RolledBack { job, .. }
            | Self::JobRemoved { job } => Some(job),
            Self::MemberArrived { member }
            | Self::MemberEnded { member, .. }
            | Self::StepCaptured { member }
            | Self::CaptureFailed { member }
            | Self::RewardGiven { member, .. }
            | Self::RewardFailed { member }
            | Self::MemberDeleted { member }
            | Self::MemberDropped { member, .. } => Some(&member.job),
            Self::ProgramReleased { .. } | Self::ProgramRewarded { .. } | Self::Other => None,
        }
    }
}

/// A reward is text in the journal, which keeps every bit.
fn finite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let value = text.parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| D::Error::custom("a reward is a finite number, as text"))
}

fn maybe_finite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    finite(deserializer).map(Some)
}

/// Reads events in the order of the journal. A line has an event with its `seq`, a list of them, or
/// a page as `GET /api/v1/events` answers it; further fields and other events are ignored.
///
/// # Errors
/// [`Error`] if a line is too long or no JSON, an event of a run lacks a field, or the order is not
/// that of the journal.
pub fn read_events(mut reader: impl BufRead) -> Result<Vec<Recorded>, Error> {
    let mut events = Vec::new();
    let mut last = None;
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let mut bounded = reader.by_ref().take(LINE_MAX + 1);
        let read = bounded.read_until(b'\n', &mut text);
        let read = read.map_err(|cause| Error::Read {
            path: "events".into(),
            cause,
        })?;
        if read == 0 {
            break;
        }
        if read as u64 > LINE_MAX {
            let limit = LINE_MAX;
            return Err(Error::Line { line, limit });
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let place = || format!("line {line} of the events");
        let value = serde_json::from_slice(&text).map_err(|cause| Error::Json {
            place: place(),
            cause,
        })?;
        for mut row in rows(value) {
            let seq = row.get("seq").and_then(Value::as_u64);
            let seq = seq.ok_or(Error::NoSeq { line })?;
            if let Some(last) = last.replace(seq).filter(|last| *last >= seq) {
                return Err(Error::Order { seq, last });
            }
            let event = row.get_mut("event").map(Value::take);
            let event = event_of(event.unwrap_or_default(), seq)?;
            events.extend(event.map(|event| Recorded { seq, event }));
        }
        if events.len() > EVENTS_MAX {
            let (what, limit) = ("events", EVENTS_MAX);
            return Err(Error::TooMany { what, limit });
        }
    }
    Ok(events)
}

fn rows(value: Value) -> Vec<Value> {
    match value {
        Value::Array(rows) => rows,
        Value::Object(mut page) => match page.get_mut("events").map(Value::take) {
            Some(Value::Array(rows)) => rows,
            _ => vec![Value::Object(page)],
        },
        other => vec![other],
    }
}

/// `None` for what is no event of a training run.
fn event_of(value: Value, seq: u64) -> Result<Option<Event>, Error> {
    if !value.get("event").is_some_and(Value::is_string) {
        return Ok(None);
    }
    let event = Event::deserialize(value).map_err(|cause| Error::Json {
        place: format!("event {seq}"),
        cause,
    })?;
    Ok(Some(event).filter(|event| !matches!(event, Event::Other)))
}
