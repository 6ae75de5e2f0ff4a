//! Policies of any world: compiled, and running.

use std::sync::{Arc, OnceLock};

use treadle_model::World;
use wasmtime::component::{Component, InstancePre};

use crate::call::CallContext;
use crate::engine::Core;
use crate::error::{LoadError, PolicyFault};
use crate::instance::{Bindings, Description, Instance, Lifecycle};
use crate::log_sink::LogSink;
use crate::policy_log::{LogLine, PolicyLog};
use crate::sandbox::{Belongings, Sandbox};
use crate::schema;
use crate::state::BindingState;
use crate::worlds::allocation::{self, AllocationInstance};
use crate::worlds::eviction::{self, EvictionInstance};
use crate::worlds::placement::{self, PlacementInstance};
use crate::worlds::prediction::{self, PredictionInstance};
use crate::worlds::priority::{self, PriorityInstance};
use crate::worlds::reward::{self, RewardInstance};
use crate::worlds::shaping::{self, ShapingInstance};
use crate::worlds::world_of;

/// The start parameters of an instance.
#[derive(Debug, Clone)]
pub struct InstanceOptions {
    /// The configuration, a JSON object. Default `{}`.
    pub config_json: String,
    /// The binding's seed of its random streams. Default 0.
    pub seed: u64,
    /// The binding's stored state; empty at first.
    pub state: BindingState,
    /// A predecessor's snapshot; empty for none. A policy that does not accept it starts without
    /// it, which is logged.
    pub snapshot: Vec<u8>,
    /// A further destination of log lines.
    pub log_sink: Option<LogSink>,
}

impl Default for InstanceOptions {
    fn default() -> Self {
        Self::configured("{}")
    }
}

impl InstanceOptions {
    /// Only a configuration; everything else is the default.
    pub fn configured(config_json: impl Into<String>) -> Self {
        Self {
            config_json: config_json.into(),
            seed: 0,
            state: BindingState::default(),
            snapshot: Vec::new(),
            log_sink: None,
        }
    }
}

/// A compiled policy. Cheap to clone; starts any number of instances.
#[derive(Clone)]
pub struct PolicyModule {
    core: Arc<Core>,
    prepared: Prepared,
    description: Arc<OnceLock<Description>>,
}

impl PolicyModule {
    /// Wraps code that was compiled for this engine.
    pub(crate) fn of(core: &Arc<Core>, component: &Component) -> Result<Self, LoadError> {
        let ty = component.component_type();
        let mut exports = ty.exports(&core.engine).map(|(name, _)| name);
        let world = exports
            .find_map(world_of)
            .ok_or_else(|| LoadError::Component("it exports no world's interface".to_owned()))?;
        let prepared = core
            .linker
            .instantiate_pre(component)
            .and_then(|linked| Prepared::new(world, linked))
            .map_err(|error| LoadError::Component(format!("{error:#}")))?;
        Ok(Self {
            core: Arc::clone(core),
            prepared,
            description: Arc::default(),
        })
    }

    /// The policy's description. Starts an instance the first time.
    ///
    /// # Errors
    /// The policy fails to start with its defaults.
    pub fn description(&self) -> Result<&Description, LoadError> {
        if let Some(known) = self.description.get() {
            return Ok(known);
        }
        let instance = self.start(&InstanceOptions::default())?;
        Ok(self
            .description
            .get_or_init(|| instance.description().clone()))
    }

    /// Its world.
    pub fn world(&self) -> World {
        self.prepared.world()
    }

    /// Starts an instance.
    ///
    /// # Errors
    /// The configuration does not fit the policy's schema, the policy refuses it, or it fails to
    /// start.
    pub fn instance(&self, options: &InstanceOptions) -> Result<PolicyInstance, LoadError> {
        let limits = &self.core.limits;
        let (found, max) = (options.config_json.len(), limits.config_bytes_max);
        if found > max {
            return Err(LoadError::ConfigTooLarge { found, max });
        }
        let (found, max) = (options.snapshot.len(), limits.snapshot_bytes_max);
        if found > max {
            return Err(LoadError::SnapshotTooLarge { found, max });
        }
        let schema = &self.description()?.config_schema;
        schema::check(schema, &options.config_json).map_err(LoadError::Config)?;
        self.start(options)
    }

    fn start(&self, options: &InstanceOptions) -> Result<PolicyInstance, LoadError> {
        let limits = &self.core.limits;
        let belongings = Belongings {
            log: PolicyLog::new(limits, options.log_sink.clone()),
            state: options.state.clone(),
            config_json: options.config_json.as_str().into(),
            seed: options.seed,
            fuel_used: 0,
        };
        let snapshot = options.snapshot.clone();
        // Starting includes configuring, the only part that answers with an error.
        self.prepared
            .start(&self.core, belongings, snapshot)
            .map_err(|fault| match fault {
                PolicyFault::PolicyError(message) => LoadError::Config(message),
                other => LoadError::Fault(other),
            })
    }
}

