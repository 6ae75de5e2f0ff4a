//! The world `shaping`: how many members a group of a training run samples, which of them are cut
//! short, and which are trained.

use std::ops::Range;

use crate::columns::check_length;
use crate::{Policy, PolicyError};

/// A member that runs, in [`MemberColumns::state`].
pub const RUNNING: u8 = 0;
/// A member that completed.
pub const COMPLETED: u8 = 1;
/// A member that a limit on its length ended.
pub const TRUNCATED: u8 = 2;

/// Groups, one row each, in the order of their queue. Has no extra columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct GroupColumns<'a> {
    /// An opaque number, the same each time that this prompt is submitted.
    pub prompt: &'a [u64],
    /// An opaque number, the same for all prompts of one domain; 0 without a domain.
    pub domain: &'a [u64],
    /// Members that are trained.
    pub size: &'a [u32],
    /// Most members that may be sampled.
    pub size_max: &'a [u32],
    /// Members that are sampled, as `size` answered; 0 in a call of `size`.
    pub sampled: &'a [u32],
    /// How often members of the group were put off by [`Verdict::Again`].
    pub postponed: &'a [u32],
}

impl GroupColumns<'_> {
    /// Number of groups.
    pub fn len(&self) -> usize {
        self.prompt.len()
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.prompt.is_empty()
    }

    /// Checks that all columns are of one length, and the bounds of sizes.
    ///
    /// # Errors
    /// [`PolicyError::invalid_input`], naming the column.
    pub fn check(&self) -> Result<(), PolicyError> {
        check_length("domain", self.domain.len(), self.len())?;
        check_length("size", self.size.len(), self.len())?;
        check_length("size_max", self.size_max.len(), self.len())?;
        check_length("sampled", self.sampled.len(), self.len())?;
        check_length("postponed", self.postponed.len(), self.len())?;
        let is_wrong = |row: &usize| self.size[*row] > self.size_max[*row];
        match (0..self.len()).find(is_wrong) {
            None => Ok(()),
            Some(row) => Err(PolicyError::invalid_input(format!(
                "column size_max is {} in row {row}, below the size {}; pass at least the size",
                self.size_max[row], self.size[row]
            ))),
        }
    }
}

/// Members, one row each, group after group and within a group in the order in which they began.
/// Has no extra columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemberColumns<'a> {
    /// The row of its group.
    pub group: &'a [u32],
    /// [`RUNNING`], [`COMPLETED`] or [`TRUNCATED`].
    pub state: &'a [u8],
    /// Tokens that it has sampled, all steps together. Of one that its client samples, they are
    /// known only at its end.
    pub tokens: &'a [u64],
    /// LLM calls finished.
    pub turns: &'a [u32],
    /// Time since it began, in milliseconds; of one that ended, until its end.
    pub elapsed_ms: &'a [u64],
    /// By how many training steps the weights in service are newer than its first token.
    pub lag: &'a [u32],
    /// Groups in a batch.
    pub batch_groups: u32,
    /// Groups that could be in the next batch already.
    pub ready_groups: u32,
    /// The groups.
    pub groups: GroupColumns<'a>,
}

impl MemberColumns<'_> {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.group.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.group.is_empty()
    }

    /// The rows of a group's members.
    pub fn of_group(&self, group: usize) -> Range<usize> {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        let from = self.group.partition_point(|of| *of < group);
        let to = self.group.partition_point(|of| *of <= group);
        from..to
    }

    /// Rows of a group's members in this state.
    pub fn in_state(&self, group: usize, state: u8) -> impl Iterator<Item = usize> + '_ {
        self.of_group(group)
            .filter(move |row| self.state[*row] == state)
    }

    /// Checks that all columns are of one length, that members come group after group, and that
    /// groups and states exist.
    ///
    /// # Errors
    /// [`PolicyError::invalid_input`], naming the column.
    pub fn check(&self) -> Result<(), PolicyError> {
        check_length("state", self.state.len(), self.len())?;
        check_length("tokens", self.tokens.len(), self.len())?;
        check_length("turns", self.turns.len(), self.len())?;
        check_length("elapsed_ms", self.elapsed_ms.len(), self.len())?;
        check_length("lag", self.lag.len(), self.len())?;
        self.groups.check()?;
        let groups = self.groups.len();
        let is_outside = self.group.last().is_some_and(|of| *of as usize >= groups);
        if is_outside || !self.group.is_sorted() {
            return Err(PolicyError::invalid_input(format!(
                "column group does not rise within the {groups} groups; pass members group after \
                 group"
            )));
        }
        match self.state.iter().find(|state| **state > TRUNCATED) {
            None => Ok(()),
            Some(state) => Err(PolicyError::invalid_input(format!(
                "column state has {state}; pass 0 to {TRUNCATED}"
            ))),
        }
    }
}

/// What becomes of a running member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It runs on.
    #[default]
    GoOn,
    /// It ends, and its group gets no other member for it. Ignored if fewer members than the
    /// group's size would be left.
    End,
    /// It ends, and its group gets another member for it, later; a group that has no member left then
    /// goes to the end of the queue. Ignored once members of the group were put off as often as the
    /// job's `starved_after`.
    Again,
}

impl Verdict {
    /// The name in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GoOn => "go-on",
            Self::End => "end",
            Self::Again => "again",
        }
    }
}

/// A policy of the world `shaping`.
pub trait ShapingPolicy: Policy {
    /// Functions of the contract that the policy implements.
    const FUNCTIONS: &'static [&'static str] = &["size"];

    /// How many members each group samples, from its size up to `size_max`, before its first one
    /// begins.
    ///
    /// # Errors
    /// Any [`PolicyError`]; groups then sample what they train.
    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError>;

    /// A verdict for each member; of those that have ended, only [`Verdict::Again`] counts: they are
    /// not trained then. The default leaves it to the host: all run on.
    ///
    /// # Errors
    /// Any [`PolicyError`]; all then run on.
    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        let _ = members;
        Err(PolicyError::not_supported())
    }

    /// Which members are trained, once all of a group have ended well: as many of each group as its
    /// size. The default leaves it to the host: those that began first.
    ///
    /// # Errors
    /// Any [`PolicyError`]; those that began first are then trained.
    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        let _ = members;
        Err(PolicyError::not_supported())
    }
}
