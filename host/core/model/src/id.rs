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
    /// One inference engine endpoint.
    WorkerId, u32, "w"
);
id!(
    /// One question put to a policy.
    AskId, u64, "a"
);