macro_rules! policies {
    ($($variant:ident: $world:ident, $instance:ident, $as_mut:ident;)*) => {
        #[derive(Clone)]
        enum Prepared {
            $($variant(<$world::Guest as Bindings>::Pre),)*
        }

        impl Prepared {
            fn new(world: World, linked: InstancePre<Sandbox>) -> wasmtime::Result<Self> {
                Ok(match world {
                    $(World::$variant => Self::$variant($world::Guest::prepare(linked)?),)*
                })
            }

            fn world(&self) -> World {
                match self {
                    $(Self::$variant(_) => World::$variant,)*
                }
            }

            fn start(
                &self,
                core: &Arc<Core>,
                belongings: Belongings,
                snapshot: Vec<u8>,
            ) -> Result<PolicyInstance, PolicyFault> {
                let core = Arc::clone(core);
                Ok(match self {
                    $(Self::$variant(pre) => {
                        let pre = pre.clone();
                        let instance = Instance::start(core, pre, belongings, snapshot)?;
                        PolicyInstance::$variant($instance(instance))
                    })*
                })
            }
        }

        /// A running policy. Called synchronously by one thread at a time.
        pub enum PolicyInstance {
            $(
                #[doc = concat!("A policy of the world `", stringify!($world), "`.")]
                $variant($instance),
            )*
        }

        impl PolicyInstance {
            $(
                #[doc = concat!("The instance to call, if its world is `", stringify!($world), "`.")]
                pub fn $as_mut(&mut self) -> Option<&mut $instance> {
                    match self {
                        Self::$variant(instance) => Some(instance),
                        _ => None,
                    }
                }
            )*

            /// Its world.
            pub fn world(&self) -> World {
                match self {
                    $(Self::$variant(_) => World::$variant,)*
                }
            }

            fn alike(&self) -> &dyn Lifecycle {
                match self {
                    $(Self::$variant(instance) => &instance.0,)*
                }
            }

            fn alike_mut(&mut self) -> &mut dyn Lifecycle {
                match self {
                    $(Self::$variant(instance) => &mut instance.0,)*
                }
            }

            /// The binding's stored state, for its successor.
            pub fn into_state(self) -> BindingState {
                match self {
                    $(Self::$variant(instance) => instance.0.into_state(),)*
                }
            }
        }
    };
}

policies! {
    Prediction: prediction, PredictionInstance, as_prediction_mut;
    Priority: priority, PriorityInstance, as_priority_mut;
    Placement: placement, PlacementInstance, as_placement_mut;
    Allocation: allocation, AllocationInstance, as_allocation_mut;
    Eviction: eviction, EvictionInstance, as_eviction_mut;
    Reward: reward, RewardInstance, as_reward_mut;
    Shaping: shaping, ShapingInstance, as_shaping_mut;
}

impl PolicyInstance {
    /// The policy's description.
    pub fn description(&self) -> &Description {
        self.alike().description()
    }

    /// Number of replacements, after faults or for its memory.
    pub fn restarts(&self) -> u64 {
        self.alike().restarts()
    }

    /// Its present linear memory; 0 while it waits to be replaced.
    pub fn memory_bytes(&self) -> usize {
        self.alike().memory_bytes()
    }

    /// The last lines of the policy's log.
    pub fn log_lines(&self) -> Vec<LogLine> {
        self.alike().log_lines()
    }

    /// The binding's stored state.
    pub fn state(&self) -> &BindingState {
        static EMPTY: BindingState = BindingState::EMPTY;
        self.alike().state().unwrap_or(&EMPTY)
    }

    /// Sets the stored state, from another version of the policy.
    pub fn set_state(&mut self, state: BindingState) {
        self.alike_mut().set_state(state);
    }

    /// Fuel used so far by all calls and starts; `None` unless the engine is
    /// deterministic.
    pub fn fuel_used(&self) -> Option<u64> {
        self.alike().fuel_used()
    }

    /// Starts the replacement of a dropped instance, so that the next call need not wait for it.
    /// Does nothing while the instance runs.
    ///
    /// # Errors
    /// A fault of the start; the next call tries again.
    pub fn warm(&mut self, context: &CallContext) -> Result<(), PolicyFault> {
        self.alike_mut().warm(context)
    }

    /// The policy's learnt state; empty if it keeps none. A replacement of this instance starts
    /// with the last snapshot that was taken or restored.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn snapshot(&mut self, context: &CallContext) -> Result<Vec<u8>, PolicyFault> {
        self.alike_mut().snapshot(context)
    }

    /// Restores a predecessor's learnt state.
    ///
    /// # Errors
    /// A fault, or [`PolicyFault::PolicyError`] if the policy cannot read it: it continues without.
    pub fn restore(&mut self, context: &CallContext, snapshot: &[u8]) -> Result<(), PolicyFault> {
        self.alike_mut().restore(context, snapshot)
    }
}
