//! The environment variables that the command line reads.
//!
//! Keys of the configuration have theirs too, `TREADLE_SECTION__KEY`; those are
//! read in [`crate::config`].

/// Where the commands that ask a daemon find it.
pub(super) const URL: &str = "TREADLE_URL";
/// The token to send, instead of `--token`.
pub(super) const TOKEN: &str = "TREADLE_TOKEN";
/// Authorities to trust besides the system's, instead of `--ca`.
pub(super) const CA: &str = "TREADLE_CA";
/// The configuration file, instead of `--config`.
pub(super) const CONFIG: &str = "TREADLE_CONFIG";
/// If set and not empty, no colours (<https://no-color.org>).
pub(super) const NO_COLOR: &str = "NO_COLOR";

/// All variables that can be read as text, for [`treadle_config::Config::load`].
pub(super) fn all() -> impl Iterator<Item = (String, String)> {
    // `std::env::vars` panics on variables of others that are not UTF-8.
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Whether colours are unwanted.
pub(super) fn no_color() -> bool {
    std::env::var_os(NO_COLOR).is_some_and(|value| !value.is_empty())
}
