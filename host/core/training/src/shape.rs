//! What shaping decides and keeps, questions to shaping policies, and answers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use treadle_model::{AskId, Timestamp};

/// What a question asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShapingPurpose {
    /// How many members each group samples.
    Size,
    /// Which members end early, or are put off.
    Curtail,
    /// Which members are trained.
    Select,
}

/// A question about groups of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ShapingQuestion {
    /// The job.
    pub job: Box<str>,
    /// What it asks for.
    pub purpose: ShapingPurpose,
    /// The groups.
    pub groups: ShapedGroups,
    /// Their members; none if sizes are asked for.
    pub members: ShapedMembers,
}

/// Groups, one row each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShapedGroups {
    /// Its key.
    pub key: Vec<Box<str>>,
    /// A number of its content.
    pub prompt: Vec<u64>,
    /// A number of its domain; 0 without one.
    pub domain: Vec<u64>,
    /// Members that are trained.
    pub size: Vec<u32>,
    /// Most members that may be sampled.
    pub size_max: Vec<u32>,
    /// Members that are sampled; 0 before that is decided.
    pub sampled: Vec<u32>,
    /// How often members of it were put off.
    pub postponed: Vec<u32>,
}

/// Members, one row each, group after group and in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShapedMembers {
    /// Its program.
    pub program: Vec<Box<str>>,
    /// The row of its group.
    pub group: Vec<u32>,
    /// 0 while it runs, 1 once it completed, 2 once it was truncated.
    pub state: Vec<u8>,
    /// Tokens that it has sampled.
    pub tokens: Vec<u64>,
    /// Its steps.
    pub turns: Vec<u32>,
    /// Time since it began, up to its end.
    pub elapsed_ms: Vec<u64>,
    /// Its lag, in training steps.
    pub lag: Vec<u32>,
    /// Groups in a batch.
    pub batch_groups: u32,
    /// Groups that are ready.
    pub ready_groups: u32,
}

/// How many members a group samples.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct GroupSize {
    /// The group.
    pub group: Box<str>,
    /// Members.
    pub members: u16,
}

/// A member that ends early.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Curtailed {
    /// Its group.
    pub group: Box<str>,
    /// Its program.
    pub program: Box<str>,
    /// Tokens that it had sampled.
    pub tokens: u64,
    /// Its finished steps.
    pub turns: u32,
    /// It is put off: its group gets another member for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// The members of a group that are trained.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The group.
    pub group: Box<str>,
    /// Their programs.
    pub programs: Vec<Box<str>>,
}

/// An answer: what it leaves out, the core decides.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShapingAnswer {
    /// How many members groups sample; others sample what they train.
    Sizes(Vec<GroupSize>),
    /// Members that end early; others run on.
    Curtailed(Vec<Curtailed>),
    /// Members that are trained; of other groups those that began first.
    Selected(Vec<Selection>),
}

impl ShapingQuestion {
    /// The answer that leaves all to the core.
    pub fn by_default(&self) -> ShapingAnswer {
        match self.purpose {
            ShapingPurpose::Size => ShapingAnswer::Sizes(Vec::new()),
            ShapingPurpose::Curtail => ShapingAnswer::Curtailed(Vec::new()),
            ShapingPurpose::Select => ShapingAnswer::Selected(Vec::new()),
        }
    }
}

/// What was decided about the members of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Members that it samples; 0 before that is decided.
    pub sampled: u16,
    /// Members that it has or still needs: fewer than it samples once some failed or were ended.
    pub target: u16,
    /// How often members of it were put off.
    pub postponed: u32,
    /// Members that had ended well when a policy was last to be asked about those that run.
    pub ended: usize,
    /// A policy was asked, which also selects the members that are trained.
    pub by_policy: bool,
    /// These are selected: the group has no others any more.
    pub selected: bool,
}

impl Shape {
    pub(crate) fn set_sampled(&mut self, members: u16) {
        (self.sampled, self.target) = (members, members);
    }

    /// Forgets what was decided of members that are gone.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            postponed: self.postponed,
            ..Self::default()
        };
    }
}

/// A question that is not answered yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenAsk {
    /// Its number.
    pub ask: AskId,
    /// What it asks for.
    pub purpose: ShapingPurpose,
    /// The groups that it is about.
    pub groups: Vec<Box<str>>,
    /// When the core answers itself.
    pub deadline: Timestamp,
}

/// The state of a job's shaping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shaping {
    /// A policy shapes the groups that begin from now on.
    pub by_policy: bool,
    /// The open question.
    pub ask: Option<OpenAsk>,
    /// Groups with all members ended well, whose members are to be selected.
    pub to_select: BTreeSet<Box<str>>,
    /// Groups with enough members that have ended well, while others run.
    pub watched: BTreeSet<Box<str>>,
    /// Groups whose running members a policy is to be asked about.
    pub to_curtail: BTreeSet<Box<str>>,
    /// When running members are looked at again.
    pub look_at: Option<Timestamp>,
}

impl Shaping {
    /// When the open question is late, or running members are looked at again.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let late = self.ask.as_ref().map(|open| open.deadline);
        late.into_iter().chain(self.look_at).min()
    }
}
