//! `[plugins]`: what a policy may use before it is stopped.

use treadle_policy_runtime::{BreakerLimits, Limits};

use super::section::section;
use crate::driver::{DeskLimits, TrialLimits};

section! {
    /// What a policy may use before it is stopped.
    PluginsConfig in "plugins" {
        /// Largest upload; a larger one is refused.
        upload_bytes_max: usize = 32 << 20, "bytes", 8 ..= 67_108_864;
        /// Largest configuration of a policy.
        config_bytes_max: usize = 64 << 10, "bytes", 2 ..= 16_777_216;
        /// Memory of an instance; an allocation past it fails inside the policy.
        memory_bytes_max: usize = 64 << 20, "bytes", 65_536 ..= 4_294_967_296_u64;
        /// Stack of a call; a deeper one is a fault.
        stack_bytes_max: usize = 512 << 10, "bytes", 16_384 ..= 16_777_216;
        /// Elements of an instance's tables together.
        table_elements_max: usize = 100_000, "elements", 1 ..= 10_000_000;
        /// Time for one decision that is waited for; a longer one is a fault.
        hot_deadline_ms: u64 = 2, "milliseconds", 1 ..= 10_000;
        /// Time for any other call: starting, configuring, saving, and the worlds that scheduling does not wait for.
        background_deadline_ms: u64 = 2000, "milliseconds", 1 ..= 60_000;
        /// Keys and values that a binding's policy may store together.
        state_bytes_max: usize = 1 << 20, "bytes", 0 ..= 16_777_216;
        /// Keys that it may store.
        state_keys_max: usize = 1024, "keys", 0 ..= 65_536;
        /// What it may hand over to its successor.
        snapshot_bytes_max: usize = 4 << 20, "bytes", 0 ..= 16_777_216;
        /// Steps that both shares must have finished before a canary is judged by its regret.
        canary_steps_min: u64 = 100, "steps", 2 ..= 1_000_000;
        /// How much longer a canary's steps may take than those of the bound policy before it is ended, in percent.
        canary_regret_max_percent: u64 = 25, "percent", 0 ..= 100_000;
        /// How long a question may stay unanswered, waiting for its turn included, before the built-in policy decides.
        answer_deadline_ms: u64 = 5000, "milliseconds", 1 ..= 600_000;
        /// Programs in one question; the others keep the order that they had.
        candidates_max: usize = 64, "programs", 1 ..= 8192;
        /// Rows of a call, and so of its answer.
        output_rows_max: usize = 8192, "rows", 100 ..= 1_000_000;
        /// Log lines that an instance may write in a second, and in one burst; more are dropped and counted.
        log_lines_per_s: u32 = 20, "lines", 1 ..= 100_000;
        /// Length of a log line; longer ones are cut.
        log_line_bytes_max: usize = 1024, "bytes", 16 ..= 1_048_576;
        /// Log lines kept to look at.
        log_lines_kept_max: usize = 256, "lines", 1 ..= 1_000_000;
        /// Faults after which a policy is not asked for a while.
        faults_max: usize = 3, "faults", 1 ..= 10_000;
        /// Time within which they must happen.
        faults_window_ms: u64 = 10_000, "milliseconds", 1 ..= 86_400_000;
        /// For how long it is not asked the first time; it doubles from time to time.
        backoff_ms: u64 = 1000, "milliseconds", 1 ..= 86_400_000;
        /// For how long it is not asked at most.
        backoff_ms_max: u64 = 60_000, "milliseconds", 1 ..= 86_400_000;
        /// How often that may happen before the binding is rolled back.
        opens_max: usize = 5, "times", 1 ..= 10_000;
        /// Time within which it must happen so often.
        opens_window_ms: u64 = 600_000, "milliseconds", 1 ..= 86_400_000;
    }
}

impl PluginsConfig {
    /// Bounds on an instance and on an upload.
    pub fn limits(&self) -> Limits {
        Limits {
            memory_bytes_max: self.memory_bytes_max,
            stack_bytes_max: self.stack_bytes_max,
            table_elements_max: self.table_elements_max,
            hot_deadline_ms: self.hot_deadline_ms,
            background_deadline_ms: self.background_deadline_ms,
            output_rows_max: self.output_rows_max,
            config_bytes_max: self.config_bytes_max,
            upload_bytes_max: self.upload_bytes_max,
            state_bytes_max: self.state_bytes_max,
            state_keys_max: self.state_keys_max,
            snapshot_bytes_max: self.snapshot_bytes_max,
            log_lines_per_s: self.log_lines_per_s,
            log_line_bytes_max: self.log_line_bytes_max,
            log_lines_kept_max: self.log_lines_kept_max,
            ..Limits::default()
        }
    }

    /// When a policy is given up.
    pub fn desk(&self) -> DeskLimits {
        DeskLimits {
            breaker: self.breaker(),
            trial: TrialLimits {
                steps_min: self.canary_steps_min,
                regret_max: self.canary_regret_max_percent as f64 / 100.0,
            },
        }
    }

    /// When to stop asking a policy, and for how long.
    pub fn breaker(&self) -> BreakerLimits {
        BreakerLimits {
            faults_max: self.faults_max,
            faults_window_ms: self.faults_window_ms,
            backoff_ms: self.backoff_ms,
            backoff_ms_max: self.backoff_ms_max,
            opens_max: self.opens_max,
            opens_window_ms: self.opens_window_ms,
        }
    }
}
