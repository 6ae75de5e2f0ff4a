//! Policies that misbehave, built on demand, with the expected outcome of each; and damaged
//! messages from untrusted peers ([`messages`]).
//!
//! A policy that is accepted behaves until it is configured with [`ARMED`]; then calls
//! with at least [`ARMED_FROM_ROWS`] rows misbehave and shorter ones do not. So one
//! test can ask for good answers before and after the bad one.
//!
//! ```
//! let engine = treadle_policy_runtime::PolicyEngine::new(Default::default()).unwrap();
//! for policy in treadle_hostile::POLICIES {
//!     let upload = treadle_hostile::build(policy.name);
//!     let examined = engine.examine(&upload);
//!     assert!(examined.is_ok() || matches!(policy.comes_of_it, treadle_hostile::Outcome::Refused(_)));
//! }
//! ```

mod bomb;
pub mod messages;
pub mod mutation;
mod policies;
mod text;

pub use policies::POLICIES;

/// The configuration that makes an accepted policy misbehave in some calls.
pub const ARMED: &str = r#"{"from_rows": 3}"#;
/// The configuration that makes all calls with at least one row misbehave.
pub const ARMED_ALWAYS: &str = r#"{"from_rows": 1}"#;
/// Minimum number of rows at which a policy configured with [`ARMED`] misbehaves.
pub const ARMED_FROM_ROWS: usize = 3;

/// The expected outcome of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The upload is refused with one of these codes.
    Refused(&'static [&'static str]),
    /// It is accepted, and its bad calls are faults with one of these causes, after
    /// which good ones are answered.
    Fault(&'static [&'static str]),
    /// It is accepted, and its bad calls are answered within bounds.
    Answered,
}

/// How a policy is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// A world's text with some placeholders filled in.
    Text(&'static [(&'static str, &'static str)]),
    /// A text of its own, without the contract.
    Plain(&'static str),
    /// The bytes of an upload.
    Bytes(fn() -> Vec<u8>),
}

/// A policy and its expected outcome.
#[derive(Debug, Clone, Copy)]
pub struct HostilePolicy {
    /// Its behaviour, as words joined by hyphens.
    pub name: &'static str,
    /// The world that it targets or pretends to.
    pub world: &'static str,
    /// Its expected outcome.
    pub comes_of_it: Outcome,
    pub(crate) source: Source,
}

/// The upload of the policy with this name.
///
/// # Panics
/// If no policy has this name.
pub fn build(name: &str) -> Vec<u8> {
    let policy = POLICIES.iter().find(|policy| policy.name == name);
    let policy = policy.unwrap_or_else(|| panic!("no hostile policy is called {name}"));
    match policy.source {
        Source::Text(places) => text::build(policy.world, policy.name, places),
        Source::Plain(text) => wat::parse_str(text).expect("the text is valid"),
        Source::Bytes(make) => make(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_built_and_has_a_name_of_its_own() {
        for policy in POLICIES {
            let _ = build(policy.name);
            let namesakes = POLICIES.iter().filter(|other| other.name == policy.name);
            assert_eq!(namesakes.count(), 1, "{}", policy.name);
        }
    }
}
