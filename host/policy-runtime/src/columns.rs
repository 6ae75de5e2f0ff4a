//! The columns that a policy can ask for beyond those of the records of its world.

use treadle_model::World;

/// Of prediction policies: what is known of a program. -1 where it is not known.
pub const PROGRAM_COLUMNS: [&str; 6] = [
    "prompt-tokens",
    "last-output-tokens",
    "last-tool-ok",
    "failed-tools",
    "returned",
    "ended",
];
/// The column `ended` among these: whether what remained of a program is all that there was, or
/// what there was at least. Policies that do not ask for it learn only from programs that ended.
pub const ENDED_COLUMN: usize = 5;

/// Of eviction policies: what caches are expected to cost. An unbounded time is infinite;
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

/// The columns that policies of a world can ask for; `None` where it is asked by clients, with
/// columns of their own.
pub fn columns_of(world: World) -> Option<&'static [&'static str]> {
    match world {
        World::Prediction => Some(&PROGRAM_COLUMNS),
        World::Eviction => Some(&COST_COLUMNS),
        World::Priority | World::Placement => Some(&[]),
        World::Allocation | World::Reward => None,
    }
}
