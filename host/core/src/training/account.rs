//! The bias account: what was begun, finished and served, so that what a policy leaves out of
//! training shows.

use crate::training::command::TrainingCommand;
use crate::training::group::{End, Group, Member};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sums over members. Means come from dividing by `members`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Members.
    pub members: u64,
    /// Tokens that they sampled.
    pub tokens: u64,
    /// Their steps.
    pub turns: u64,
    /// Members with a reward.
    pub rewarded: u64,
    /// Sum of their rewards, in millionths.
    pub reward_millionths: i64,
}

impl Tally {
    pub(crate) fn add(&mut self, member: &Member) {
        self.members += 1;
        self.tokens = self.tokens.saturating_add(member.tokens);
        self.turns = self.turns.saturating_add(u64::from(member.turns));
        if let Some(reward) = member.reward {
            self.rewarded += 1;
            let millionths = (reward.get() * 1e6).round() as i64;
            self.reward_millionths = self.reward_millionths.saturating_add(millionths);
        }
    }
}

/// What became of the members of a job since it was declared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Members that began.
    pub begun: u64,
    /// Members that came to an end of their own, counted when they leave their group.
    pub finished: Tally,
    /// Members that are in a batch.
    pub served: Tally,
    /// Members that were lost, by reason.
    pub lost: BTreeMap<End, Tally>,
    /// Steps of samples on record that continue no earlier one of their member, by why they don't.
    #[serde(default)]
    pub breaks: BTreeMap<Box<str>, u64>,
    /// Groups that returned to the queue.
    pub returned: u64,
    /// Groups that returned too often and are not tried again.
    pub never_served: u64,
    /// Programs that named a group which had all its members.
    pub surplus: u64,
    /// Largest lag of any group that is in a batch.
    pub lag: u64,
}

/// Kinds of breaks that are told apart.
const KINDS_MAX: usize = 16;

impl Account {
    /// Counts the breaks of a sample that is on record now.
    pub(crate) fn merged(&mut self, breaks: &BTreeMap<Box<str>, u32>) {
        for (kind, steps) in breaks {
            if self.breaks.len() < KINDS_MAX || self.breaks.contains_key(kind) {
                *self.breaks.entry(kind.clone()).or_default() += u64::from(*steps);
            }
        }
    }

    /// Counts a member that is not trained.
    pub(crate) fn lost(&mut self, program: &str, member: &Member, end: End) -> TrainingCommand {
        if member.has_ended_well() {
            self.finished.add(member);
        }
        self.lost.entry(end).or_default().add(member);
        TrainingCommand::DropMember {
            program: program.into(),
            running: member.end.is_none() && end == End::Cut,
        }
    }

    /// Counts a group that was put into a batch.
    pub(crate) fn served(&mut self, batch: u64, group: &Group) {
        let version = group.version().unwrap_or_default();
        self.lag = self.lag.max((batch - 1).saturating_sub(version));
        for member in group.members.values() {
            self.finished.add(member);
            self.served.add(member);
        }
    }
}
