//! Columns that a policy gets beyond those of its world's records.

use treadle_model::World;
use treadle_policy_runtime::{Description, columns_of};

/// The columns that a policy asks for, as indices into those of its world. None for reward, which
/// only clients ask, with columns of their own, and for clients' questions to allocation. Uploads
/// that ask for unknown columns are refused.
pub(crate) fn extra_columns(world: World, description: &Description) -> Vec<usize> {
    let known = columns_of(world).unwrap_or_default();
    let index = |name: &String| known.iter().position(|known| known == name);
    description.columns.iter().filter_map(index).collect()
}
