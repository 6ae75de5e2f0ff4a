//! The common part of all policies.

use crate::{Config, PolicyError};

/// A policy of any world. The trait of its world defines its decisions.
///
/// An instance gets one call at a time. It may keep any state between calls, but an instance can be
/// replaced at any moment: state that must outlive it belongs in [`snapshot`](Self::snapshot) or
/// [`host::state_set`](crate::host::state_set).
///
/// Optional methods of the worlds have a default that returns [`PolicyError::not_supported`]. The
/// host only calls those in the constant `FUNCTIONS` of the world's trait, and uses its built-in
/// default for the others.
pub trait Policy: Sized {
    /// Type of the configuration: [`NoConfig`](crate::NoConfig) if it has no keys.
    type Config: Config;

    /// Columns that calls must carry in `extra`, in this order.
    const COLUMNS: &'static [&'static str] = &[];

    /// A policy with this configuration.
    ///
    /// # Errors
    /// [`PolicyError::invalid_config`] if keys contradict each other, naming them and the remedy.
    /// The default must be accepted.
    fn with_config(config: Self::Config) -> Result<Self, PolicyError>;

    /// A policy with this configuration, a JSON object.
    ///
    /// # Errors
    /// [`PolicyError::invalid_config`], naming the key and the remedy.
    fn configure(json: &str) -> Result<Self, PolicyError> {
        Self::with_config(Self::Config::parse(json)?)
    }

    /// The learnt state, for the instance or version that replaces this one. Empty if there is
    /// none, as here.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the successor then starts without it.
    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(Vec::new())
    }

    /// Restores a predecessor's snapshot, perhaps of an older version, never empty. Must change
    /// nothing if it fails. The default restores nothing.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the policy then starts without it.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        let _ = snapshot;
        Err(PolicyError::not_supported())
    }
}
