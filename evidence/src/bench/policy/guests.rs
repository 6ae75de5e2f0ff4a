//! The built policies that are measured, as `make guests` leaves them.

use super::super::BenchError;
use clap::Args;
use std::path::PathBuf;

/// Where built policies are.
#[derive(Args, Clone, Debug)]
pub(in crate::bench) struct GuestFolder {
    /// Folder of the built policies.
    #[arg(long, default_value = "target/guests", value_name = "FOLDER")]
    guests: PathBuf,
}

impl Default for GuestFolder {
    fn default() -> Self {
        Self {
            guests: "target/guests".into(),
        }
    }
}

impl GuestFolder {
    /// A policy, by the name of its package.
    pub(super) fn read(&self, policy: &str) -> Result<Vec<u8>, BenchError> {
        let path = self.path(policy);
        std::fs::read(&path).map_err(|error| BenchError::Guest {
            path: path.display().to_string(),
            cause: error.to_string(),
        })
    }

    fn path(&self, policy: &str) -> PathBuf {
        let file = format!("{}.wasm", policy.replace('-', "_"));
        self.guests.join(file)
    }

    /// The folder that tests find them in.
    #[cfg(test)]
    pub(super) fn of_checkout() -> Self {
        Self {
            guests: concat!(env!("CARGO_MANIFEST_DIR"), "/../target/guests").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_remedy() {
        let error = GuestFolder::of_checkout()
            .read("no-such-policy")
            .unwrap_err()
            .to_string();
        assert!(error.contains("guests/no_such_policy.wasm"), "{error}");
        assert!(error.contains("make guests"), "{error}");
    }
}
