//! The payload of a batch as JSON, for what reads no safetensors.

use crate::steps::{ExcludedStep, excluded_of};
use crate::stored_samples::{Samples, named};
use serde::Serialize;
use treadle_core::training::{Group, Reward};
use treadle_model::tenant::split;
use treadle_samples::{Scored, VersionRange};
use utoipa::ToSchema;

/// Bytes that a stored byte takes as JSON, at most: one of an id is two to three of its text, and
/// there is the mask; of a log-probability it is about three.
pub(crate) const TEXT_BYTES: u64 = 4;

/// The tokens of a batch.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchPayload {
    /// The job.
    job: String,
    /// The number of the batch.
    batch: u64,
    /// The members of its groups, in their order.
    members: Vec<PayloadMember>,
}

/// The tokens of a member.
#[derive(Serialize, ToSchema)]
struct PayloadMember {
    /// Its group.
    group: String,
    /// Its program.
    program: String,
    /// Its reward; null if the job takes none.
    reward: Option<f64>,
    /// Digest of its sample; null if it has none.
    sample: Option<String>,
    /// The kind of its log-probabilities, if its tokens were captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// What it is trained on.
    sequences: Vec<PayloadSequence>,
    /// Its steps that are not trained.
    excluded: Vec<ExcludedStep>,
}

/// Tokens in the order in which an engine held them.
#[derive(Serialize, ToSchema)]
struct PayloadSequence {
    /// Ids of all tokens.
    ids: Vec<i32>,
    /// 1 for each token to train, and 0 for each that is context.
    #[schema(value_type = Vec<i32>)]
    mask: Vec<u8>,
    /// Log-probability of each token to train; read as 32-bit numbers they are those of the engine.
    logprobs: Vec<f32>,
    /// Weights that sampled them: first position, one past the last, the oldest version, the newest.
    #[schema(value_type = Vec<Vec<u64>>)]
    versions: Vec<[u64; 4]>,
}

impl BatchPayload {
    /// Of some groups of a batch.
    ///
    /// # Errors
    /// A sample is not stored, or is damaged.
    pub(crate) fn of(
        job: &str,
        batch: u64,
        groups: &[(Box<str>, Group)],
        samples: &Samples,
    ) -> Result<Self, String> {
        let members = named(groups, samples).map(|named| {
            let named = named?;
            let sequences = named.sample.sequences.into_iter();
            Ok(PayloadMember {
                group: groups[named.group].0.to_string(),
                program: split(named.program).1.to_owned(),
                reward: named.member.reward.map(Reward::get),
                sample: named.member.sample.as_deref().map(str::to_owned),
                kind: named.sample.logprobs,
                sequences: sequences.map(PayloadSequence::of).collect(),
                excluded: excluded_of(named.sample.excluded),
            })
        });
        Ok(Self {
            job: job.to_owned(),
            batch,
            members: members.collect::<Result<_, String>>()?,
        })
    }
}

impl PayloadSequence {
    fn of(scored: Scored) -> Self {
        let Scored {
            sequence,
            logprobs,
            versions,
        } = scored;
        let mut mask = vec![0; sequence.ids.len()];
        for range in &sequence.sampled {
            mask[range.start..range.end].fill(1);
        }
        let row = |range: &VersionRange| {
            let (oldest, newest) = (range.version as u64, range.newest);
            let [start, end] = [range.start as u64, range.end as u64];
            [start, end, oldest, newest.unwrap_or(oldest)]
        };
        Self {
            ids: sequence.ids,
            mask,
            logprobs,
            versions: versions.iter().map(row).collect(),
        }
    }
}
