//! The systems that are compared: which policy decides, and what each can do.

use super::Native;
use foresight_eviction::ForesightEviction;
use serde_json::json;
use thunderagent_eviction::ThunderAgentEviction;
use treadle_core::Mode;
use treadle_plugin::Policy;
use treadle_simulator::cluster::Answers;
use ttl_pin_eviction::TtlPinEviction;

/// What foresight's orders take into account.
const FORESIGHT_COLUMNS: &[&str] = &["price-ms", "remaining-tokens"];
/// The same with the mean rest of a call instead of its price.
const MEAN_COLUMNS: &[&str] = &["idle-ms", "remaining-tokens"];
/// What a learnt time to live takes into account.
const TTL_COLUMNS: &[&str] = &["idle-ms", "soonest-ms", "prefill-ms"];

/// Whose policy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// Plain routing asks no policy.
    NoPolicy,
    /// `thunderagent-eviction` with this configuration.
    ThunderAgent(&'static str),
    /// `ttl-pin-eviction` with this configuration, and the columns that it names.
    TtlPin(&'static str, &'static [&'static str]),
    /// `foresight-eviction` with this `restore` and these columns.
    Foresight(&'static str, &'static [&'static str]),
}

/// What a system can do beside deciding which programs wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Its policy is asked what becomes of caches.
    Retention,
    /// There is host memory to offload to.
    HostTier,
    /// Caches can be moved between engines.
    Migration,
    /// The ledger knows which prefixes are shared.
    Prefixes,
    /// No engine gets more prompts than it computes in two seconds.
    Backlog,
    /// Its policy knows when each tool call ends and what each program has yet to generate.
    Truth,
    /// Programs may be passed over for five minutes, as those of the other systems.
    Patience,
}

use Ability::{Backlog, HostTier, Migration, Patience, Prefixes, Retention, Truth};

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// Its name in figures.
    pub name: &'static str,
    /// How steps find their worker.
    pub mode: Mode,
    /// The policy that decides.
    pub decider: Decider,
    /// What it can do.
    pub abilities: &'static [Ability],
}

const PLAIN: System = System {
    name: "sticky",
    mode: Mode::Sticky,
    decider: Decider::NoPolicy,
    abilities: &[Prefixes],
};

/// A program stays on its engine, which evicts the least recently used blocks.
pub(super) const STICKY: System = PLAIN;

/// Each step goes to the engine with the fewest.
pub(super) const LEAST_LOAD: System = System {
    name: "least_load",
    mode: Mode::LeastLoad,
    ..PLAIN
};

const AWARE: System = System {
    mode: Mode::ProgramAware,
    ..PLAIN
};

/// The paper's own settings: weights halve every second, the shortest come back first
/// (`ThunderAgent`, Appendix E).
pub(super) const THUNDERAGENT: System = System {
    name: "thunderagent",
    decider: Decider::ThunderAgent(r#"{"profile": "paper"}"#),
    ..AWARE
};

/// The plugin's own default: tokens of a tool call count in full for a while, and the program that
/// has waited longest comes back first.
pub(super) const THUNDERAGENT_DEFAULT: System = System {
    name: "thunderagent.default",
    decider: Decider::ThunderAgent("{}"),
    ..AWARE
};

/// Times to live of the Continuum-like baseline; the one with the most steps a minute represents it
/// in each scenario, so that it is tuned to it.
pub const TTLS: [System; 5] = [
    ttl("ttl_pin.learnt", r#"{"ttl": "learnt"}"#, TTL_COLUMNS),
    ttl("ttl_pin.2s", r#"{"ttl_s": 2}"#, &[]),
    ttl("ttl_pin.10s", r#"{"ttl_s": 10}"#, &[]),
    ttl("ttl_pin.30s", r#"{"ttl_s": 30}"#, &[]),
    ttl("ttl_pin.60s", r#"{"ttl_s": 60}"#, &[]),
];

const fn ttl(name: &'static str, config: &'static str, extra: &'static [&'static str]) -> System {
    System {
        name,
        decider: Decider::TtlPin(config, extra),
        ..AWARE
    }
}

/// What treadle is compared with.
pub const BASELINES: [System; 9] = [
    LEAST_LOAD,
    STICKY,
    THUNDERAGENT,
    THUNDERAGENT_DEFAULT,
    TTLS[0],
    TTLS[1],
    TTLS[2],
    TTLS[3],
    TTLS[4],
];

/// All that treadle can do.
pub const FORESIGHT: System = System {
    name: "foresight",
    decider: Decider::Foresight("waiting", FORESIGHT_COLUMNS),
    abilities: &[Retention, HostTier, Migration, Prefixes, Backlog],
    ..AWARE
};

/// A daemon with its defaults: nowhere to offload or move caches to.
pub const NO_TIER: System = System {
    name: "foresight.no_tier",
    abilities: &[Retention, Prefixes, Backlog],
    ..FORESIGHT
};

/// The same if it knew the future, if it let programs wait for as long as the others do, and both:
/// what its predictions cost, and its bound on waits.
pub const LIMITS: [System; 3] = [
    System {
        name: "limit.truth",
        abilities: &[Retention, Prefixes, Backlog, Truth],
        ..NO_TIER
    },
    System {
        name: "limit.patience",
        abilities: &[Retention, Prefixes, Backlog, Patience],
        ..NO_TIER
    },
    System {
        name: "limit.both",
        abilities: &[Retention, Prefixes, Backlog, Truth, Patience],
        ..NO_TIER
    },
];

/// Foresight with one thing less, by what is missing.
pub const ABLATIONS: [System; 7] = [
    System {
        name: "without.prefixes",
        abilities: &[Retention, HostTier, Migration, Backlog],
        ..FORESIGHT
    },
    // A decay chooses the program that goes, and the core the cheapest way for it.
    System {
        name: "without.hazard",
        decider: Decider::ThunderAgent(
            r#"{"decay": "exponential", "half_life_s": 1, "hold_s": 0}"#,
        ),
        abilities: &[HostTier, Migration, Prefixes],
        ..FORESIGHT
    },
    System {
        name: "without.restore_order",
        decider: Decider::Foresight("shortest", FORESIGHT_COLUMNS),
        ..FORESIGHT
    },
    System {
        name: "without.price",
        decider: Decider::Foresight("waiting", MEAN_COLUMNS),
        ..FORESIGHT
    },
    System {
        name: "without.backlog",
        abilities: &[Retention, HostTier, Migration, Prefixes],
        ..FORESIGHT
    },
    System {
        name: "without.offload",
        abilities: &[Retention, Migration, Prefixes, Backlog],
        ..FORESIGHT
    },
    System {
        name: "without.migration",
        abilities: &[Retention, HostTier, Prefixes, Backlog],
        ..FORESIGHT
    },
];

impl System {
    /// Whether it can do this.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }

    /// A policy that has seen nothing yet.
    ///
    /// # Panics
    /// If a configuration of this file is invalid, which a test would have found.
    pub fn answers(&self) -> Box<dyn Answers> {
        let valid = "the configuration is valid";
        match self.decider {
            Decider::NoPolicy => Box::new(treadle_policy::native::NativeEviction::default()),
            Decider::ThunderAgent(config) => {
                let policy = ThunderAgentEviction::configure(config).expect(valid);
                Box::new(Native::new(policy, &[]))
            }
            Decider::TtlPin(config, extra) => {
                let policy = TtlPinEviction::configure(config).expect(valid);
                Box::new(Native::new(policy, extra))
            }
            Decider::Foresight(restore, columns) => {
                // Without the price a call must be expected to last for longer.
                let drop = if columns == MEAN_COLUMNS { 1.25 } else { 0.8 };
                let config = json!({ "restore": restore, "drop": drop });
                let policy = ForesightEviction::configure(&config.to_string()).expect(valid);
                Box::new(Native::new(policy, columns))
            }
        }
    }
}
