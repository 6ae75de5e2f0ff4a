//! Invariants that hold after every event. Tests check them after each one; every sum is recomputed
//! from scratch.

use crate::Training;
use crate::group::Group;
use crate::job::Job;
use std::collections::{BTreeMap, BTreeSet};

impl Training {
    /// Panics with the first invariant that does not hold.
    pub(crate) fn check_invariants(&self) {
        let mut members = BTreeMap::new();
        for (name, job) in &self.state.jobs {
            job.assert_invariants();
            for (key, group) in &job.groups {
                for program in group.members.keys() {
                    let other = members.insert(program.clone(), (name.clone(), key.clone()));
                    assert_eq!(other, None, "{program}: member of one group");
                }
            }
        }
        assert_eq!(members, self.state.members, "members are found by program");
        for (program, held) in &self.state.held {
            let job = &self.state.jobs[&held.job];
            let takes = job.groups[&held.group].takes_members();
            assert!(takes, "{program}: waits to become a member");
            assert!(job.wait(&held.group).is_some(), "{program}: for a reason");
            let queued = &job.held[&held.group][&held.number];
            assert_eq!(queued, program, "{program}: is found by its group");
        }
        assert!(self.touched.is_empty(), "all jobs are settled");
    }
}

impl Job {
    fn assert_invariants(&self) {
        let has_begun = |g: &&Group| !g.stale && !g.members.is_empty();
        let begun = self.groups.values().filter(has_begun).count();
        assert_eq!(begun, self.begun.len(), "groups that have begun");
        let open = self.groups.iter().filter(|(_, g)| g.takes_members());
        let open: BTreeSet<_> = open
            .map(|(key, g)| (g.members.is_empty(), g.place, key.clone()))
            .collect();
        assert_eq!(open, self.open, "groups that need members");
        let floor = self.settings.floor(self.next_batch);
        for (key, group) in &self.groups {
            let is_young = group.stale || group.version().is_none_or(|v| v >= floor);
            assert!(is_young, "{key}: young enough for the next batch");
            let target = usize::from(group.shape.target.max(group.size));
            assert!(group.members.len() <= target, "{key}: not too many");
            let most = usize::from(group.shape.sampled.max(group.size));
            assert!(target <= most, "{key}: samples what was decided");
            let entry = (
                group.version().unwrap_or_default(),
                group.place,
                key.clone(),
            );
            assert_eq!(
                self.is_ready(group),
                self.ready.contains(&entry),
                "{key}: ready"
            );
        }
        self.assert_shaping();
        let batches: Vec<u64> = self.batches.keys().copied().collect();
        let expected: Vec<u64> = (self.checkpoint + 1..self.next_batch).collect();
        assert_eq!(batches, expected, "batches are numbered without gaps");
        for (number, batch) in &self.batches {
            for (key, group) in &batch.groups {
                let lag = (number - 1).saturating_sub(group.version().unwrap_or_default());
                assert!(lag <= self.account.lag, "{key}: its lag is on the account");
                assert!(!self.groups.contains_key(key), "{key}: served once");
                let size = usize::from(group.size);
                assert_eq!(group.members.len(), size, "{key}: trains its size");
                assert!(self.finished.contains(key), "{key}: is remembered");
            }
        }
    }

    fn assert_shaping(&self) {
        let keys = |of: &dyn Fn(&Group) -> bool| -> BTreeSet<Box<str>> {
            let groups = self.groups.iter().filter(|(_, group)| of(group));
            groups.map(|(key, _)| key.clone()).collect()
        };
        let to_select = keys(&|group| self.needs_selection(group));
        assert_eq!(to_select, self.shaping.to_select, "groups to select from");
        let watched = keys(&|group| group.is_watched());
        assert_eq!(watched, self.shaping.watched, "groups with members to end");
        let is_asked = self.shaping.ask.is_some();
        assert!(to_select.is_empty() || is_asked, "a selection is asked for");
    }
}
