//! The storage of an instance's policy.

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
    /// Functions of its world that it implements.
    const ANSWERED: &'static [&'static str];

    /// The instance's storage of the policy.
    fn slot() -> &'static LocalKey<Slot<Self>>;

    /// Calls the configured policy, if the check of the columns has passed.
    ///
    /// # Errors
    /// The error of the check; `failed` if `configure` has not succeeded before; otherwise the
    /// error of `ask`.
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
    /// An empty slot.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            policy: RefCell::new(None),
            panics_logged: OnceCell::new(),
        }
    }

    /// Replaces the policy. The first call also sends panics to the log, because guests have no
    /// standard error.
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
                "called before a successful configure; call plugin.configure first",
            )),
        }
    }
}
