//! A training run: its groups, its batches and its versions.

use crate::training::account::Account;
use crate::training::command::{ServedGroup, TrainingCommand};
use crate::training::group::{End, Group, Member, Place};
use crate::training::settings::{JobSettings, Stale};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A prompt that returned to the queue more often is given up.
const RETURNED_MAX: u32 = 8;

/// A batch that was cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Its groups: what each consists of never changes.
    pub groups: BTreeMap<Box<str>, Group>,
    /// The trainer has trained on it, since it last went back to a checkpoint.
    pub trained: bool,
}

/// Why programs of a job wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Engines must have this version first: what they sample now would be too old.
    Weights {
        /// The version.
        version: u64,
    },
    /// As many programs as may have begun have begun: the trainer has to take a batch.
    Trainer {
        /// That number.
        begun: u64,
    },
}

/// The state of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What it declared.
    pub settings: JobSettings,
    /// Groups that are in no batch.
    pub groups: BTreeMap<Box<str>, Group>,
    /// Those that can be served, oldest first.
    pub ready: BTreeSet<(u64, Place, Box<str>)>,
    /// Batches since the last checkpoint.
    pub batches: BTreeMap<u64, Batch>,
    /// Number of the next batch to cut; the first is 1.
    pub next_batch: u64,
    /// The trainer waits for this batch.
    pub requested: u64,
    /// The last batch in a checkpoint.
    pub checkpoint: u64,
    /// The version that engines have; `None` after the trainer went back, until it says so.
    pub version: Option<u64>,
    /// How often the trainer went back: a version belongs to a lineage.
    pub lineage: u32,
    /// Members of groups that are in no batch and not too old for one.
    pub begun: u64,
    /// Groups submitted.
    pub submitted: u64,
    /// What became of members.
    pub account: Account,
}

impl Job {
    pub(crate) fn new(settings: JobSettings) -> Self {
        Self {
            settings,
            groups: BTreeMap::new(),
            ready: BTreeSet::new(),
            batches: BTreeMap::new(),
            next_batch: 1,
            requested: 0,
            checkpoint: 0,
            version: Some(0),
            lineage: 0,
            begun: 0,
            submitted: 0,
            account: Account::default(),
        }
    }

    /// Takes new settings over. What is ready and too old is found again.
    pub(crate) fn declare(&mut self, settings: JobSettings) {
        self.settings = settings;
        self.ready.clear();
        let keys: Vec<Box<str>> = self.groups.keys().cloned().collect();
        for key in keys {
            self.note_ready(&key);
        }
    }

    /// Whether a group is known: queued, running, ready or in a batch.
    pub fn has_group(&self, key: &str) -> bool {
        let batched = self.batches.values().any(|b| b.groups.contains_key(key));
        batched || self.groups.contains_key(key)
    }

    pub(crate) fn submit(&mut self, key: &str, size: Option<u16>, content: Option<Box<str>>) {
        if self.has_group(key) {
            return;
        }
        self.submitted += 1;
        let group = Group {
            size: size.unwrap_or(self.settings.group_size),
            content,
            place: Place {
                fresh: true,
                number: self.submitted,
            },
            members: BTreeMap::new(),
            failures: 0,
            returned: 0,
            stale: false,
        };
        self.groups.insert(key.into(), group);
    }

    /// Why no further program may begin, if none may.
    pub fn wait(&self) -> Option<Wait> {
        let floor = self.settings.floor(self.next_batch);
        if self.version.is_none_or(|version| version < floor) {
            return Some(Wait::Weights { version: floor });
        }
        let begun = self.settings.begun_max();
        (self.begun >= begun).then_some(Wait::Trainer { begun })
    }

    /// Groups that need programs, in order, with how many they need.
    pub fn wanted(&self) -> impl Iterator<Item = (&str, usize)> {
        let missing = self
            .groups
            .iter()
            .filter(|(_, g)| !g.stale && g.missing() > 0);
        let mut in_order: Vec<_> = missing.collect();
        in_order.sort_by_key(|(_, group)| group.place);
        in_order.into_iter().map(|(key, g)| (&**key, g.missing()))
    }

