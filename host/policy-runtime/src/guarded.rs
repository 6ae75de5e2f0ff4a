//! Runs guest code: sets its limits before, classifies the outcome after.

use treadle_plugin::PolicyError;
use wasmtime::{Store, Trap};

use crate::call::{CallContext, Urgency};
use crate::engine::{Budget, Core};
use crate::error::PolicyFault;
use crate::instance::Answer;
use crate::sandbox::Sandbox;
use crate::ticker::TICK_MS;
use crate::worlds::host::Failure;

/// Maximum lengths of a policy's own texts.
const CODE_BYTES_MAX: usize = 64;
const MESSAGE_BYTES_MAX: usize = 1024;
const CAUSE_BYTES_MAX: usize = 512;

/// Runs guest code within its deadline or its fuel.
pub(crate) fn guarded<T>(
    core: &Core,
    store: &mut Store<Sandbox>,
    context: &CallContext,
    urgency: Urgency,
    run: impl FnOnce(&mut Store<Sandbox>) -> Answer<T>,
) -> Result<T, PolicyFault> {
    store.data_mut().begin(context);
    let answer = match &core.budget {
        Budget::Time(ticker) => {
            let deadline_ms = deadline_ms(core, context, urgency);
            // One more, because the current tick is partly over.
            store.set_epoch_deadline((deadline_ms / TICK_MS).saturating_add(1));
            let running = ticker.run();
            let answer = run(store);
            drop(running);
            answer
        }
        Budget::Fuel { .. } => run_on_fuel(core, store, urgency, run),
    };
    match answer {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(said(failure)),
        Err(error) => Err(classify(&error, store.data_mut(), context, urgency, core)),
    }
}

fn run_on_fuel<T>(
    core: &Core,
    store: &mut Store<Sandbox>,
    urgency: Urgency,
    run: impl FnOnce(&mut Store<Sandbox>) -> Answer<T>,
) -> Answer<T> {
    let fuel = core.fuel(urgency);
    store.set_fuel(fuel)?;
    let answer = run(store);
    let used = fuel.saturating_sub(store.get_fuel()?);
    let total = &mut store.data_mut().belongings.fuel_used;
    *total = total.saturating_add(used);
    answer
}

fn deadline_ms(core: &Core, context: &CallContext, urgency: Urgency) -> u64 {
    context.deadline_ms.unwrap_or(match urgency {
        Urgency::Hot => core.limits.hot_deadline_ms,
        Urgency::Background => core.limits.background_deadline_ms,
    })
}

/// Converts an error that the policy answered with.
fn said(failure: Failure) -> PolicyFault {
    if failure.code == PolicyError::NOT_SUPPORTED {
        return PolicyFault::NotSupported;
    }
    PolicyFault::PolicyError(format!(
        "{}: {}",
        cut(failure.code, CODE_BYTES_MAX),
        cut(failure.message, MESSAGE_BYTES_MAX)
    ))
}

fn classify(
    error: &wasmtime::Error,
    sandbox: &mut Sandbox,
    context: &CallContext,
    urgency: Urgency,
    core: &Core,
) -> PolicyFault {
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => PolicyFault::Timeout {
            deadline_ms: deadline_ms(core, context, urgency),
        },
        Some(Trap::OutOfFuel) => PolicyFault::Fuel {
            fuel: core.fuel(urgency),
        },
        Some(Trap::StackOverflow) => PolicyFault::Stack,
        _ if sandbox.memory_was_refused() => PolicyFault::Memory {
            max: core.limits.memory_bytes_max,
        },
        Some(trap) => PolicyFault::Trap {
            detail: sandbox
                .take_last_error()
                .unwrap_or_else(|| trap.to_string()),
        },
        // No trap: the engine could not read the guest's value.
        None => PolicyFault::BadOutput {
            detail: cut(error.root_cause().to_string(), CAUSE_BYTES_MAX),
        },
    }
}

/// At most `bytes_max` bytes of a guest's text.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}
