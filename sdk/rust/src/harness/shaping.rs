//! Groups of training runs and their members, drawn at random, and the host's requirements on
//! answers about them.

use super::checks::{Check, length};
use super::draw;
use crate::random::SplitMix64;
use crate::shaping::{RUNNING, TRUNCATED};
use crate::{GroupColumns, MemberColumns};

/// Most members of a group that are trained.
const SIZE_MAX: u64 = 12;
/// Prompts are repeated, so that a policy meets known ones.
const PROMPTS: u64 = 32;

/// Groups.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    /// The prompt of each.
    pub prompt: Vec<u64>,
    /// Its domain, 0 without one.
    pub domain: Vec<u64>,
    /// Members that are trained.
    pub size: Vec<u32>,
    /// Most members that may be sampled.
    pub size_max: Vec<u32>,
    /// Members that are sampled; 0 before a policy was asked.
    pub sampled: Vec<u32>,
    /// How often members of the group were put off.
    pub postponed: Vec<u32>,
}

impl Groups {
    /// Draws groups that no policy was asked about.
    pub fn draw(random: &mut SplitMix64, rows: usize) -> Self {
        let mut table = Self::default();
        for _ in 0..rows {
            let size = 1 + draw::below(random, SIZE_MAX) as u32;
            table.prompt.push(draw::below(random, PROMPTS));
            table.domain.push(draw::below(random, 3));
            table.size.push(size);
            let factor = 1 + draw::below(random, 3) as u32;
            table.size_max.push(size * factor);
            table.sampled.push(0);
            table.postponed.push(draw::below(random, 3) as u32);
        }
        table
    }

    /// The columns for a policy.
    pub fn columns(&self) -> GroupColumns<'_> {
        GroupColumns {
            prompt: &self.prompt,
            domain: &self.domain,
            size: &self.size,
            size_max: &self.size_max,
            sampled: &self.sampled,
            postponed: &self.postponed,
        }
    }
}

/// Members of groups.
#[derive(Debug, Clone, Default)]
pub struct Members {
    /// The groups.
    pub groups: Groups,
    /// The row of each member's group.
    pub group: Vec<u32>,
    /// Whether it runs, or how it ended.
    pub state: Vec<u8>,
    /// Tokens that it has sampled.
    pub tokens: Vec<u64>,
    /// LLM calls finished.
    pub turns: Vec<u32>,
    /// Time since it began, in milliseconds.
    pub elapsed_ms: Vec<u64>,
    /// Its lag, in training steps.
    pub lag: Vec<u32>,
}

impl Members {
    /// Draws the members of groups that sample these sizes. Once `over`, each group has at least as
    /// many members as are trained, and none runs.
    pub fn draw(random: &mut SplitMix64, groups: Groups, sizes: &[u32], over: bool) -> Self {
        let mut table = Self {
            groups,
            ..Self::default()
        };
        table.groups.sampled = sizes.to_vec();
        for (row, sampled) in sizes.iter().enumerate() {
            let size = table.groups.size[row];
            let least = if over { size } else { 0 };
            let most = u64::from(sampled.saturating_sub(least));
            let members = least + draw::below(random, most + 1) as u32;
            for _ in 0..members {
                let states = u64::from(TRUNCATED - RUNNING);
                let ended = 1 + draw::below(random, states) as u8;
                let runs = !over && draw::below(random, 2) == 0;
                table.group.push(row as u32);
                table.state.push(if runs { RUNNING } else { ended });
                table.tokens.push(draw::amount(random));
                table.turns.push(draw::count(random));
                table.elapsed_ms.push(draw::amount(random));
                table.lag.push(draw::below(random, 4) as u32);
            }
        }
        table
    }

    /// The columns for a policy.
    pub fn columns(&self) -> MemberColumns<'_> {
        MemberColumns {
            group: &self.group,
            state: &self.state,
            tokens: &self.tokens,
            turns: &self.turns,
            elapsed_ms: &self.elapsed_ms,
            lag: &self.lag,
            batch_groups: 16,
            ready_groups: 3,
            groups: self.groups.columns(),
        }
    }
}

/// Sizes within their bounds.
pub(super) fn sizes(given: &[u32], groups: &GroupColumns<'_>) -> Check {
    length("size", given.len(), groups.len())?;
    let fits = |row: &usize| (groups.size[*row]..=groups.size_max[*row]).contains(&given[*row]);
    match (0..given.len()).find(|row| !fits(row)) {
        None => Ok(()),
        Some(row) => Err(format!(
            "size: {} in row {row}, expected {} to {}",
            given[row], groups.size[row], groups.size_max[row]
        )),
    }
}

/// As many members of each group as its size.
pub(super) fn selection(given: &[bool], members: &MemberColumns<'_>) -> Check {
    length("select", given.len(), members.len())?;
    for group in 0..members.groups.len() {
        let rows = members.of_group(group);
        let chosen = given[rows].iter().filter(|chosen| **chosen).count();
        let size = members.groups.size[group];
        if chosen != size as usize {
            return Err(format!(
                "select: {chosen} members of group {group}, expected {size}"
            ));
        }
    }
    Ok(())
}
