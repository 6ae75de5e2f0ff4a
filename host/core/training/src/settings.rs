//! What a job declares about its training run.

use crate::affinity::Affinity;
use serde::{Deserialize, Serialize};

/// Largest group.
pub const GROUP_SIZE_MAX: u16 = 1_024;
/// Largest batch, in groups.
pub const BATCH_GROUPS_MAX: u32 = 65_536;
/// Largest bound on the lag, in training steps.
pub const LAG_MAX: u64 = 1_000;
/// Longest time that a member may be sampled by its client, in seconds: a week.
pub const MEMBER_TIMEOUT_MAX_S: u64 = 604_800;

/// How many times what it trains a group may sample, unless a job says otherwise.
const REDUNDANCY_MAX: u16 = 2;
/// Longest name of a model.
const MODEL_BYTES_MAX: usize = 512;
/// Largest such factor.
pub const REDUNDANCY_MOST: u16 = 16;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_default_redundancy(factor: &u16) -> bool {
    *factor == REDUNDANCY_MAX
}

fn is_model(name: &str) -> bool {
    (1..=MODEL_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}

/// What happens to a group that has become too old to be trained.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    /// Its programs end, and its prompt returns to the head of the queue.
    #[default]
    Cut,
    /// Its programs run on; their rewards count in statistics, and their tokens are not trained.
    Finish,
    /// The next batch is not cut before its programs have ended, so that it is not too old then.
    Wait,
}

/// What is captured of the steps that treadle forwards.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capture {
    /// Nothing.
    #[default]
    None,
    /// Token ids and log-probabilities, and members wait for their sample before their group is
    /// ready.
    Tokens,
}

/// Which prompt an engine gets that continues a captured answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// What the template makes of the client's messages.
    #[default]
    AsSent,
    /// The tokens of the answer as they were sampled, if possible.
    AsSampled,
}

impl History {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference"
    )]
    fn is_as_sent(&self) -> bool {
        *self == Self::AsSent
    }
}

/// What a training run is made of. Lags and versions count training steps: version `n` is what
/// training on batch `n` made, and batch `k` is trained on version `k - 1`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobSettings {
    /// The model that is trained, as requests name it; without one each model that they name counts
    /// as it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Programs in a group (M).
    pub group_size: u16,
    /// Groups in a batch (N).
    pub batch_groups: u32,
    /// Bound on the lag (L): the version on which a batch is trained may be at most this many steps
    /// newer than the oldest first token of any of its groups.
    pub lag_max: u64,
    /// How many batches are begun ahead of the one that is collected; at most `lag_max`.
    pub pipeline: u64,
    /// What happens to groups that are too old.
    pub stale: Stale,
    /// A group may lose this many members and have them replaced, before its prompt returns to the
    /// queue.
    pub failures_max: u32,
    /// A prompt that returned this many times is waited for, whatever `stale` says.
    pub starved_after: u32,
    /// A shaping policy may have a group sample at most this many times what it trains.
    #[serde(skip_serializing_if = "is_default_redundancy")]
    pub redundancy_max: u16,
    /// Members wait for a reward before their group is ready.
    pub rewarded: bool,
    /// What is captured; without it members need no sample.
    pub capture: Capture,
    /// Which prompts continue captured answers.
    #[serde(skip_serializing_if = "History::is_as_sent")]
    pub history: History,
    /// Rewards are computed of all members of a group together.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub judged_together: bool,
    /// A member that its client samples, and that has not ended this many seconds after it began, is
    /// lost; so is a program that has not come to a step.
    pub member_timeout_s: u64,
    /// Which class of hardware the programs of each domain prefer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// What computes rewards that clients don't report, as JSON; only its presence matters here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<Box<str>>,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            model: None,
            group_size: 8,
            batch_groups: 16,
            lag_max: 1,
            pipeline: 1,
            stale: Stale::Cut,
            failures_max: 8,
            starved_after: 3,
            redundancy_max: REDUNDANCY_MAX,
            rewarded: true,
            capture: Capture::None,
            history: History::AsSent,
            judged_together: false,
            member_timeout_s: 3_600,
            affinity: None,
            reward: None,
        }
    }
}

impl JobSettings {
    /// The settings with each number within its bounds.
    pub(crate) fn within_bounds(mut self) -> Self {
        self.group_size = self.group_size.clamp(1, GROUP_SIZE_MAX);
        self.batch_groups = self.batch_groups.clamp(1, BATCH_GROUPS_MAX);
        self.lag_max = self.lag_max.min(LAG_MAX);
        self.pipeline = self.pipeline.min(self.lag_max);
        self.redundancy_max = self.redundancy_max.clamp(1, REDUNDANCY_MOST);
        self.member_timeout_s = self.member_timeout_s.clamp(1, MEMBER_TIMEOUT_MAX_S);
        self.model.take_if(|name| !is_model(name));
        self.affinity
            .take_if(|affinity| affinity.problem().is_some());
        self
    }

    /// Whether a member needs a sample before its group is ready.
    pub fn captured(&self) -> bool {
        self.capture == Capture::Tokens
    }

    /// The first number that is out of its bounds, with these, or settings that contradict each
    /// other. More batches begun ahead than `lag_max` allows are as many as it allows.
    pub fn problem(&self) -> Option<String> {
        let numbers = [
            (
                "group_size",
                self.group_size.into(),
                1,
                GROUP_SIZE_MAX.into(),
            ),
            (
                "batch_groups",
                self.batch_groups.into(),
                1,
                BATCH_GROUPS_MAX.into(),
            ),
            ("lag_max", self.lag_max, 0, LAG_MAX),
            (
                "redundancy_max",
                self.redundancy_max.into(),
                1,
                REDUNDANCY_MOST.into(),
            ),
            (
                "member_timeout_s",
                self.member_timeout_s,
                1,
                MEMBER_TIMEOUT_MAX_S,
            ),
        ];
        let out = numbers
            .iter()
            .find(|(_, value, min, max)| value < min || value > max);
        let out =
            out.map(|(name, value, min, max)| format!("`{name}` is {value}; give {min} to {max}"));
        let feeds = self.history == History::AsSampled && !self.captured();
        out.or_else(|| {
            let cause = "`history` is as_sampled, which needs captured tokens; set `capture` to \
                         tokens";
            feeds.then(|| cause.to_owned())
        })
        .or_else(|| {
            let bytes = self.model.as_deref().filter(|name| !is_model(name))?.len();
            Some(format!(
                "`model` has {bytes} bytes; give 1 to {MODEL_BYTES_MAX} without control characters, \
                 or leave it out"
            ))
        })
        .or_else(|| self.affinity.as_ref()?.problem())
    }

    /// The oldest version whose tokens batch `batch` may hold; 0 if any may.
    pub fn floor(&self, batch: u64) -> u64 {
        batch.saturating_sub(1).saturating_sub(self.lag_max)
    }

    /// Groups that may have begun and are in no batch yet.
    pub fn begun_max(&self) -> usize {
        let groups = u64::from(self.batch_groups).saturating_mul(self.pipeline + 1);
        usize::try_from(groups).unwrap_or(usize::MAX)
    }
}
