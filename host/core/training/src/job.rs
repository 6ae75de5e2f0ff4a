//! A training run: its groups, its batches and its versions.

use crate::account::Account;
use crate::command::TrainingCommand;
use crate::finished::Finished;
use crate::group::{End, Group, Member, Place, bounded};
use crate::lost::{Lost, remember};
use crate::settings::JobSettings;
use crate::shape::Shaping;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use treadle_model::Timestamp;

/// Keys of groups that are remembered once they are over.
pub(crate) const KEYS_MAX: usize = 1_000_000;
/// A prompt whose group lost too many members this often is given up.
const FAILED_MAX: u32 = 8;

/// A batch that was cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Its groups: what each consists of never changes.
    pub groups: BTreeMap<Box<str>, Group>,
    /// The trainer has trained on it, since it last went back to a checkpoint.
    pub trained: bool,
}

/// Why a program waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Engines must have this version first: what they sample now would be too old, for the next
    /// batch or for the first that has a place.
    Weights {
        /// The version.
        version: u64,
    },
    /// As many groups as may have begun have begun: the trainer has to take a batch.
    Trainer {
        /// That number.
        groups: usize,
    },
    /// The shaping policy is asked how many members the group samples.
    Policy,
}

/// The state of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What it declared.
    pub settings: JobSettings,
    /// When it was declared first, which tells it from earlier ones of its name.
    #[serde(default)]
    pub declared: Timestamp,
    /// Groups that are in no batch.
    pub groups: BTreeMap<Box<str>, Group>,
    /// Those with members that are not too old, by the version of the oldest first token.
    pub begun: BTreeSet<(u64, Box<str>)>,
    /// Those that can be served, oldest first.
    pub ready: BTreeSet<(u64, Place, Box<str>)>,
    /// Those that need members: first those that have begun, then the others, in order.
    pub open: BTreeSet<(bool, Place, Box<str>)>,
    /// Programs that may not begin yet, in order of arrival, by group.
    pub held: BTreeMap<Box<str>, BTreeMap<u64, Box<str>>>,
    /// Keys of groups that were served or given up.
    pub finished: Finished,
    /// Programs that were members and are not trained: none begins again.
    pub dropped: Finished,
    /// Programs that are in a batch.
    pub served: Finished,
    /// The latest members that were lost.
    #[serde(default)]
    pub lost: VecDeque<Lost>,
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
    /// Digest of these weights, if the trainer gave one.
    pub digest: Option<Box<str>>,
    /// The batch that the trainer last went back to: no version of its lineage is older.
    pub rolled_back_to: u64,
    /// How often the trainer went back: a version belongs to a lineage.
    pub lineage: u32,
    /// Groups submitted.
    pub submitted: u64,
    /// The last place in the queue that was given.
    #[serde(default)]
    pub last_place: u64,
    /// What a policy decides about groups.
    #[serde(default)]
    pub shaping: Shaping,
    /// What became of members.
    pub account: Account,
}

impl Job {
    pub(crate) fn new(settings: JobSettings, now: Timestamp) -> Self {
        Self {
            settings,
            declared: now,
            groups: BTreeMap::new(),
            begun: BTreeSet::new(),
            ready: BTreeSet::new(),
            open: BTreeSet::new(),
            held: BTreeMap::new(),
            finished: Finished::default(),
            dropped: Finished::default(),
            served: Finished::default(),
            lost: VecDeque::new(),
            batches: BTreeMap::new(),
            next_batch: 1,
            requested: 0,
            checkpoint: 0,
            version: Some(0),
            digest: None,
            rolled_back_to: 0,
            lineage: 0,
            submitted: 0,
            last_place: 0,
            shaping: Shaping::default(),
            account: Account::default(),
        }
    }

    /// Takes new settings over. Returns members that lack something by them, which are due then.
    pub(crate) fn declare(&mut self, settings: JobSettings, due: Timestamp) -> Vec<Box<str>> {
        let before = std::mem::replace(&mut self.settings, settings);
        let lacks = |m: &Member, by: &JobSettings| m.lacks(by.rewarded, by.captured());
        let mut late = Vec::new();
        for (program, member) in self.groups.values_mut().flat_map(|g| &mut g.members) {
            if lacks(member, &self.settings) && !lacks(member, &before) {
                member.deadline = Some(due);
                late.push(program.clone());
            }
        }
        let keys: Vec<Box<str>> = self.groups.keys().cloned().collect();
        self.ready.clear();
        self.shaping.to_select.clear();
        self.shaping.watched.clear();
        for key in keys {
            self.file(&key);
        }
        late
    }

