//! Where an instance keeps its policy.

use std::cell::{OnceCell, RefCell};
use std::thread::LocalKey;

use super::plugin::Failure;
use crate::{Policy, PolicyError, host, host::Level};

/// A policy that a crate exports: implemented by the macros of the worlds.
pub trait Exported: Policy + 'static {
    /// Name of the package.
    const NAME: &'static str;
    /// Version of the package.
    const VERSION: &'static str;
    /// Description of the package.
    const SUMMARY: &'static str;
    /// Functions of its world that it answers.
    const ANSWERED: &'static [&'static str];

    /// Where the instance keeps it.
    fn slot() -> &'static LocalKey<Slot<Self>>;

    /// Asks the policy that was configured, if the check of the columns has passed.
    ///
    /// # Errors
    /// What the check found; `failed` when `configure` has not succeeded before, else what
    /// `ask` gives.
    fn ask<T>(
        check: Result<(), PolicyError>,
        ask: impl FnOnce(&mut Self) -> Result<T, PolicyError>,
    ) -> Result<T, Failure> {
        check?;
        Ok(Self::slot().with(|slot| slot.ask(ask))?)
    }
}

/// Holds the configured policy of an instance.
pub struct Slot<P> {
    policy: RefCell<Option<P>>,
    panics_logged: OnceCell<()>,
}

impl<P> Slot<P> {
    /// Nothing configured yet.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            policy: RefCell::new(None),
            panics_logged: OnceCell::new(),
        }
    }

    /// Replaces the policy. The first call also sends panics to the log, because a
    /// guest has no standard error.
    pub fn set(&self, policy: P) {
        self.panics_logged.get_or_init(|| {
            std::panic::set_hook(Box::new(|panic| {
                host::log(Level::Error, &panic.to_string());
            }));
        });
        self.policy.replace(Some(policy));
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut P) -> Result<T, PolicyError>) -> Result<T, PolicyError> {
        match self.policy.borrow_mut().as_mut() {
            Some(policy) => ask(policy),
            None => Err(PolicyError::failed(
                "asked before a successful configure; call plugin.configure first",
            )),
        }
    }
}
