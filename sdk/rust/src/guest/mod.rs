//! The guest's side of the component boundary. Used by the macros of the worlds; not for direct
//! use.
//!
//! Each world has a `Guest<P>` that implements the exports for any policy `P`, so the macros only
//! have to name the policy. The macros exist in every build, the rest only in guests.

mod export;

#[cfg(target_family = "wasm")]
pub mod allocation;
#[cfg(target_family = "wasm")]
pub mod eviction;
#[cfg(target_family = "wasm")]
pub mod host;
#[cfg(target_family = "wasm")]
pub mod placement;
#[cfg(target_family = "wasm")]
pub mod plugin;
#[cfg(target_family = "wasm")]
pub mod prediction;
#[cfg(target_family = "wasm")]
pub mod priority;
#[cfg(target_family = "wasm")]
pub mod reward;
#[cfg(target_family = "wasm")]
pub mod shaping;
#[cfg(target_family = "wasm")]
mod slot;

#[cfg(target_family = "wasm")]
pub use slot::{Exported, Slot};

/// Generates the bindings of one part of a world, as the module `raw`.
#[cfg(target_family = "wasm")]
macro_rules! bindings {
    ($part:literal, $module:literal, { $($with:tt)* }) => {
        /// The generated bindings.
        pub mod raw {
            #![allow(
                unsafe_code,
                missing_docs,
                unreachable_pub,
                unused_imports,
                clippy::all,
                clippy::pedantic
            )]
            wit_bindgen::generate!({
                path: "wit",
                world: $part,
                pub_export_macro: true,
                generate_unused_types: true,
                default_bindings_module: $module,
                with: { $($with)* },
            });
        }
    };
    // All parts share the types of the part `plugin`.
    ($part:literal, $module:literal) => {
        $crate::guest::bindings!($part, $module, {
            "treadle:policy/types@1.0.0": crate::guest::plugin::raw::treadle::policy::types,
        });
    };
}

/// The columns of a record of the contract, lent to a policy.
#[cfg(target_family = "wasm")]
macro_rules! lent {
    ($columns:ident of $given:ident { $($field:ident),* } $(beside { $($beside:ident),* })?) => {
        $crate::$columns {
            $($field: &$given.$field,)*
            $($($beside: $given.$beside,)*)?
        }
    };
}

#[cfg(target_family = "wasm")]
pub(crate) use {bindings, lent};
