//! The environment variables that the command line reads.
//!
//! Configuration keys have variables of their own, `TREADLE_SECTION__KEY`, which
//! [`crate::config`] reads.

/// Base URL of the daemon, instead of `--url`.
pub(super) const URL: &str = "TREADLE_URL";
/// The token to send, instead of `--token`.
pub(super) const TOKEN: &str = "TREADLE_TOKEN";
/// CA certificates to trust in addition to the system's, instead of `--ca`.
pub(super) const CA: &str = "TREADLE_CA";
/// The configuration file, instead of `--config`.
pub(super) const CONFIG: &str = "TREADLE_CONFIG";
/// If set and not empty, no colours (<https://no-color.org>).
pub(super) const NO_COLOR: &str = "NO_COLOR";

/// All variables that can be read as text, for [`treadle_config::Config::load`].
pub(super) fn all() -> impl Iterator<Item = (String, String)> {
    // `std::env::vars` panics if any variable is not UTF-8.
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Whether coloured output is disabled.
pub(super) fn no_color() -> bool {
    std::env::var_os(NO_COLOR).is_some_and(|value| !value.is_empty())
}
