//! Batches: which groups are in the next one, which are too old for it, and what becomes of batches
//! afterwards.

use crate::command::{ServedGroup, TrainingCommand};
use crate::event::MemberRef;
use crate::group::{End, Group, Member};
use crate::job::{Batch, Job, KEYS_MAX};
use crate::settings::Stale;
use std::collections::BTreeMap;

impl Job {
    /// Whether the next batch waits for a group that would be too old afterwards. Once its
    /// programs have ended, it waits only for what is still computed.
    fn is_waited_for(&self, group: &Group) -> bool {
        let waits =
            self.settings.stale == Stale::Wait || group.returned >= self.settings.starved_after;
        let runs = group.running().next().is_some();
        let is_full = group.members.len() >= usize::from(group.size);
        let is_complete = is_full && group.members.values().all(Member::has_ended_well);
        waits && !self.is_ready(group) && (runs || is_complete)
    }

    /// Cuts the next batch if the trainer waits for it and enough groups are ready.
    pub(crate) fn cut(&mut self, name: &str) -> Vec<TrainingCommand> {
        let mut commands = self.expire();
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
            for (key, group) in &batch.groups {
                self.finished.insert(key, KEYS_MAX);
                self.account.served(number, group);
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
        let floor = self.settings.floor(self.next_batch + 1);
        let old = self
            .begun
            .iter()
            .take_while(|(version, _)| *version < floor);
        let mut old = old.filter_map(|(_, key)| self.groups.get(key));
        if self.ready.len() < size || old.any(|group| self.is_waited_for(group)) {
            return None;
        }
        let mut groups = BTreeMap::new();
        while groups.len() < size {
            let (_, _, key) = self.ready.first().cloned()?;
            self.withdraw(&key);
            if let Some((key, mut group)) = self.groups.remove_entry(&key) {
                group.surplus.clear();
                groups.insert(key, group);
            }
        }
        Some(Batch {
            groups,
            trained: false,
        })
    }

    /// Takes groups that are too old for the next batch out.
    fn expire(&mut self) -> Vec<TrainingCommand> {
        let floor = self.settings.floor(self.next_batch);
        let mut commands = Vec::new();
        while let Some((version, key)) = self.begun.first().cloned()
            && version < floor
        {
            self.withdraw(&key);
            if let Some(group) = self.groups.get_mut(&key) {
                group.returned += 1;
                group.stale = self.settings.stale == Stale::Finish;
            }
            if self.settings.stale == Stale::Finish {
                commands.extend(self.drop_if_over(&key));
            } else {
                commands.extend(self.put_back(&key));
            }
        }
        commands
    }

    /// Forgets groups that are too old and that new settings expect nothing more from.
    pub(crate) fn drop_all_over(&mut self) -> Vec<TrainingCommand> {
        let stale = self.groups.iter().filter(|(_, group)| group.stale);
        let keys: Vec<Box<str>> = stale.map(|(key, _)| key.clone()).collect();
        let dropped = keys.iter().flat_map(|key| self.drop_if_over(key));
        dropped.collect()
    }

    /// Forgets a group that is too old, once nothing more is expected of it.
    pub(crate) fn drop_if_over(&mut self, key: &str) -> Vec<TrainingCommand> {
        let rewarded = self.settings.rewarded;
        let is_over = |group: &Group| {
            let is_done = |m: &Member| m.end.is_some() && (!rewarded || m.reward.is_some());
            group.stale && group.members.values().all(is_done)
        };
        if !self.groups.get(key).is_some_and(is_over) {
            return Vec::new();
        }
        self.account.never_served += 1;
        self.finished.insert(key, KEYS_MAX);
        let group = self.groups.get_mut(key);
        let members = group.map(|group| std::mem::take(&mut group.members));
        let members = members.unwrap_or_default();
        let dropped = members
            .iter()
            .map(|(program, member)| self.drop_member(key, program, member, End::Cut, None));
        let dropped = dropped.collect();
        self.groups.remove(key);
        dropped
    }

    /// A member of a batch keeps its place, without its sample.
    pub(crate) fn delete_served(&mut self, at: &MemberRef) {
        let groups = self
            .batches
            .values_mut()
            .filter_map(|batch| batch.groups.get_mut(&at.group));
        for member in groups.filter_map(|group| group.members.get_mut(&at.program)) {
            (member.sample, member.info) = (None, None);
            member.deleted = true;
        }
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
    /// not trained: groups with a token of a later version, or with one that may have.
    pub(crate) fn roll_back(&mut self, checkpoint: u64) -> Vec<TrainingCommand> {
        let newest = self.version.unwrap_or(u64::MAX);
        self.lineage += 1;
        (self.version, self.digest) = (None, None);
        self.rolled_back_to = checkpoint;
        for batch in self.batches.range_mut(checkpoint + 1..) {
            batch.1.trained = false;
        }
        let is_abandoned = |member: &Member| match member.end {
            Some(_) => member.newest > checkpoint,
            None => newest > checkpoint,
        };
        let begun = self.begun.iter().filter(|(_, key)| {
            let group = self.groups.get(key);
            group.is_some_and(|g| g.members.values().any(is_abandoned))
        });
        let abandoned: Vec<Box<str>> = begun.map(|(_, key)| key.clone()).collect();
        let put_back = abandoned.iter().flat_map(|key| self.put_back(key));
        put_back.collect()
    }
}
