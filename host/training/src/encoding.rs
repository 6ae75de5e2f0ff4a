//! The payload of a batch, made of the samples of its members.

use crate::app::{JobName, TrainingApp};
use crate::payloads::{Bound, of_sample};
use crate::plain::{BatchPayload, TEXT_BYTES};
use crate::room::Room;
use crate::stored_samples::{Samples, named};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use treadle_core::training::{Group, Member as CoreMember, Reward};
use treadle_http::refuse;
use treadle_model::tenant::split;
use treadle_samples::{Member, Sample, encode, mixed};
use treadle_wire::ErrorCode;

/// Largest payload that is made at once.
const PAYLOAD: Bound = Bound {
    what: "the payload",
    bytes_max: 4 << 30,
};

/// Largest samples of a payload as JSON.
const PLAIN: Bound = Bound {
    what: "the payload as JSON",
    bytes_max: 1 << 30,
};

/// How a payload is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// As one safetensors file.
    #[default]
    Safetensors,
    /// As JSON.
    Json,
}

impl Format {
    /// Its type of content.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Safetensors => "application/octet-stream",
            Self::Json => "application/json",
        }
    }
}

/// The payload of some groups of a batch: the same bytes each time.
pub(crate) async fn encoded(
    app: &TrainingApp,
    job: &JobName,
    batch: u64,
    groups: Vec<(Box<str>, Group)>,
    format: Format,
    room: &mut Room,
) -> Result<Vec<u8>, Response> {
    let members = groups.iter().flat_map(|(_, group)| &group.members);
    let names = members.filter_map(|(program, member)| {
        let digest = member.sample.as_deref()?;
        Some(of_sample(program, digest))
    });
    let names: Vec<String> = names.collect();
    let bound = match format {
        Format::Safetensors => PAYLOAD,
        Format::Json => PLAIN,
    };
    let samples = app.many_payloads(job, &names, room, bound).await?;
    if format == Format::Json {
        let stored: u64 = samples.values().map(|body| body.len() as u64).sum();
        room.grow(stored.saturating_mul(TEXT_BYTES))?;
    }
    let own = job.own.to_string();
    let encoding = move || match format {
        Format::Safetensors => encode_batch(&own, batch, &groups, &samples),
        Format::Json => {
            let payload = BatchPayload::of(&own, batch, &groups, &samples)?;
            serde_json::to_vec(&payload).map_err(|error| error.to_string())
        }
    };
    let encoded = tokio::task::spawn_blocking(encoding).await;
    let encoded = encoded.unwrap_or_else(|error| Err(error.to_string()));
    encoded.map_err(|error| {
        tracing::error!(job = &*job.own, batch, error, "a batch can't be encoded");
        let message = format!("the payload of batch {batch} can't be made: {error}");
        refuse(ErrorCode::Internal, message)
    })
}

fn encode_batch(
    job: &str,
    batch: u64,
    groups: &[(Box<str>, Group)],
    samples: &Samples,
) -> Result<Vec<u8>, String> {
    let mut members = Vec::new();
    let mut metas = Vec::new();
    for named in named(groups, samples) {
        let named = named?;
        metas.push(named_member(
            split(named.program).1,
            named.member,
            &named.sample,
        ));
        members.push(Member {
            group: named.group,
            sequences: named.sample.sequences,
            reward: named.member.reward.map(Reward::get),
        });
    }
    let versions = number_versions(&mut members);
    let keys: Vec<&str> = groups.iter().map(|(key, _)| &**key).collect();
    let meta = json!({
        "job": job, "batch": batch, "groups": keys, "members": metas, "versions": versions,
    });
    encode(&members, &meta.to_string()).map_err(|error| error.to_string())
}

/// A member in `meta`. What its sample does not have is left out.
fn named_member(program: &str, member: &CoreMember, sample: &Sample) -> Value {
    let mut named = json!({"program": program, "sample": member.sample});
    if let Some(kind) = &sample.logprobs {
        named["logprobs"] = json!(kind);
    }
    if !sample.excluded.is_empty() {
        named["excluded"] = json!(sample.excluded);
    }
    let mixed = mixed(&sample.sequences);
    if !mixed.is_empty() {
        named["mixed"] = json!(mixed);
    }
    named
}

/// Replaces versions by their indexes among all versions, ascending, which it returns.
fn number_versions(members: &mut [Member]) -> Vec<usize> {
    let sequences = members.iter().flat_map(|member| &member.sequences);
    let spans = sequences.flat_map(|scored| &scored.versions);
    let versions: BTreeSet<usize> = spans.map(|span| span.version).collect();
    let versions: Vec<usize> = versions.into_iter().collect();
    let sequences = members.iter_mut().flat_map(|member| &mut member.sequences);
    for span in sequences.flat_map(|scored| &mut scored.versions) {
        let index = versions.binary_search(&span.version);
        span.version = index.unwrap_or_default();
    }
    versions
}
