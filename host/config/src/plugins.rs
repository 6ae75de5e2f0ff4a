//! `[plugins]`: what a policy may use before it is stopped.

use treadle_policy_runtime::{BreakerLimits, Limits};

use super::section::section;

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
        /// Steps that both shares must have finished before a canary is judged by its regret.
        canary_steps_min: u64 = 100, "steps", 2 ..= 1_000_000;
        /// How much longer a canary's steps may take than those of the bound policy before it is ended, in percent.
        canary_regret_max_percent: u64 = 25, "percent", 0 ..= 100_000;
        /// The `treadle` program that compiles uploads in child processes; empty for this one itself, which compiles in its own process where it is not called `treadle`.
        compiler: String = String::new(), "";
        /// Time that a child may take to compile an upload, on the clock.
        compile_wall_s_max: u64 = 120, "seconds", 1 ..= 3600;
        /// Time that it may take on a processor.
        compile_cpu_s_max: u64 = 60, "seconds", 1 ..= 3600;
        /// Its address space.
        compile_memory_bytes_max: u64 = 2 << 30, "bytes", 67_108_864 ..= 68_719_476_736_u64;
        /// Compiled policies that are kept beside the store's file, all together.
        artifacts_bytes_max: u64 = 1 << 30, "bytes", 1_048_576 ..= 1_099_511_627_776_u64;
        /// Whether uploads need a signature, whatever their tenant allows.
        signed_only: bool = false, "";
        /// Keys whose signatures of uploads count: `name=key` with the key in hexadecimal or base64, several with commas between them.
        trusted_keys: String = String::new(), "";
        /// How long a question may stay unanswered, waiting for its turn included, before the built-in policy decides.
        answer_deadline_ms: u64 = 5000, "milliseconds", 1 ..= 600_000;
        /// Programs in one question; the others keep the order that they had.
        candidates_max: usize = 64, "programs", 1 ..= 8192;
        /// Rows of a call, and so of its answer.
        output_rows_max: usize = 8192, "rows", 100 ..= 1_000_000;
        /// Extra columns of a call.
        extra_columns_max: usize = 64, "columns", 1 ..= 10_000;
        /// Texts of one call for rewards together.
        text_bytes_max: usize = 8 << 20, "bytes", 1024 ..= 1_073_741_824;
        /// Parts that a reward may be made of.
        reward_parts_max: usize = 16, "parts", 1 ..= 1000;
        /// Further rollouts that a policy may ask for, for one prompt.
        rollouts_more_max: u32 = 1024, "rollouts", 1 ..= 1_000_000;
        /// What a policy may hand over to its successor.
        snapshot_bytes_max: usize = 4 << 20, "bytes", 1 ..= 1_073_741_824;
        /// What a binding may store, keys and values together.
        state_bytes_max: usize = 1 << 20, "bytes", 1 ..= 1_073_741_824;
        /// Keys under which a binding may store something.
        state_keys_max: usize = 1024, "keys", 1 ..= 1_000_000;
        /// Length of such a key.
        state_key_bytes_max: usize = 256, "bytes", 1 ..= 65_536;
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
            extra_columns_max: self.extra_columns_max,
            text_bytes_max: self.text_bytes_max,
            reward_parts_max: self.reward_parts_max,
            rollouts_more_max: self.rollouts_more_max,
            snapshot_bytes_max: self.snapshot_bytes_max,
            state_bytes_max: self.state_bytes_max,
            state_keys_max: self.state_keys_max,
            state_key_bytes_max: self.state_key_bytes_max,
            config_bytes_max: self.config_bytes_max,
            upload_bytes_max: self.upload_bytes_max,
            log_lines_per_s: self.log_lines_per_s,
            log_line_bytes_max: self.log_line_bytes_max,
            log_lines_kept_max: self.log_lines_kept_max,
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
