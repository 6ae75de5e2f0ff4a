//! Groups of programs that sample the same prompt, and their members.

use crate::shape::Shape;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{StepId, Timestamp};

/// How a member ended.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It came to its own end.
    Completed,
    /// A limit on its tokens or turns ended it; it is trained like a completed one.
    Truncated,
    /// Its client gave it up, or was lost.
    Aborted,
    /// Its environment failed.
    EnvironmentFailed,
    /// Its engine failed.
    EngineFailed,
    /// No reward could be computed.
    RewardFailed,
    /// Its client reported a failure of its own.
    ClientFailed,
    /// The tokens of a step could not be captured.
    CaptureFailed,
    /// It was too old to be trained.
    Cut,
    /// The shaping policy ended it early.
    Curtailed,
    /// The shaping policy put it off: another one is sampled later.
    Postponed,
    /// It ended well, and others of its group are trained.
    Unselected,
}

impl End {
    /// Whether the member is trained.
    pub fn is_trained(self) -> bool {
        matches!(self, Self::Completed | Self::Truncated)
    }

    /// Whether treadle ended the member, and nobody reports that.
    pub fn is_by_core(self) -> bool {
        matches!(
            self,
            Self::Cut | Self::Curtailed | Self::Postponed | Self::Unselected
        )
    }
}

/// A finite number. In JSON it is text, which keeps every bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reward(f64);

impl Reward {
    /// `None` if the number is not finite.
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Serialize for Reward {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Reward {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<str>::deserialize(deserializer)?;
        let value = text.parse().ok().and_then(Self::new);
        value.ok_or_else(|| D::Error::custom("a reward is a finite number, as text"))
    }
}

/// What a client said of a member that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// Tokens that it sampled.
    pub tokens: u64,
    /// Its steps.
    pub turns: u32,
    /// Its reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<Reward>,
    /// Digest of its sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Box<str>>,
    /// The oldest version of any of the sample's tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Steps of the sample that continue no earlier one, by why they don't.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub breaks: BTreeMap<Box<str>, u32>,
    /// Digest of what else the client said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Box<str>>,
}

impl Report {
    /// Of an end that nothing was stored with.
    pub fn of(end: End, tokens: u64, turns: u32) -> Self {
        Self {
            end,
            tokens,
            turns,
            reward: None,
            sample: None,
            version: None,
            breaks: BTreeMap::new(),
            info: None,
        }
    }
}

/// A program that samples a group's prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// When it began.
    pub begun: Timestamp,
    /// The version in service at its first token; until then, the one in service when it began.
    pub version: u64,
    /// The version in service when it ended.
    pub newest: u64,
    /// It has sampled a token.
    pub sampled: bool,
    /// How it ended, once it has.
    pub end: Option<End>,
    /// When it ended.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// Tokens that it sampled.
    pub tokens: u64,
    /// Its steps.
    pub turns: u32,
    /// Its reward.
    pub reward: Option<Reward>,
    /// Digest of its sample.
    pub sample: Option<Box<str>>,
    /// Digest of what else its client said of it.
    pub info: Option<Box<str>>,
    /// Steps whose tokens were captured, at most [`CAPTURED_MAX`].
    #[serde(default)]
    pub captured: Vec<StepId>,
    /// Why the tokens of a step could not be captured, if those of one could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Box<str>>,
    /// What was stored of it is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// When it is lost, if its client samples it, or if something of it is missing after its end.
    pub deadline: Option<Timestamp>,
    /// When it is lost if it has not come to a step by then.
    #[serde(default)]
    pub opens_by: Timestamp,
}

/// Longest cause that is kept, in characters.
const CAUSE_MAX: usize = 256;

/// A cause within its bound.
pub(crate) fn bounded(cause: &str) -> Box<str> {
    cause.chars().take(CAUSE_MAX).collect::<String>().into()
}

/// Steps of a member that are captured. One with more is incomplete.
pub const CAPTURED_MAX: usize = 10_000;

impl Member {
    pub(crate) fn captured(&mut self, step: StepId) {
        if self.captured.len() < CAPTURED_MAX {
            self.captured.push(step);
        } else {
            self.lacks_step(&format!("it has more than {CAPTURED_MAX} captured steps"));
        }
    }

    /// The tokens of a step could not be captured; the first cause is kept.
    pub(crate) fn lacks_step(&mut self, cause: &str) {
        self.incomplete.get_or_insert_with(|| bounded(cause));
    }

    pub(crate) fn begun(version: u64, now: Timestamp, deadline: Timestamp, direct: bool) -> Self {
        Self {
            begun: now,
            opens_by: deadline,
            version,
            newest: version,
            sampled: false,
            end: None,
            ended: None,
            tokens: 0,
            turns: 0,
            reward: None,
            sample: None,
            info: None,
            captured: Vec::new(),
            incomplete: None,
            deleted: false,
            deadline: direct.then_some(deadline),
        }
    }

