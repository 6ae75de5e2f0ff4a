//! Columns that a policy is given beyond those of its world's records.

use treadle_model::World;
use treadle_policy_runtime::{Description, columns_of};

/// The columns that a policy asks for, as indices into those of its world. Policies of reward
/// are asked by clients, with columns of their own, and so are those of allocation beside what the
/// scheduler asks them. An upload that asks for unknown ones was refused.
pub(crate) fn extra_columns(world: World, description: &Description) -> Vec<usize> {
    let known = columns_of(world).unwrap_or_default();
    let index = |name: &String| known.iter().position(|known| known == name);
    description.columns.iter().filter_map(index).collect()
}