    /// Whether a group is known: queued, begun, ready, in a batch, or served not long ago.
    pub fn has_group(&self, key: &str) -> bool {
        self.groups.contains_key(key) || self.finished.contains(key)
    }

    pub(crate) fn submit(
        &mut self,
        key: &str,
        size: Option<u16>,
        content: Option<Box<str>>,
        domain: Option<Box<str>>,
    ) {
        if self.has_group(key) {
            return;
        }
        self.submitted += 1;
        let size = size.unwrap_or(self.settings.group_size);
        let place = Place {
            fresh: true,
            number: self.next_place(),
        };
        let mut group = Group::new(size, content, place);
        group.domain = domain;
        self.groups.insert(key.into(), group);
        self.file(key);
    }

    /// The end of the queue.
    pub(crate) fn next_place(&mut self) -> u64 {
        self.last_place = self.last_place.saturating_add(1).max(self.submitted);
        self.last_place
    }

    /// Why no program of any group may begin, if none may.
    pub fn waits_for_weights(&self) -> Option<Wait> {
        let version = self.settings.floor(self.next_batch);
        let is_old = self.version.is_none_or(|held| held < version);
        is_old.then_some(Wait::Weights { version })
    }

    /// Why no program of this group may begin, if none may. A group that has begun gets all its
    /// members, or it would never be ready.
    pub fn wait(&self, key: &str) -> Option<Wait> {
        let is_unsized = || self.groups.get(key).is_some_and(|g| self.is_unsized(g));
        let waits = self.wait_for_others(key);
        waits.or_else(|| is_unsized().then_some(Wait::Policy))
    }

    /// Why no program of this group may begin, apart from the policy.
    pub(crate) fn wait_for_others(&self, key: &str) -> Option<Wait> {
        let has_begun = self.groups.get(key).is_some_and(|g| !g.members.is_empty());
        let waits = self.waits_for_weights();
        waits.or_else(|| self.waits_for_place().filter(|_| !has_begun))
    }

    /// Why no further group may begin, if none may: enough have begun, or the batches that they
    /// fill come first, and what engines sample now would be too old for the one after them.
    pub fn waits_for_place(&self) -> Option<Wait> {
        let (groups, begun) = (self.settings.begun_max(), self.begun.len());
        if begun >= groups {
            return Some(Wait::Trainer { groups });
        }
        let filled = begun as u64 / u64::from(self.settings.batch_groups);
        let version = self.settings.floor(self.next_batch.saturating_add(filled));
        let is_old = self.version.is_none_or(|held| held < version);
        is_old.then_some(Wait::Weights { version })
    }

    /// Groups that need programs, those that have begun first, with how many they need.
    pub fn wanted(&self) -> impl Iterator<Item = (&str, usize)> {
        let open = self.open.iter().map(|(_, _, key)| &**key);
        open.filter_map(|key| Some((key, self.groups.get(key)?.missing())))
    }

    /// The first group that needs more programs than wait for it already.
    pub fn next_wanted(&self) -> Option<&str> {
        let waiting = |key: &str| self.held.get(key).map_or(0, BTreeMap::len);
        let mut wanted = self.wanted();
        wanted.find_map(|(key, missing)| (missing > waiting(key)).then_some(key))
    }

    /// Takes a group out of the indexes before it changes; [`Job::file`] puts it back.
    pub(crate) fn withdraw(&mut self, key: &str) {
        let Some(group) = self.groups.get(key) else {
            return;
        };
        let is_new = group.members.is_empty();
        self.open.remove(&(is_new, group.place, key.into()));
        if let Some(version) = group.version() {
            self.begun.remove(&(version, key.into()));
            self.ready.remove(&(version, group.place, key.into()));
        }
        self.shaping.to_select.remove(key);
        self.shaping.watched.remove(key);
    }

    /// Puts a group into the indexes.
    pub(crate) fn file(&mut self, key: &str) {
        let Some(group) = self.groups.get(key).filter(|group| !group.stale) else {
            return;
        };
        if group.takes_members() {
            let is_new = group.members.is_empty();
            self.open.insert((is_new, group.place, key.into()));
        }
        if let Some(version) = group.version() {
            if self.is_ready(group) {
                self.ready.insert((version, group.place, key.into()));
            } else if self.needs_selection(group) {
                self.shaping.to_select.insert(key.into());
            } else if group.is_watched() {
                self.shaping.watched.insert(key.into());
            }
            self.begun.insert((version, key.into()));
        }
        self.notice_ends(key);
    }

