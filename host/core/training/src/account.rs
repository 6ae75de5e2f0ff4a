//! The bias account: what was begun, finished and served, so that what a policy leaves out of
//! training shows.

use crate::group::{End, Group, Member};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::iter;

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

/// What became of members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Members that began.
    pub begun: u64,
    /// Members that came to an end of their own, counted when they leave their group.
    pub finished: Tally,
    /// Members that are in a batch.
    pub served: Tally,
    /// Members that were lost, by reason.
    pub lost: BTreeMap<End, Tally>,
}

/// What became of the members of a job since it was declared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// All members.
    pub all: Outcomes,
    /// Those of groups with a domain, by that; of the 65th domain and later ones under [`OTHER`].
    pub domains: BTreeMap<Box<str>, Outcomes>,
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

/// Domains of a job that are told apart.
const DOMAINS_MAX: usize = 64;
/// The domain of members whose own is one too many.
pub const OTHER: &str = "other";
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

    /// The sums that a member of this domain counts in.
    fn sums(&mut self, domain: Option<&str>) -> impl Iterator<Item = &mut Outcomes> {
        let own = domain.map(|domain| {
            let is_full = self.domains.len() >= DOMAINS_MAX && !self.domains.contains_key(domain);
            let name = if is_full { OTHER } else { domain };
            self.domains.entry(name.into()).or_default()
        });
        iter::once(&mut self.all).chain(own)
    }

    /// Counts a member that begins.
    pub(crate) fn begun(&mut self, domain: Option<&str>) {
        self.sums(domain).for_each(|sums| sums.begun += 1);
    }

    /// Counts a member that is not trained.
    pub(crate) fn lost(&mut self, domain: Option<&str>, member: &Member, end: End) {
        for sums in self.sums(domain) {
            if member.has_ended_well() {
                sums.finished.add(member);
            }
            sums.lost.entry(end).or_default().add(member);
        }
    }

    /// Counts a group that was put into a batch.
    pub(crate) fn served(&mut self, batch: u64, group: &Group) {
        let version = group.version().unwrap_or_default();
        self.lag = self.lag.max((batch - 1).saturating_sub(version));
        for sums in self.sums(group.domain.as_deref()) {
            for member in group.members.values() {
                sums.finished.add(member);
                sums.served.add(member);
            }
        }
    }
}
