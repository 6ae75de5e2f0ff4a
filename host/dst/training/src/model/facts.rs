//! What the model knows of a job: only what events, commands and answers tell.

use super::shaping::{Open, Shaped};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::training::{Capture, End, JobSettings, Reward, Stale, Tally};
use treadle_dst_outcome::Checked;
use treadle_dst_outcome::broken;

/// A member of a group that is in no batch.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The version that was told last when it began or, if that was later, at its first token; or
    /// the oldest one of its sample.
    pub(super) version: u64,
    /// It has sampled a token.
    pub(super) sampled: bool,
    pub(super) direct: bool,
    pub(super) end: Option<End>,
    pub(super) reward: Option<Reward>,
    pub(super) sample: Option<Box<str>>,
    /// Steps that were captured; `None` if one was not.
    pub(super) captured: Option<u64>,
    pub(super) tokens: u64,
    pub(super) turns: u32,
    /// What its policy said of it when it ended it.
    pub(super) tokens_if_cut: u64,
    pub(super) turns_if_cut: u32,
    /// When it is lost, if it is still open then.
    pub(super) due_us: Option<u64>,
    /// It may have tokens of an abandoned version.
    pub(super) abandoned: bool,
    /// The version that was told last when it ended.
    pub(super) newest: u64,
}

impl Member {
    pub(super) fn has_ended_well(&self) -> bool {
        matches!(self.end, Some(End::Completed | End::Truncated))
    }

    pub(super) fn lacks(&self, settings: &JobSettings) -> bool {
        let no_reward = settings.rewarded && self.reward.is_none();
        let no_sample = settings.capture == Capture::Tokens && self.sample.is_none();
        self.has_ended_well() && (no_reward || no_sample)
    }

    /// Whether something is still expected of it.
    pub(super) fn is_open(&self, settings: &JobSettings) -> bool {
        self.end.is_none() || self.lacks(settings)
    }
}

/// A group that is in no batch.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact that rules ask about"
)]
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) size: usize,
    /// Order of submission.
    pub(super) number: u64,
    /// A program brought it with it.
    pub(super) implicit: bool,
    pub(super) members: BTreeMap<Box<str>, Member>,
    /// How often it became too old.
    pub(super) returned: u32,
    /// Members that were dropped or left.
    pub(super) dropped: u64,
    /// It is too old to be trained, and its members run on.
    pub(super) stale: bool,
    /// It has become too old, and its members are not dropped yet.
    pub(super) aged: bool,
    /// Members that it may have, once that was decided; before, as many as are trained.
    pub(super) target: Option<usize>,
    /// A policy was asked about it.
    pub(super) asked: bool,
    /// Its members are those that are trained.
    pub(super) selected: bool,
    pub(super) postponed: u32,
    /// Of the present event.
    pub(super) now: Shaped,
    pub(super) is_curtailed: bool,
    pub(super) is_postponed: bool,
}

impl Group {
    pub(super) fn version(&self) -> Option<u64> {
        self.members.values().map(|m| m.version).min()
    }

    pub(super) fn is_ready(&self, settings: &JobSettings) -> bool {
        let is_complete = |m: &Member| m.has_ended_well() && !m.lacks(settings);
        let is_whole = self.members.len() == self.size;
        let is_selected = !self.asked || self.selected;
        !self.stale && is_selected && is_whole && self.members.values().all(is_complete)
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.stale && !self.members.is_empty()
    }
}

/// A program that may not begin yet.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) group: Box<str>,
    /// Its client samples it.
    pub(super) direct: bool,
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) settings: JobSettings,
    pub(super) groups: BTreeMap<Box<str>, Group>,
    /// Groups that were served.
    pub(super) served: BTreeSet<Box<str>>,
    /// Groups that are not tried again.
    pub(super) given_up: BTreeSet<Box<str>>,
    /// Programs that may not begin yet, with their groups.
    pub(super) held: BTreeMap<Box<str>, Held>,
    /// Programs that were members or surplus, and are not members any more.
    pub(super) over: BTreeSet<Box<str>>,
    /// Batches that were served, as they were answered first.
    pub(super) batches: BTreeMap<u64, String>,
    pub(super) next_batch: u64,
    pub(super) requested: u64,
    pub(super) checkpoint: u64,
    pub(super) lineage: u32,
    pub(super) version: Option<u64>,
    /// The version that was told last, in whatever lineage.
    pub(super) last_version: u64,
    pub(super) rolled_back_to: u64,
    pub(super) submitted: u64,
    /// The open question to its policy.
    pub(super) open: Option<Open>,
    pub(super) sums: Sums,
}

/// Sums over members.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) begun: u64,
    pub(super) finished: Tally,
    pub(super) served: Tally,
    pub(super) lost: Tally,
    /// Members that left before they came to a step.
    pub(super) left: u64,
    pub(super) surplus: u64,
    pub(super) lag: u64,
}

impl Job {
    pub(super) fn new(settings: JobSettings) -> Self {
        Self {
            settings,
            groups: BTreeMap::new(),
            served: BTreeSet::new(),
            given_up: BTreeSet::new(),
            held: BTreeMap::new(),
            over: BTreeSet::new(),
            batches: BTreeMap::new(),
            next_batch: 1,
            requested: 0,
            checkpoint: 0,
            lineage: 0,
            version: Some(0),
            last_version: 0,
            rolled_back_to: 0,
            submitted: 0,
            open: None,
            sums: Sums::default(),
        }
    }

