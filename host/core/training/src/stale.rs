//! Groups that are too old for the next batch.

use crate::command::TrainingCommand;
use crate::group::{End, Group, Member};
use crate::job::{Job, KEYS_MAX};
use crate::settings::Stale;

impl Job {
    /// Whether the next batch waits for a group that would be too old afterwards. Once its
    /// programs have ended, it waits only for what is still computed.
    pub(crate) fn is_waited_for(&self, group: &Group) -> bool {
        let waits =
            self.settings.stale == Stale::Wait || group.returned >= self.settings.starved_after;
        let runs = group.running().next().is_some();
        let is_complete =
            group.missing() == 0 && group.members.values().all(Member::has_ended_well);
        waits && !self.is_ready(group) && (runs || is_complete)
    }

    /// Takes groups that are too old for the next batch out.
    pub(crate) fn expire(&mut self) -> Vec<TrainingCommand> {
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
}
