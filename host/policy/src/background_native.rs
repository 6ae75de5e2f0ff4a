//! The worlds that clients ask, answered by either build of a policy: a sandboxed instance, or the
//! natively linked reference policy that is the built-in default.

use default_allocation::DefaultAllocation;
use default_prediction::DefaultPrediction;
use default_reward::DefaultReward;
use treadle_plugin::{
    AllocationPolicy, Estimates, Policy, PolicyError, PredictionPolicy, RewardPolicy, Scores,
};
use treadle_policy_runtime::{
    ActionColumns, AllocationInstance, AnswerColumns, CallContext, FinishedColumns, LiveColumns,
    ParallelismColumns, PolicyFault, PredictionInstance, RewardInstance,
};

/// The built-in defaults.
pub(crate) struct Native {
    pub(super) prediction: DefaultPrediction,
    pub(super) allocation: DefaultAllocation,
    pub(super) reward: DefaultReward,
}

impl Native {
    /// The built-in defaults with their default configurations.
    pub(super) fn new() -> Result<Self, PolicyError> {
        Ok(Self {
            prediction: DefaultPrediction::configure("{}")?,
            allocation: DefaultAllocation::configure("{}")?,
            reward: DefaultReward::configure("{}")?,
        })
    }
}

fn fault(error: &PolicyError) -> PolicyFault {
    if error.is_not_supported() {
        return PolicyFault::NotSupported;
    }
    PolicyFault::PolicyError(error.to_string())
}

fn bad_input(error: PolicyError) -> PolicyFault {
    let detail = error.message;
    PolicyFault::BadInput { detail }
}

/// A trait of one world, implemented by an instance and by its default.
macro_rules! answered {
    ($(#[$doc:meta])* $name:ident: $instance:ty, $native:ty as $policy:ident {
        $($function:ident($columns:ident $($extra:literal)?) -> $answer:ty;)*
    }) => {
        $(#[$doc])*
        pub(super) trait $name {
            $(fn $function(
                &mut self,
                context: &CallContext,
                columns: &$columns<'_>,
            ) -> Result<$answer, PolicyFault>;)*
        }

        impl $name for $instance {
            $(fn $function(
                &mut self,
                context: &CallContext,
                columns: &$columns<'_>,
            ) -> Result<$answer, PolicyFault> {
                <$instance>::$function(self, context, columns)
            })*
        }

        impl $name for $native {
            $(fn $function(
                &mut self,
                _: &CallContext,
                columns: &$columns<'_>,
            ) -> Result<$answer, PolicyFault> {
                columns.check($($extra)?).map_err(bad_input)?;
                $policy::$function(self, columns).map_err(|error| fault(&error))
            })*
        }
    };
}

answered! {
    /// The world `prediction`.
    Prediction: PredictionInstance, DefaultPrediction as PredictionPolicy {
        predict(LiveColumns 0) -> Estimates;
        learn(FinishedColumns 0) -> ();
    }
}

answered! {
    /// The world `allocation`.
    Allocation: AllocationInstance, DefaultAllocation as AllocationPolicy {
        arrange(ActionColumns 0) -> Vec<i32>;
        parallelism(ParallelismColumns) -> Vec<u32>;
    }
}

answered! {
    /// The world `reward`.
    Reward: RewardInstance, DefaultReward as RewardPolicy {
        score(AnswerColumns 0) -> Scores;
    }
}