    /// The oldest version that a batch may hold.
    pub(super) fn floor(&self, batch: u64) -> u64 {
        (batch - 1).saturating_sub(self.settings.lag_max)
    }

    pub(super) fn submit(&mut self, key: &str, size: Option<u16>, implicit: bool) {
        self.submitted += 1;
        let group = Group {
            size: usize::from(size.unwrap_or(self.settings.group_size)),
            number: self.submitted,
            implicit,
            ..Group::default()
        };
        self.groups.insert(key.into(), group);
    }

    pub(super) fn begun(&self) -> usize {
        self.groups.values().filter(|g| g.has_begun()).count()
    }

    pub(super) fn begun_max(&self) -> usize {
        let pipeline = self.settings.pipeline.min(self.settings.lag_max);
        (pipeline as usize + 1) * self.settings.batch_groups as usize
    }

    /// Whether there is no place for a further group: too many have begun, or it would come after
    /// the last batch that takes what engines sample now.
    pub(super) fn is_full(&self) -> bool {
        let last = self.version.map_or(0, |v| v + 1 + self.settings.lag_max);
        let batches = (last + 1).saturating_sub(self.next_batch) as usize;
        let places = batches * self.settings.batch_groups as usize;
        self.begun() >= self.begun_max().min(places)
    }

    /// Whether the next batch has to wait for a group that runs.
    pub(super) fn waits_for(&self, group: &Group) -> bool {
        let is_starved = group.returned >= self.settings.starved_after;
        let is_old = group
            .version()
            .is_some_and(|v| v < self.floor(self.next_batch + 1));
        let is_waited_for = is_starved || self.settings.stale == Stale::Wait;
        is_old && is_waited_for && group.has_begun() && !group.is_ready(&self.settings)
    }

    pub(super) fn member(&mut self, group: &str, program: &str) -> Option<&mut Member> {
        self.groups.get_mut(group)?.members.get_mut(program)
    }

    /// Groups that can be served.
    pub(super) fn ready(&self) -> usize {
        let groups = self.groups.values();
        groups.filter(|g| g.is_ready(&self.settings)).count()
    }

    /// Whether a group is known that waits for nothing any more.
    pub(super) fn is_over(&self, key: &str) -> bool {
        self.served.contains(key) || self.given_up.contains(key)
    }

    /// Groups that have become too old; those that run on are not trained.
    pub(super) fn age(&mut self) -> Vec<Box<str>> {
        let floor = self.floor(self.next_batch);
        let mut aged = Vec::new();
        for (key, group) in &mut self.groups {
            if group.version().is_some_and(|v| v < floor) && !group.stale && !group.aged {
                group.returned += 1;
                group.aged = true;
                group.stale = self.settings.stale == Stale::Finish;
                aged.push(key.clone());
            }
        }
        aged
    }

    /// Tokens of versions after this one are abandoned.
    pub(super) fn roll_back(&mut self, batch: u64) {
        let newest = self.version.unwrap_or(self.last_version);
        for member in self
            .groups
            .values_mut()
            .flat_map(|g| g.members.values_mut())
        {
            let last = member.end.map_or(newest, |_| member.newest);
            member.abandoned |= last > batch;
        }
        self.lineage += 1;
        self.version = None;
        self.rolled_back_to = batch;
    }

    /// Compares sums with the answer.
    pub(super) fn compare(&self, answered: &treadle_core::training::Job) -> Checked {
        let account = &answered.account;
        let mut lost = Tally::default();
        for tally in account.all.lost.values() {
            lost = sum(lost, *tally);
        }
        let sums = Sums {
            begun: account.all.begun,
            finished: account.all.finished,
            served: account.all.served,
            lost,
            left: self.sums.left,
            surplus: account.surplus,
            lag: account.lag,
        };
        if sums != self.sums {
            return broken("account", format!("{sums:?}, not {:?}", self.sums));
        }
        let members = self.groups.values().map(|g| g.members.len() as u64);
        let members: u64 = members.sum();
        let known = account.all.served.members + lost.members + members + self.sums.left;
        if known != account.all.begun {
            let begun = account.all.begun;
            return broken(
                "account",
                format!("{begun} members began, {known} are known"),
            );
        }
        Ok(())
    }
}

fn sum(a: Tally, b: Tally) -> Tally {
    Tally {
        members: a.members + b.members,
        tokens: a.tokens + b.tokens,
        turns: a.turns + b.turns,
        rewarded: a.rewarded + b.rewarded,
        reward_millionths: a.reward_millionths + b.reward_millionths,
    }
}

/// Adds a member to a sum.
pub(super) fn add(tally: &mut Tally, member: &Member) {
    let millionths = |reward: Reward| (reward.get() * 1e6).round() as i64;
    let one = Tally {
        members: 1,
        tokens: member.tokens,
        turns: u64::from(member.turns),
        rewarded: u64::from(member.reward.is_some()),
        reward_millionths: member.reward.map_or(0, millionths),
    };
    *tally = sum(*tally, one);
}
