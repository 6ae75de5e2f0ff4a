//! The interface `plugin`, which all policies export, and the types of all.

use std::marker::PhantomData;

use super::Exported;
use crate::PolicyError;

super::bindings!("guest-plugin", "treadle_plugin::guest::plugin::raw", {});

pub use raw::treadle::policy::types::{Description, PolicyError as Failure};

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        Self {
            code: error.code,
            message: error.message,
        }
    }
}

/// Exports `plugin` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported> raw::exports::treadle::policy::plugin::Guest for Guest<P> {
    fn describe() -> Description {
        Description {
            name: P::NAME.to_owned(),
            version: P::VERSION.to_owned(),
            summary: P::SUMMARY.to_owned(),
        }
    }

    fn configure(json: String) -> Result<(), Failure> {
        let policy = P::configure(&json)?;
        P::slot().with(|slot| slot.set(policy));
        Ok(())
    }

    fn snapshot() -> Result<Vec<u8>, Failure> {
        P::ask(|policy| policy.snapshot())
    }

    fn restore(snapshot: Vec<u8>) -> Result<(), Failure> {
        P::ask(|policy| policy.restore(&snapshot))
    }
}
