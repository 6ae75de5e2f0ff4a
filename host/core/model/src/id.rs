//! Numeric ids, handed out in increasing order and never used twice.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// One agent program (trajectory). Clients know it by its key, a string.
    ProgramId, u64, "p"
);
id!(
    /// One LLM call of a program.
    StepId, u64, "s"
);
id!(
    /// A daemon that takes requests in for a scheduler in another process; 0
    /// is the scheduler's own. A process never takes the id of another one.
    GatewayId, u32, "g"
);
id!(
    /// One inference engine endpoint.
    WorkerId, u32, "w"
);
id!(
    /// One action that treadle runs for a program.
    ActionId, u64, "x"
);
id!(
    /// One question put to a policy.
    AskId, u64, "a"
);

/// Bits of a step's id that count the steps of one gateway. Ids stay below
/// 2^53, which JavaScript's numbers hold exactly.
const STEP_COUNTER_BITS: u32 = 33;
/// Most gateways that ever were.
pub const GATEWAYS_MAX: u32 = 1 << 20;

impl GatewayId {
    /// The gateway within the scheduler's own process.
    pub const LOCAL: Self = Self(0);
}

impl StepId {
    /// The `counter`th step of a gateway.
    pub const fn of(gateway: GatewayId, counter: u64) -> Self {
        Self(((gateway.0 as u64) << STEP_COUNTER_BITS) | counter)
    }

    /// The gateway that took it in.
    pub const fn gateway(self) -> GatewayId {
        GatewayId((self.0 >> STEP_COUNTER_BITS) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_id_names_its_gateway_and_is_exact_in_javascript() {
        let last = StepId::of(GatewayId(GATEWAYS_MAX - 1), (1 << STEP_COUNTER_BITS) - 1);
        assert_eq!(last.gateway(), GatewayId(GATEWAYS_MAX - 1));
        assert!(last.0 < 1 << 53);
        assert_eq!(StepId::of(GatewayId::LOCAL, 7), StepId(7));
    }
}