    /// Whether a program may become a member of a group.
    pub(crate) fn takes(&self, key: &str) -> bool {
        let group = self.groups.get(key);
        group.is_some_and(|group| !group.stale && group.missing() > 0)
    }

    pub(crate) fn begin(&mut self, key: &str, program: &str) {
        let version = self.version.unwrap_or_default();
        if let Some(group) = self.groups.get_mut(key) {
            group.members.insert(program.into(), Member::begun(version));
            self.begun += 1;
            self.account.begun += 1;
        }
    }

    /// Changes a member, and finds out whether its group is ready then.
    pub(crate) fn change(&mut self, key: &str, program: &str, change: impl FnOnce(&mut Member)) {
        self.withdraw(key);
        let group = self.groups.get_mut(key);
        let Some(member) = group.and_then(|g| g.members.get_mut(program)) else {
            self.note_ready(key);
            return;
        };
        let had_ended = member.end.is_some();
        change(member);
        if !had_ended && member.end.is_some() {
            self.account.finished.add(member);
        }
        self.note_ready(key);
    }

    /// Takes a group out of those that are ready, before it changes.
    fn withdraw(&mut self, key: &str) {
        if let Some(group) = self.groups.get(key)
            && let Some(version) = group.version()
        {
            self.ready.remove(&(version, group.place, key.into()));
        }
    }

    fn note_ready(&mut self, key: &str) {
        if let Some(group) = self.groups.get(key)
            && let Some(version) = group.version()
            && self.is_ready(group)
        {
            self.ready.insert((version, group.place, key.into()));
        }
    }

    /// Removes a member; a group that has lost too many returns to the queue.
    pub(crate) fn lose(&mut self, key: &str, program: &str, end: End) -> Vec<TrainingCommand> {
        self.withdraw(key);
        let Some(group) = self.groups.get_mut(key) else {
            return Vec::new();
        };
        let Some(member) = group.members.remove(program) else {
            self.note_ready(key);
            return Vec::new();
        };
        self.account.lost.entry(end).or_default().add(&member);
        if group.stale {
            self.drop_finished();
            return Vec::new();
        }
        group.failures += 1;
        self.begun -= 1;
        if group.failures > self.settings.failures_max {
            return self.put_back(key, end);
        }
        Vec::new()
    }

    /// Drops all members of a group and queues its prompt again, before those that never began.
    fn put_back(&mut self, key: &str, end: End) -> Vec<TrainingCommand> {
        self.withdraw(key);
        let Some(mut group) = self.groups.remove(key) else {
            return Vec::new();
        };
        let mut commands = Vec::new();
        self.begun -= group.members.len() as u64;
        for (program, member) in std::mem::take(&mut group.members) {
            self.account.lost.entry(end).or_default().add(&member);
            commands.push(TrainingCommand::DropMember {
                program,
                running: member.end.is_none(),
            });
        }
        group.failures = 0;
        group.returned += 1;
        group.place.fresh = false;
        self.account.returned += 1;
        if group.returned > RETURNED_MAX {
            self.account.never_served += 1;
        } else {
            self.groups.insert(key.into(), group);
        }
        commands
    }

    /// Whether a group can be served: each of its members ended well and has what the job waits for.
    pub fn is_ready(&self, group: &Group) -> bool {
        let settings = &self.settings;
        let is_complete = |m: &Member| {
            m.end.is_some_and(End::is_trained)
                && (!settings.rewarded || m.reward.is_some())
                && (!settings.captured || m.sample.is_some())
        };
        !group.stale && group.missing() == 0 && group.members.values().all(is_complete)
    }

    /// Whether a group would become too old if the next batch were cut without it.
    fn would_expire(&self, group: &Group) -> bool {
        let floor = self.settings.floor(self.next_batch + 1);
        !group.stale && group.version().is_some_and(|version| version < floor)
    }

