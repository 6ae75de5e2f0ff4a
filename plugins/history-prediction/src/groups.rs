//! The groups that were updated last, up to a limit.

use std::collections::BTreeMap;

use crate::figures::Figures;

/// Figures of groups by number, and numbers by the time of the last update.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    known: BTreeMap<u64, (u64, Figures)>,
    by_age: BTreeMap<u64, u64>,
    clock: u64,
}

impl Groups {
    pub(crate) fn get(&self, group: u64) -> Option<&Figures> {
        self.known.get(&group).map(|(_, figures)| figures)
    }

    /// The figures of a group, which becomes the newest. Beyond `groups_max` the oldest is
    /// forgotten.
    pub(crate) fn touch(&mut self, group: u64, groups_max: usize) -> &mut Figures {
        self.clock += 1;
        let clock = self.clock;
        let (touched, _) = self.known.entry(group).or_default();
        self.by_age.remove(touched);
        *touched = clock;
        self.by_age.insert(clock, group);
        while self.known.len() > groups_max.max(1) {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                break;
            };
            self.known.remove(&oldest);
        }
        &mut self.known.entry(group).or_default().1
    }

    /// All, the oldest first.
    pub(crate) fn oldest_first(&self) -> impl ExactSizeIterator<Item = (u64, &Figures)> {
        self.by_age
            .values()
            .map(|group| (*group, &self.known[group].1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_learnt_from_longest_ago_is_forgotten() {
        let mut groups = Groups::default();
        for group in [1, 2, 3, 1, 4] {
            groups.touch(group, 3).add(group as f64, 0.0, 10.0);
        }
        let kept: Vec<u64> = groups.oldest_first().map(|(group, _)| group).collect();
        assert_eq!(kept, [3, 1, 4]);
        assert_eq!(groups.get(2), None);
        assert_eq!(groups.get(1).map(|figures| figures.count), Some(2.0));
    }
}
