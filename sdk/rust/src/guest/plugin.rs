//! The interface `plugin`, which all policies export, and the shared types.

use std::marker::PhantomData;

use super::Exported;
use crate::{Config, PolicyError};

super::bindings!("guest-plugin", "treadle_plugin::guest::plugin::raw", {});

use raw::treadle::policy::types;

pub use types::{Description, PolicyError as Failure};

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        Self {
            code: error.code,
            message: error.message,
        }
    }
}

/// Converts phases to the policies' type.
pub(super) fn phases(phases: Vec<types::Phase>) -> Vec<crate::Phase> {
    let known = |phase| match phase {
        types::Phase::Reasoning => crate::Phase::Reasoning,
        types::Phase::Acting => crate::Phase::Acting,
    };
    phases.into_iter().map(known).collect()
}

impl From<crate::CacheAction> for types::CacheAction {
    fn from(action: crate::CacheAction) -> Self {
        match action {
            crate::CacheAction::Keep => Self::Keep,
            crate::CacheAction::Offload => Self::Offload,
            crate::CacheAction::Migrate => Self::Migrate,
            crate::CacheAction::Drop => Self::Drop,
        }
    }
}

/// Exports `plugin` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported> raw::exports::treadle::policy::plugin::Guest for Guest<P> {
    fn describe() -> Description {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Description {
            name: P::NAME.to_owned(),
            version: P::VERSION.to_owned(),
            summary: P::SUMMARY.to_owned(),
            functions: owned(P::ANSWERED),
            columns: owned(P::COLUMNS),
            config_schema: P::Config::schema().to_string(),
        }
    }

    fn configure(json: String) -> Result<(), Failure> {
        let policy = P::configure(&json)?;
        P::slot().with(|slot| slot.set(policy));
        Ok(())
    }

    fn snapshot() -> Result<Vec<u8>, Failure> {
        P::ask(Ok(()), |policy| policy.snapshot())
    }

    fn restore(snapshot: Vec<u8>) -> Result<(), Failure> {
        P::ask(Ok(()), |policy| policy.restore(&snapshot))
    }
}
