//! The columns that a policy can ask for beyond the records of its world.

use treadle_model::World;

/// Columns of prediction policies: data on a program, -1 if unknown.
pub const PROGRAM_COLUMNS: [&str; 6] = [
    "prompt-tokens",
    "last-output-tokens",
    "last-tool-ok",
    "failed-tools",
    "returned",
    "ended",
];
/// Index of the column `ended`: whether the remaining lengths of a program are exact or lower
/// limits. Policies that do not ask for it learn only from programs that ended.
pub const ENDED_COLUMN: usize = 5;

/// Columns of eviction policies: the expected costs of caches. An unbounded time is infinite;
/// predicted tokens are -1 without a prediction.
pub const COST_COLUMNS: [&str; 7] = [
    "idle-ms",
    "soonest-ms",
    "back-ms",
    "moved-ms",
    "prefill-ms",
    "remaining-tokens",
    "price-ms",
];

/// The columns that policies of a world can ask for; `None` if clients ask the world, with columns
/// of their own.
pub fn columns_of(world: World) -> Option<&'static [&'static str]> {
    match world {
        World::Prediction => Some(&PROGRAM_COLUMNS),
        World::Eviction => Some(&COST_COLUMNS),
        World::Priority | World::Placement | World::Shaping => Some(&[]),
        World::Allocation | World::Reward => None,
    }
}
