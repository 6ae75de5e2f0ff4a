//! The payload of a batch, made of the samples of its members.

use crate::app::{JobName, TrainingApp};
use crate::payloads::{Bound, damaged, digest_text, of_sample};
use crate::room::Room;
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::training::{Group, Member as CoreMember, Reward};
use treadle_http::refuse;
use treadle_model::tenant::split;
use treadle_samples::{Member, Sample, digest, encode, load, mixed};
use treadle_wire::ErrorCode;

/// Largest payload that is made at once.
const PAYLOAD: Bound = Bound {
    what: "the payload",
    bytes_max: 4 << 30,
};

/// The payload of some groups of a batch: the same bytes each time.
pub(crate) async fn encoded(
    app: &TrainingApp,
    job: &JobName,
    batch: u64,
    groups: Vec<(Box<str>, Group)>,
    room: &mut Room,
) -> Result<Vec<u8>, Response> {
    let members = groups.iter().flat_map(|(_, group)| &group.members);
    let names = members.filter_map(|(program, member)| {
        let digest = member.sample.as_deref()?;
        Some(of_sample(program, digest))
    });
    let names: Vec<String> = names.collect();
    let samples = app.many_payloads(job, &names, room, PAYLOAD).await?;
    let own = job.own.to_string();
    let encoding = move || encode_batch(&own, batch, &groups, &samples);
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
    samples: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<u8>, String> {
    let mut members = Vec::new();
    let mut named = Vec::new();
    for (index, (_, group)) in groups.iter().enumerate() {
        for (program, member) in &group.members {
            let sample = match member.sample.as_deref() {
                Some(digest) => sample(program, digest, samples)?,
                None => Sample::default(),
            };
            named.push(named_member(split(program).1, member, &sample));
            members.push(Member {
                group: index,
                sequences: sample.sequences,
                reward: member.reward.map(Reward::get),
            });
        }
    }
    let versions = number_versions(&mut members);
    let keys: Vec<&str> = groups.iter().map(|(key, _)| &**key).collect();
    let meta = json!({
        "job": job, "batch": batch, "groups": keys, "members": named, "versions": versions,
    });
    encode(&members, &meta.to_string()).map_err(|error| error.to_string())
}

/// A member in `meta`. What its sample does not have is left out.
fn named_member(program: &str, member: &CoreMember, sample: &Sample) -> Value {
    let mut named = json!({"program": program, "sample": member.sample});
    if let Some(kind) = &sample.logprobs {
        named["logprobs"] = json!(kind);
    }
    let mixed = mixed(&sample.sequences);
    if !mixed.is_empty() {
        named["mixed"] = json!(mixed);
    }
    named
}

/// A stored sample, if it is the one that was recorded.
fn sample(
    program: &str,
    recorded: &str,
    samples: &BTreeMap<String, Vec<u8>>,
) -> Result<Sample, String> {
    let name = of_sample(program, recorded);
    let bytes = samples.get(&name);
    let bytes = bytes.ok_or_else(|| format!("{name} is not in the store"))?;
    let sample = load(bytes).map_err(|error| format!("{name} is damaged: {error}"))?;
    if digest_text(&digest(&sample.sequences)) == recorded {
        Ok(sample)
    } else {
        Err(damaged(&name))
    }
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
