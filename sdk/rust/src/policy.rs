//! What every policy has, whatever its world.

use crate::{Config, PolicyError};

/// A policy of any world. The trait of its world says what it decides.
///
/// An instance is asked by one call at a time. It may keep what it likes between
/// calls, but an instance can be replaced at any moment: what must outlive it goes
/// into [`snapshot`](Self::snapshot) or
/// [`host::state_set`](crate::host::state_set).
///
/// Methods of the worlds that not every policy needs have a default that answers
/// [`PolicyError::not_supported`]. The host asks none that the constant `FUNCTIONS` of
/// the world's trait leaves out, and decides by its built-in default.
pub trait Policy: Sized {
    /// Its configuration: [`NoConfig`](crate::NoConfig) where it has none.
    type Config: Config;

    /// Columns that its calls are to carry in `extra`, in this order.
    const COLUMNS: &'static [&'static str] = &[];

    /// A policy with this configuration.
    ///
    /// # Errors
    /// [`PolicyError::invalid_config`] where keys contradict each other, naming them and
    /// the remedy. The default must be accepted.
    fn with_config(config: Self::Config) -> Result<Self, PolicyError>;

    /// A policy with this configuration, a JSON object.
    ///
    /// # Errors
    /// [`PolicyError::invalid_config`], naming the key and the remedy.
    fn configure(json: &str) -> Result<Self, PolicyError> {
        Self::with_config(Self::Config::parse(json)?)
    }

    /// What the policy has learnt, for the instance or version that takes its place.
    /// Empty when it keeps nothing, as here.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the successor then begins without it.
    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(Vec::new())
    }

    /// Takes over what a predecessor gave as its snapshot, perhaps of an older
    /// version, never empty. Nothing changes when it fails. The default takes
    /// nothing over.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the policy then begins without it.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        let _ = snapshot;
        Err(PolicyError::not_supported())
    }
}
