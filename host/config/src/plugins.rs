//! `[plugins]`: limits on policies.

use treadle_policy_runtime::{BreakerLimits, Limits};

use super::section::section;

section! {
    /// Limits on policies.
    PluginsConfig in "plugins" {
        /// Memory of a policy instance; an allocation beyond it fails inside the policy.
        memory_bytes_max: usize = 64 << 20, "bytes", 65_536 ..= 4_294_967_296_u64;
        /// Time limit of a decision that scheduling waits for; exceeding it is a fault.
        hot_deadline_ms: u64 = 2, "milliseconds", 1 ..= 10_000;
        /// How much longer a canary's steps may take than those of the bound policy before the canary is ended, in percent.
        canary_regret_max_percent: u64 = 25, "percent", 0 ..= 100_000;
        /// Total size of the compiled policies kept beside the store's file.
        artifacts_bytes_max: u64 = 1 << 30, "bytes", 1_048_576 ..= 1_099_511_627_776_u64;
        /// Whether uploads must be signed, regardless of their tenant's settings.
        signed_only: bool = false, "";
        /// Trusted keys for signatures of uploads: `name=key`, with the key in hexadecimal or base64.
        trusted_keys: Vec<String> = Vec::new(), "";
        fixed {
            /// Time limit of any other call: starting, configuring, saving, and the worlds that scheduling does not wait for.
            background_deadline_ms: u64 = 2000, "milliseconds", 1 ..= 60_000;
            /// Steps that must have finished in both groups before a canary is rolled back for its regret.
            canary_steps_min: u64 = 100, "steps", 2 ..= 1_000_000;
            /// The `treadle` program that compiles uploads in child processes; if empty, the running program, which compiles in its own process unless it is called `treadle`.
            compiler: String = String::new(), "";
            /// The folder for compiled policies when the store is in memory; if empty, they are not kept.
            artifacts_folder: String = String::new(), "";
            /// Processor time that a child may take to compile an upload.
            compile_cpu_s_max: u64 = 60, "seconds", 1 ..= 3600;
            /// How long a policy may take to answer, including its wait for a turn, before the built-in policy decides.
            answer_deadline_ms: u64 = 5000, "milliseconds", 1 ..= 600_000;
            /// Programs in one call; the others keep their order.
            candidates_max: usize = 64, "programs", 1 ..= 8192;
            /// How long a faulty policy is suspended the first time; it doubles each time.
            backoff_ms: u64 = 1000, "milliseconds", 1 ..= 86_400_000;
            /// Maximum time for which a faulty policy is suspended.
            backoff_ms_max: u64 = 60_000, "milliseconds", 1 ..= 86_400_000;
            /// Number of recent suspensions after which the binding is rolled back.
            opens_max: usize = 5, "times", 1 ..= 10_000;
        }
    }
}

impl PluginsConfig {
    /// Limits on an instance and on an upload.
    pub fn limits(&self) -> Limits {
        Limits {
            memory_bytes_max: self.memory_bytes_max,
            hot_deadline_ms: self.hot_deadline_ms,
            background_deadline_ms: self.background_deadline_ms,
            ..Limits::default()
        }
    }

    /// When to suspend a policy, and for how long.
    pub fn breaker(&self) -> BreakerLimits {
        BreakerLimits {
            backoff_ms: self.backoff_ms,
            backoff_ms_max: self.backoff_ms_max,
            opens_max: self.opens_max,
            ..BreakerLimits::default()
        }
    }
}