    /// Whether its client samples it, as long as it runs.
    pub fn is_direct(&self) -> bool {
        self.end.is_none() && self.deadline.is_some()
    }

    /// Whether it may never come to a step. One that its client samples has a deadline instead.
    pub(crate) fn is_unopened(&self) -> bool {
        !self.sampled && self.end.is_none() && self.deadline.is_none()
    }

    /// Whether it ended well, and only its captured steps can tell its tokens.
    pub(crate) fn is_to_be_assembled(&self) -> bool {
        let is_open = self.has_ended_well() && self.sample.is_none();
        is_open && !self.captured.is_empty() && self.incomplete.is_none()
    }

    /// Whether a report adds to what is known, and contradicts nothing.
    pub(crate) fn admits(&self, report: &Report) -> bool {
        let fits = |known: Option<&str>, told: Option<&str>| {
            told.is_none() || known.is_none() || known == told
        };
        let same_reward =
            report.reward.is_none() || self.reward.is_none() || report.reward == self.reward;
        self.end.is_none_or(|end| end == report.end)
            && (self.end.is_none() || same_reward)
            && fits(self.sample.as_deref(), report.sample.as_deref())
            && fits(self.info.as_deref(), report.info.as_deref())
    }

    /// Whether a report is on record as it is.
    pub fn has(&self, report: &Report) -> bool {
        let same =
            |known: &Option<Box<str>>, told: &Option<Box<str>>| told.is_none() || known == told;
        self.end == Some(report.end)
            && (report.reward.is_none() || self.reward == report.reward)
            && same(&self.sample, &report.sample)
            && same(&self.info, &report.info)
    }

    /// Whether it ended well and something that its group waits for is missing.
    pub fn lacks(&self, rewarded: bool, captured: bool) -> bool {
        let is_open = rewarded && self.reward.is_none() || captured && self.sample.is_none();
        self.has_ended_well() && is_open
    }

    /// Whether it ended and can be trained.
    pub fn has_ended_well(&self) -> bool {
        self.end.is_some_and(End::is_trained)
    }
}

/// Programs that sample the same prompt, and whose rewards are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Members that are trained.
    pub size: u16,
    /// What was decided about its members.
    #[serde(default)]
    pub shape: Shape,
    /// Digest of what the client stored with it.
    pub content: Option<Box<str>>,
    /// What its prompt is from, such as `math`: the account is kept by it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Box<str>>,
    /// It came into being with a program that named it.
    pub implicit: bool,
    /// Its place in the queue: lower ones go first.
    pub place: Place,
    /// Members by their programs; those that were lost are removed.
    pub members: BTreeMap<Box<str>, Member>,
    /// Members that it has lost since it was last queued.
    pub failures: u32,
    /// How often it returned to the queue because it had lost too many.
    pub failed: u32,
    /// How often it became too old.
    pub returned: u32,
    /// It is too old to be trained, and its programs run on.
    pub stale: bool,
    /// Programs that came when it had all its members.
    pub surplus: BTreeSet<Box<str>>,
}

/// Surplus programs of a group that are remembered.
pub(crate) const SURPLUS_MAX: usize = 4_096;

/// A place in the queue of groups.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Place {
    /// Groups that returned go before those that never began.
    pub fresh: bool,
    /// Order of submission.
    pub number: u64,
}

impl Group {
    pub(crate) fn new(size: u16, content: Option<Box<str>>, place: Place) -> Self {
        Self {
            size,
            shape: Shape::default(),
            content,
            domain: None,
            implicit: false,
            place,
            members: BTreeMap::new(),
            failures: 0,
            failed: 0,
            returned: 0,
            stale: false,
            surplus: BTreeSet::new(),
        }
    }

    /// Whether a further program may become a member.
    pub fn takes_members(&self) -> bool {
        !self.stale && self.missing() > 0
    }

    /// Remembers that a program is no member, so that a later step does not make it one.
    pub(crate) fn leave_out(&mut self, program: &str) {
        if self.surplus.len() < SURPLUS_MAX {
            self.surplus.insert(program.into());
        }
    }

    /// Version of its oldest first token; `None` before any member began.
    pub fn version(&self) -> Option<u64> {
        self.members.values().map(|m| m.version).min()
    }

    /// How many programs it still needs.
    pub fn missing(&self) -> usize {
        let target = self.shape.target.max(self.size);
        usize::from(target).saturating_sub(self.members.len())
    }

    /// Programs that have not ended.
    pub fn running(&self) -> impl Iterator<Item = &str> {
        let running = self.members.iter().filter(|(_, m)| m.end.is_none());
        running.map(|(program, _)| &**program)
    }
}
