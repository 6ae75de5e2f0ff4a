//! `[scheduler]`: which program runs when and where.

use treadle_core::Mode;

use super::section::{Form, Setting, section};

impl Setting for Mode {
    const FORM: Form = Form::Choice(&["program-aware", "sticky", "least-load"]);
}

section! {
    /// Which program runs when and where.
    SchedulerConfig in "scheduler" {
        /// How programs get to engines: `program-aware` pauses and resumes them so that their
        /// contexts fit, and where a priority policy is bound, ranks their steps
        /// (docs/rollouts.md); `sticky` and `least-load` are plain routing to compare with.
        mode: Mode = Mode::ProgramAware, "";
        /// How much faster than the wall clock the scheduler's time runs; only for simulated engines.
        time_scale: f64 = 1.0, "times", 0.001 ..= 10_000.0;
        /// Share of an engine's cache above which programs on it are paused.
        high_watermark: f64 = 1.0, "share", 0.05 ..= 2.0;
        /// Share of an engine's cache up to which paused programs are resumed; at most `scheduler.high_watermark`.
        low_watermark: f64 = 0.9, "share", 0.05 ..= 2.0;
        /// How long a step may wait for placement before it is refused with 503.
        queue_wait_s_max: u64 = 1800, "seconds", 1 ..= 604_800;
        /// How long others may be preferred to a waiting program at most before it goes first. The
        /// bound is three times the mean wait of programs for placement where caches can be
        /// offloaded (`kv.host_tokens_max`), and elsewhere twice the time in which the workers
        /// compute the contexts of all live programs, at the speed that they are seen to have; 1.5
        /// times where engines offload by themselves.
        starvation_s_max: u64 = 300, "seconds", 1 ..= 604_800;
        /// How long a program stays placed at least before its memory may be taken for one that has
        /// waited beyond the starvation bound, as a share of that bound.
        quantum_share: f64 = 0.25, "share", 0.0 ..= 1.0;
        /// How long a program may stay without a step, and without an action that treadle runs for it, before it is taken to be over.
        program_idle_s_max: u64 = 3600, "seconds", 1 ..= 2_592_000;
        /// Live programs at once; a further one is refused with 429.
        programs_max: u64 = 100_000, "programs", 1 ..= 10_000_000;
        /// Waiting steps at once; a further one is refused with 429.
        queue_len_max: u64 = 100_000, "steps", 1 ..= 10_000_000;
        fixed {
            /// How often the load of the engines is looked at.
            tick_ms: u64 = 1000, "milliseconds", 1 ..= 600_000;
            /// The same at least; from `scheduler.starvation_s_max` on that is the bound, whatever there is to wait for.
            starvation_s_min: u64 = 10, "seconds", 0 ..= 604_800;
            /// Weight below which a program in a tool call is paused while others wait; the eviction policy gives the weights.
            pause_weight: f64 = 0.1, "share", 0.0 ..= 1.0;
            /// The same for a program that no client named and that has sent one step only.
            inferred_idle_s_max: u64 = 120, "seconds", 1 ..= 2_592_000;
        }
    }
}
