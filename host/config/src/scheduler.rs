//! `[scheduler]`: when and where each program runs.

use treadle_core::Mode;

use super::section::{Form, Setting, section};

impl Setting for Mode {
    const FORM: Form = Form::Choice(&["program-aware", "sticky", "least-load"]);
}

section! {
    /// When and where each program runs.
    SchedulerConfig in "scheduler" {
        /// How programs are assigned to engines: `program-aware` pauses and resumes them so that
        /// their contexts fit, and ranks their steps if a priority policy is bound
        /// (docs/rollouts.md); `sticky` and `least-load` are plain routing for comparison.
        mode: Mode = Mode::ProgramAware, "";
        /// Speed of the scheduler's clock relative to real time; only for simulated engines.
        time_scale: f64 = 1.0, "times", 0.001 ..= 10_000.0;
        /// Share of an engine's cache above which its programs are paused.
        high_watermark: f64 = 1.0, "share", 0.05 ..= 2.0;
        /// Share of an engine's cache up to which paused programs are resumed; at most `scheduler.high_watermark`.
        low_watermark: f64 = 0.9, "share", 0.05 ..= 2.0;
        /// How long a step may wait for placement before it is refused with 503. The time for which
        /// all engines that could take it are fenced for their weights does not count, unless it
        /// reaches the limit in one go; the time for which they are paused or asleep does.
        queue_wait_s_max: u64 = 1800, "seconds", 1 ..= 604_800;
        /// Maximum time for which other programs may be preferred to a waiting one before it goes
        /// first. The actual limit is three times the mean wait of programs for placement if caches
        /// can be offloaded (`kv.host_tokens_max`), otherwise twice the time in which the workers
        /// compute the contexts of all live programs, at their measured speed; 1.5 times if engines
        /// offload by themselves.
        starvation_s_max: u64 = 300, "seconds", 1 ..= 604_800;
        /// Minimum time that a program stays placed before its memory may be given to one that has
        /// waited longer than the starvation limit, as a share of that limit.
        quantum_share: f64 = 0.25, "share", 0.0 ..= 1.0;
        /// How long a program may have neither a step nor an action run by treadle before it is considered ended.
        program_idle_s_max: u64 = 3600, "seconds", 1 ..= 2_592_000;
        /// Maximum number of live programs; a further one is refused with 429.
        programs_max: u64 = 100_000, "programs", 1 ..= 10_000_000;
        /// Maximum number of waiting steps; a further one is refused with 429.
        queue_len_max: u64 = 100_000, "steps", 1 ..= 10_000_000;
        fixed {
            /// How often the load of the engines is checked.
            tick_ms: u64 = 1000, "milliseconds", 1 ..= 600_000;
            /// Minimum of the starvation limit. If it is at least `scheduler.starvation_s_max`, that is the limit.
            starvation_s_min: u64 = 10, "seconds", 0 ..= 604_800;
            /// Weight below which a program in a tool call is paused while others wait; the eviction policy sets the weights.
            pause_weight: f64 = 0.1, "share", 0.0 ..= 1.0;
            /// As `program_idle_s_max`, for a program that no client named and that has sent only one step.
            inferred_idle_s_max: u64 = 120, "seconds", 1 ..= 2_592_000;
        }
    }
}
