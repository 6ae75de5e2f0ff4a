//! Shares of resources. Jobs whose names have the same prefix are a group
//! ([`treadle_model::tenant::prefix_of`]). If several groups share resources, what the started
//! actions of one hold of each is limited, because it can't be taken back from an action that runs
//! for a day; and groups take turns, so that one with a long queue does not keep others from
//! theirs.

use crate::Actions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of groups with a share of their own; further ones get an equal share.
const GROUPS_MAX: usize = 4_096;

/// Limits on what groups may hold.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Each resource is divided into this number of equal parts; a group may hold one.
    pub parts: u64,
    /// Groups with another share, in hundredths, by their prefix.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percent: BTreeMap<Box<str>, u64>,
}

impl Shares {
    /// The most that a group may hold of a resource with `total` units: at least one, so that it
    /// can make progress.
    pub fn most(&self, group: &str, total: u64) -> u64 {
        let most = match self.percent.get(group) {
            Some(percent) => u128::from(total) * u128::from(*percent) / 100,
            None => u128::from(total / self.parts.max(1)),
        };
        u64::try_from(most)
            .unwrap_or(u64::MAX)
            .clamp(1, total.max(1))
    }

    pub(crate) fn within_bounds(&mut self) {
        while self.percent.len() > GROUPS_MAX {
            self.percent.pop_last();
        }
    }
}

/// What started actions of a group hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Holdings {
    /// Number of started actions.
    pub(crate) started: u64,
    /// Units by resource name.
    pub(crate) units: BTreeMap<Box<str>, u64>,
}

impl Actions {
    /// Sets the limits; started actions keep what they hold.
    pub(crate) fn shares_set(&mut self, shares: Option<&Shares>) {
        if self.state.shares.as_ref() == shares {
            return;
        }
        self.state.shares = shares.cloned();
        if shares.is_none() {
            self.state.turns.clear();
        }
        // The open question was about the previous candidates.
        self.drop_ask();
        self.look_again();
    }

    /// Records that a group had its turn at a resource.
    pub(crate) fn had_turn(&mut self, group: &str, resource: &str) {
        if self.state.shares.is_none() {
            return;
        }
        let turn = self.state.counters.started;
        let of_group = self.state.turns.entry(group.into()).or_default();
        of_group.insert(resource.into(), turn);
    }

    /// When a group had its last turn at a resource; a smaller number is longer ago.
    pub(crate) fn turn_of(&self, group: &str, pool: u32) -> u64 {
        let pool = self.state.pools.get(pool as usize);
        let of_group = self.state.turns.get(group);
        let turn = of_group
            .zip(pool)
            .and_then(|(turns, pool)| turns.get(&pool.resource.name));
        turn.copied().unwrap_or(0)
    }

    /// The most that a group may hold of a resource with `total` units.
    pub(crate) fn most_of(&self, group: &str, total: u64) -> u64 {
        let shares = self.state.shares.as_ref();
        shares.map_or(total, |shares| shares.most(group, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_parts_or_what_is_said_and_one_unit_at_least() {
        let percent = BTreeMap::from([("big".into(), 50), ("all".into(), 100), ("none".into(), 0)]);
        let shares = Shares { parts: 3, percent };
        for (group, total, most) in [
            ("", 6, 2),
            ("", 7, 2),
            ("", 2, 1),
            ("", 0, 1),
            ("", u64::MAX, u64::MAX / 3),
            ("big", 6, 3),
            ("all", u64::MAX, u64::MAX),
            ("none", 6, 1),
        ] {
            assert_eq!(shares.most(group, total), most, "{group:?} of {total}");
        }
    }
}
