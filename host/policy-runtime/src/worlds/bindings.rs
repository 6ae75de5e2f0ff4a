//! The common part of all worlds' bindings.

/// Generates the bindings of a world, private to its file as the module `raw`, and the
/// handle of a running policy. `Guest` is the generated world.
macro_rules! world {
    ($(#[$meta:meta])* $instance:ident: $name:tt, $world:ident, $pre:ident) => {
        #[allow(missing_docs, unreachable_pub, clippy::pedantic)]
        mod raw {
            wasmtime::component::bindgen!({
                path: "../../wit",
                world: $name,
                // Records of columns that are passed to a guest borrow their columns.
                ownership: Borrowing { duplicate_if_necessary: false },
                with: {
                    "treadle:policy/types": crate::worlds::host::raw::treadle::policy::types,
                    "treadle:policy/host": crate::worlds::host::raw::treadle::policy::host,
                },
            });
        }

        impl $crate::instance::Bindings for raw::$world {
            type Pre = raw::$pre<Sandbox>;

            fn prepare(component: InstancePre<Sandbox>) -> wasmtime::Result<Self::Pre> {
                raw::$pre::new(component)
            }

            fn instantiate(pre: &Self::Pre, store: &mut Store<Sandbox>) -> wasmtime::Result<Self> {
                pre.instantiate(store)
            }

            fn describe(&self, store: &mut Store<Sandbox>) -> wasmtime::Result<Description> {
                let said = self.treadle_policy_plugin().call_describe(store)?;
                Ok(Description {
                    name: said.name,
                    version: said.version,
                    summary: said.summary,
                    functions: said.functions,
                    columns: said.columns,
                    config_schema: said.config_schema,
                })
            }

            fn configure(&self, store: &mut Store<Sandbox>, json: &str) -> Answer<()> {
                self.treadle_policy_plugin().call_configure(store, json)
            }

            fn snapshot(&self, store: &mut Store<Sandbox>) -> Answer<Vec<u8>> {
                self.treadle_policy_plugin().call_snapshot(store)
            }

            fn restore(&self, store: &mut Store<Sandbox>, snapshot: &[u8]) -> Answer<()> {
                self.treadle_policy_plugin().call_restore(store, snapshot)
            }
        }

        pub(crate) use raw::$world as Guest;

        $(#[$meta])*
        pub struct $instance(pub(crate) $crate::instance::Instance<Guest>);
    };
}

/// A record of the contract that borrows these columns of a structure of the same fields.
macro_rules! record {
    ($($record:ident)::+ of $columns:ident { $($field:ident),* $(,)? }) => {
        $($record)::+ { $($field: $columns.$field),* }
    };
}

pub(crate) use {record, world};
