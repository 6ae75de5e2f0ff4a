//! The configuration of the policy.

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Guess of a program's tokens before anything is learnt.
        total_tokens: f64 = 1_000.0, 0.0..=1e9;
        /// Guess of a program's seconds in tools before anything is learnt.
        total_tool_s: f64 = 10.0, 0.0..=1e9;
        /// Number of programs after which old ones are gradually forgotten.
        memory: u32 = 10_000, 1..=1_000_000_000;
    }
}
