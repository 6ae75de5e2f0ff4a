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

/// A record of the contract that borrows these columns of a structure of the same fields, with
/// fields of its own after a semicolon.
macro_rules! record {
    (
        $($record:ident)::+ of $columns:tt {
            $($field:ident),* $(,)? $(; $($own:ident: $value:expr),*)?
        }
    ) => {
        $($record)::+ { $($field: $columns.$field,)* $($($own: $value,)*)? }
    };
}

/// The calls of a world's functions, as methods of its instance. Each one has up to five steps:
///
/// * `before`: checks that come first
/// * `admit`: the function's name, lengths of columns, and their check, which is told how many extra
///   columns the policy requested
/// * `ask`: the urgency and the generated call with its arguments
/// * `check`: the check of the answer
/// * `into`: what the caller gets of it
macro_rules! calls {
    ($instance:ident, $interface:ident: $(
        $(#[$meta:meta])*
        $function:ident($columns:ident: $type:ident) -> $answer:ty {
            $(before $before:expr;)?
            admit $name:literal [$($length:expr),+] $admit:expr;
            ask $urgency:ident $call:ident($($argument:expr),+ $(,)?);
            check $check:expr;
            $(into $given:ident => $into:expr;)?
        }
    )+) => {
        impl $instance {
            $(
                $(#[$meta])*
                ///
                /// # Errors
                /// A fault; the next call starts from a fresh instance if needed.
                pub fn $function(
                    &mut self,
                    context: &CallContext,
                    $columns: &$type<'_>,
                ) -> Result<$answer, PolicyFault> {
                    $($before?;)?
                    self.0.admit($name, &[$($length),+], $admit)?;
                    self.0.ask(
                        context,
                        Urgency::$urgency,
                        |guest, store| guest.$interface().$call(store, $($argument),+),
                        $check,
                    )
                    $(.map(|$given| $into))?
                }
            )+
        }
    };
}

pub(crate) use {calls, record, world};
