//! The macros that export a crate as a policy. They add nothing to a native build.

/// Exports a type as a component; used by the macros of the worlds.
#[doc(hidden)]
#[macro_export]
macro_rules! __export_policy {
    ($policy:ty, $trait:ident, $world:ident, $export:ident) => {
        #[cfg(target_family = "wasm")]
        mod treadle_guest {
            #![allow(unsafe_code, missing_docs, unused_imports, clippy::all, clippy::pedantic)]
            use super::*;
            use $crate::guest;

            ::std::thread_local! {
                static POLICY: guest::Slot<$policy> = const { guest::Slot::new() };
            }

            impl guest::Exported for $policy {
                const NAME: &'static str = env!("CARGO_PKG_NAME");
                const VERSION: &'static str = env!("CARGO_PKG_VERSION");
                const SUMMARY: &'static str = env!("CARGO_PKG_DESCRIPTION");
                const ANSWERED: &'static [&'static str] = <$policy as $crate::$trait>::FUNCTIONS;

                fn slot() -> &'static ::std::thread::LocalKey<guest::Slot<Self>> {
                    &POLICY
                }
            }

            type Plugin = guest::plugin::Guest<$policy>;
            type World = guest::$world::Guest<$policy>;

            $crate::__export_guest_plugin_impl!(Plugin with_types_in $crate::guest::plugin::raw);
            $crate::$export!(World with_types_in $crate::guest::$world::raw);
        }
    };
}

/// Exports a type that implements [`PredictionPolicy`](crate::PredictionPolicy) as a
/// component of the world `prediction`. Once per crate, at its root.
#[macro_export]
macro_rules! prediction_policy {
    ($policy:ty) => {
        $crate::__export_policy!(
            $policy,
            PredictionPolicy,
            prediction,
            __export_guest_prediction_impl
        );
    };
}

/// Exports a type that implements [`PriorityPolicy`](crate::PriorityPolicy) as a
/// component of the world `priority`. Once per crate, at its root.
#[macro_export]
macro_rules! priority_policy {
    ($policy:ty) => {
        $crate::__export_policy!(
            $policy,
            PriorityPolicy,
            priority,
            __export_guest_priority_impl
        );
    };
}

/// Exports a type that implements [`PlacementPolicy`](crate::PlacementPolicy) as a
/// component of the world `placement`. Once per crate, at its root.
#[macro_export]
macro_rules! placement_policy {
    ($policy:ty) => {
        $crate::__export_policy!(
            $policy,
            PlacementPolicy,
            placement,
            __export_guest_placement_impl
        );
    };
}

/// Exports a type that implements [`AllocationPolicy`](crate::AllocationPolicy) as a
/// component of the world `allocation`. Once per crate, at its root.
#[macro_export]
macro_rules! allocation_policy {
    ($policy:ty) => {
        $crate::__export_policy!(
            $policy,
            AllocationPolicy,
            allocation,
            __export_guest_allocation_impl
        );
    };
}

/// Exports a type that implements [`EvictionPolicy`](crate::EvictionPolicy) as a
/// component of the world `eviction`. Once per crate, at its root.
#[macro_export]
macro_rules! eviction_policy {
    ($policy:ty) => {
        $crate::__export_policy!(
            $policy,
            EvictionPolicy,
            eviction,
            __export_guest_eviction_impl
        );
    };
}

/// Exports a type that implements [`RewardPolicy`](crate::RewardPolicy) as a component
/// of the world `reward`. Once per crate, at its root.
#[macro_export]
macro_rules! reward_policy {
    ($policy:ty) => {
        $crate::__export_policy!($policy, RewardPolicy, reward, __export_guest_reward_impl);
    };
}

/// Exports a type that implements [`ShapingPolicy`](crate::ShapingPolicy) as a component
/// of the world `shaping`. Once per crate, at its root.
#[macro_export]
macro_rules! shaping_policy {
    ($policy:ty) => {
        $crate::__export_policy!($policy, ShapingPolicy, shaping, __export_guest_shaping_impl);
    };
}