    pub(crate) fn begin(
        &mut self,
        key: &str,
        program: &str,
        now: Timestamp,
        deadline: Timestamp,
        direct: bool,
    ) {
        let version = self.version.unwrap_or_default();
        self.withdraw(key);
        if let Some(group) = self.groups.get_mut(key) {
            let member = Member::begun(version, now, deadline, direct);
            group.members.insert(program.into(), member);
            if group.shape.sampled == 0 {
                group.shape.set_sampled(group.size);
            }
            self.account.begun(group.domain.as_deref());
        }
        self.file(key);
    }

    /// Changes a member, and finds out whether its group is ready then.
    pub(crate) fn change(
        &mut self,
        key: &str,
        program: &str,
        change: impl FnOnce(&mut Member),
    ) -> Vec<TrainingCommand> {
        self.withdraw(key);
        let group = self.groups.get_mut(key);
        if let Some(member) = group.and_then(|g| g.members.get_mut(program)) {
            change(member);
        }
        self.file(key);
        self.drop_if_over(key)
    }

    /// Removes a member; a group that has lost too many returns to the queue.
    pub(crate) fn lose(
        &mut self,
        key: &str,
        program: &str,
        end: End,
        cause: Option<&str>,
    ) -> Vec<TrainingCommand> {
        self.withdraw(key);
        let mut commands = Vec::new();
        let mut has_failed = false;
        if let Some(group) = self.groups.get_mut(key)
            && let Some(member) = group.members.remove(program)
        {
            group.failures += 1;
            group.lost_one();
            has_failed = !group.stale && group.failures > self.settings.failures_max;
            commands.push(self.drop_member(key, program, &member, end, cause));
        }
        self.file(key);
        if has_failed {
            let group = self.groups.get_mut(key);
            let failed = group.map_or(0, |group| {
                group.failed += 1;
                group.failed
            });
            commands.extend(self.put_back(key));
            if failed > FAILED_MAX {
                self.withdraw(key);
                self.groups.remove(key);
                self.finished.insert(key, KEYS_MAX);
                self.account.never_served += 1;
            }
        }
        commands.extend(self.drop_if_over(key));
        commands
    }

    /// Counts a member of a known group that is not trained, and remembers why.
    pub(crate) fn drop_member(
        &mut self,
        key: &str,
        program: &str,
        member: &Member,
        end: End,
        cause: Option<&str>,
    ) -> TrainingCommand {
        let of_capture = member.incomplete.as_deref();
        let cause = cause.or(of_capture.filter(|_| end == End::CaptureFailed));
        let lost = Lost {
            group: key.into(),
            program: program.into(),
            end,
            cause: cause.map(bounded),
        };
        remember(&mut self.lost, lost.clone());
        let domain = self.groups.get(key).and_then(|g| g.domain.as_deref());
        self.account.lost(domain, member, end);
        TrainingCommand::DropMember {
            program: program.into(),
            running: member.end.is_none() && end.is_by_core(),
            lost: Some(Box::new(lost)),
        }
    }

    /// Removes a member whose program never came to a step: its client left.
    pub(crate) fn forget(&mut self, key: &str, program: &str) -> Vec<TrainingCommand> {
        self.withdraw(key);
        if let Some(group) = self.groups.get_mut(key) {
            group.members.remove(program);
            group.forget_shape();
        }
        self.file(key);
        self.drop_if_over(key)
    }

    /// Drops all members of a group and queues its prompt again, before those that never began.
    pub(crate) fn put_back(&mut self, key: &str) -> Vec<TrainingCommand> {
        self.withdraw(key);
        let Some(group) = self.groups.get_mut(key) else {
            return Vec::new();
        };
        group.failures = 0;
        group.shape.clear();
        group.place.fresh = false;
        self.account.returned += 1;
        let members = std::mem::take(&mut group.members);
        let dropped = members
            .iter()
            .map(|(program, member)| self.drop_member(key, program, member, End::Cut, None));
        let dropped = dropped.collect();
        self.file(key);
        dropped
    }

    /// Whether a group can be served: each of its members ended well and has what the job waits
    /// for.
    pub fn is_ready(&self, group: &Group) -> bool {
        let is_selected = !group.shape.by_policy || group.shape.selected;
        !group.stale
            && is_selected
            && group.missing() == 0
            && group.members.values().all(|member| self.is_whole(member))
    }

    /// Whether a member ended well and has what the job waits for.
    pub(crate) fn is_whole(&self, member: &Member) -> bool {
        member.has_ended_well()
            && (!self.settings.rewarded || member.reward.is_some())
            && (!self.settings.captured() || member.sample.is_some())
    }
}