    fn is_waited_for(&self, group: &Group) -> bool {
        let waits =
            self.settings.stale == Stale::Wait || group.returned >= self.settings.starved_after;
        waits && self.would_expire(group) && !self.is_ready(group)
    }

    /// Cuts the next batch if the trainer waits for it and enough groups are ready.
    pub(crate) fn cut(&mut self, name: &str) -> Vec<TrainingCommand> {
        let mut commands = Vec::new();
        while self.requested == self.next_batch {
            let Some(batch) = self.choose() else { break };
            let number = self.next_batch;
            let served = batch.groups.iter().map(|(key, group)| ServedGroup {
                group: key.clone(),
                programs: group.members.keys().cloned().collect(),
            });
            commands.push(TrainingCommand::ServeBatch {
                job: name.into(),
                batch: number,
                groups: served.collect(),
            });
            for group in batch.groups.values() {
                let version = group.version().unwrap_or_default();
                self.account.lag = self.account.lag.max((number - 1).saturating_sub(version));
                self.begun -= group.members.len() as u64;
                group
                    .members
                    .values()
                    .for_each(|m| self.account.served.add(m));
            }
            self.batches.insert(number, batch);
            self.next_batch += 1;
            commands.extend(self.expire());
        }
        commands
    }

    /// The oldest ready groups, if there are enough and none has to be waited for.
    fn choose(&mut self) -> Option<Batch> {
        let size = self.settings.batch_groups as usize;
        if self.ready.len() < size || self.groups.values().any(|g| self.is_waited_for(g)) {
            return None;
        }
        let mut groups = BTreeMap::new();
        while groups.len() < size {
            let (_, _, key) = self.ready.pop_first()?;
            groups.extend(self.groups.remove_entry(&key));
        }
        Some(Batch {
            groups,
            trained: false,
        })
    }

    /// Takes groups that are too old for the next batch out.
    fn expire(&mut self) -> Vec<TrainingCommand> {
        let floor = self.settings.floor(self.next_batch);
        let is_old = |group: &Group| !group.stale && group.version().is_some_and(|v| v < floor);
        let old = self.groups.iter().filter(|(_, group)| is_old(group));
        let old: Vec<Box<str>> = old.map(|(key, _)| key.clone()).collect();
        let mut commands = Vec::new();
        for key in old {
            if self.settings.stale != Stale::Finish {
                commands.extend(self.put_back(&key, End::Cut));
                continue;
            }
            self.withdraw(&key);
            if let Some(group) = self.groups.get_mut(&key) {
                group.stale = true;
                self.begun -= group.members.len() as u64;
            }
        }
        self.drop_finished();
        commands
    }

    /// Forgets groups that are too old once all their programs have ended.
    pub(crate) fn drop_finished(&mut self) {
        let account = &mut self.account;
        self.groups.retain(|_, group| {
            let is_over = group.stale && group.running().next().is_none();
            account.never_served += u64::from(is_over);
            !is_over
        });
    }

    pub(crate) fn trained(&mut self, batch: u64) {
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.trained = true;
        }
    }

    pub(crate) fn checkpoint(&mut self, batch: u64) {
        self.checkpoint = self.checkpoint.max(batch).min(self.next_batch - 1);
        self.batches = self.batches.split_off(&(self.checkpoint + 1));
    }

    /// Later batches come again. What was sampled with abandoned versions and is in no batch is
    /// not trained.
    pub(crate) fn roll_back(&mut self, checkpoint: u64) -> Vec<TrainingCommand> {
        self.lineage += 1;
        self.version = None;
        for batch in self.batches.values_mut() {
            batch.trained = false;
        }
        let is_abandoned = |group: &Group| group.members.values().any(|m| m.version > checkpoint);
        let abandoned = self
            .groups
            .iter()
            .filter(|(_, g)| !g.stale && is_abandoned(g));
        let abandoned: Vec<Box<str>> = abandoned.map(|(key, _)| key.clone()).collect();
        let keys = abandoned.iter();
        keys.flat_map(|key| self.put_back(key, End::Cut)).collect()
    }
}
