//! Columns that a policy is given beyond those of its world's contract.

use crate::columns::EXTRA_COLUMNS;
use crate::evaluator::COST_COLUMNS;
use treadle_model::World;

/// The configuration names an extra column that no program has.
#[derive(Debug, thiserror::Error)]
#[error("the configuration's `extra` names `{name}`, which the daemon does not know; {}", known_columns(*.world, .known))]
pub struct UnknownColumn {
    /// The name.
    pub name: String,
    /// The policy's world.
    pub world: World,
    /// The extra columns that its policies may be given.
    pub known: &'static [&'static str],
}

fn known_columns(world: World, known: &[&str]) -> String {
    if known.is_empty() {
        return format!("policies of the world `{world}` are given no extra columns: leave it out");
    }
    format!("it knows {}", known.join(", "))
}

/// The extra columns that a configuration names, which this daemon must know.
/// Policies of allocation and reward are asked by clients, with columns of their
/// own.
pub fn extra_columns(world: World, config: &str) -> Result<Vec<usize>, UnknownColumn> {
    #[derive(serde::Deserialize, Default)]
    struct Named {
        #[serde(default)]
        extra: Vec<String>,
    }
    let known: &[&str] = match world {
        World::Prediction => &EXTRA_COLUMNS,
        World::Eviction => &COST_COLUMNS,
        World::Priority | World::Placement => &[],
        World::Allocation | World::Reward => return Ok(Vec::new()),
    };
    // Further errors in it are the policy's to report.
    let named: Named = serde_json::from_str(config).unwrap_or_default();
    let index = |name: String| {
        let at = known.iter().position(|known| *known == name);
        at.ok_or(UnknownColumn { name, world, known })
    };
    named.extra.into_iter().map(index).collect()
}
