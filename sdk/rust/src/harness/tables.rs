//! Random tables that own their columns, for tests of policies.

use super::draw;
use crate::random::SplitMix64;
use crate::{
    ActingColumns, ActiveColumns, AnswerColumns, AssignColumns, FinishedColumns, LiveColumns,
    MigrateColumns, NO_CLASS, NO_GROUP, ParallelismColumns, Phase, PreemptColumns, QueueColumns,
    RetentionColumns, RouteColumns, WaitingColumns, WorkerColumns,
};

macro_rules! tables {
    ($($(#[$meta:meta])* $table:ident => $columns:ident {
        $($column:ident: $entry:ty = $draw:path,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Default)]
        pub struct $table {
            $(
                #[doc = concat!("The column `", stringify!($column), "`.")]
                pub $column: Vec<$entry>,
            )*
            /// Extra columns, one after the other.
            pub extra: Vec<f32>,
        }

        impl $table {
            /// Draws a table with this many rows and extra columns.
            pub fn draw(random: &mut SplitMix64, rows: usize, extra_columns: usize) -> Self {
                Self {
                    $($column: (0..rows).map(|_| $draw(random)).collect(),)*
                    extra: (0..rows * extra_columns).map(|_| draw::extra(random)).collect(),
                }
            }

            /// The same rows in another order; `order` names each row once.
            #[must_use]
            pub fn permuted(&self, order: &[usize]) -> Self {
                let rows = order.len().max(1);
                Self {
                    $($column: order.iter().map(|&row| self.$column[row].clone()).collect(),)*
                    extra: self
                        .extra
                        .chunks(rows)
                        .flat_map(|column| order.iter().map(|&row| column[row]))
                        .collect(),
                }
            }

            /// The columns for a policy; columns beside the rows are empty.
            pub fn columns(&self) -> $columns<'_> {
                // Some tables only have rows.
                #[allow(clippy::needless_update)]
                $columns {
                    $($column: &self.$column,)*
                    extra: &self.extra,
                    ..$columns::default()
                }
            }
        }
    )*};
}

tables! {
    /// Live programs.
    Live => LiveColumns {
        group: u64 = draw::group,
        tokens: u64 = draw::amount,
        output_tokens: u64 = draw::amount,
        steps: u32 = draw::count,
        tool_ms: u64 = draw::amount,
    }

    /// Finished programs, to learn from.
    Finished => FinishedColumns {
        group: u64 = draw::group,
        tokens: u64 = draw::amount,
        output_tokens: u64 = draw::amount,
        steps: u32 = draw::count,
        tool_ms: u64 = draw::amount,
        remaining_tokens: u64 = draw::amount,
        remaining_tool_ms: u64 = draw::amount,
    }

    /// Waiting programs, to be ordered by priority.
    Queue => QueueColumns {
        tokens: u64 = draw::amount,
        output_tokens: u64 = draw::amount,
        steps: u32 = draw::count,
        waited_ms: u64 = draw::amount,
        remaining_tokens: f64 = draw::predicted,
        remaining_tool_s: f64 = draw::predicted,
    }

    /// Programs that are about to get a place. The workers come with
    /// [`Assign::columns_with`].
    Assign => AssignColumns {
        group: u64 = draw::group,
        tokens: u64 = draw::amount,
        remaining_tokens: f64 = draw::predicted,
        last_worker: u32 = draw::count,
        growth: f64 = draw::predicted,
        tool_us: f64 = draw::predicted,
        preferred_class: u32 = draw::class,
    }

    /// Placed programs. The workers come with [`Migrate::columns_with`].
    Migrate => MigrateColumns {
        at_worker: u32 = draw::count,
        tokens: u64 = draw::amount,
        remaining_tokens: f64 = draw::predicted,
        phase: Phase = draw::phase,
        growth: f64 = draw::predicted,
        tool_us: f64 = draw::predicted,
        preferred_class: u32 = draw::class,
    }

    /// Acting programs.
    Acting => ActingColumns {
        tokens: u64 = draw::amount,
        phase_ms: u64 = draw::amount,
    }

    /// Acting programs of one worker, with the costs of their caches.
    Retention => RetentionColumns {
        tokens: u64 = draw::amount,
        phase_ms: u64 = draw::amount,
        idle_ms: u64 = draw::amount,
        soonest_ms: u64 = draw::amount,
        back_ms: u64 = draw::amount,
        moved_ms: u64 = draw::amount,
        prefill_ms: u64 = draw::amount,
        steps: u32 = draw::count,
    }

    /// Active programs.
    Active => ActiveColumns {
        tokens: u64 = draw::amount,
        phase: Phase = draw::phase,
        phase_ms: u64 = draw::amount,
        steps: u32 = draw::count,
    }

    /// Waiting programs, to be restored.
    Waiting => WaitingColumns {
        tokens: u64 = draw::amount,
        phase: Phase = draw::phase,
        waited_ms: u64 = draw::amount,
        steps: u32 = draw::count,
    }

    /// Finished programs, to be judged.
    Answers => AnswerColumns {
        answer: String = draw::text,
        reference: String = draw::text,
        output_tokens: u64 = draw::amount,
        steps: u32 = draw::count,
    }

}

/// Workers.
#[derive(Debug, Clone, Default)]
pub struct Workers {
    /// KV cache in tokens, 0 if unknown.
    pub capacity_tokens: Vec<u64>,
    /// Tokens that each is charged for.
    pub used_tokens: Vec<u64>,
    /// Steps that each runs.
    pub running: Vec<u32>,
    /// Time per token while a step runs by itself, in microseconds; -1 if unknown.
    pub token_us: Vec<f64>,
    /// Time that each further step adds to this, in microseconds; -1 if unknown.
    pub step_us: Vec<f64>,
    /// Time per prompt token, in microseconds; -1 if unknown.
    pub prefill_us: Vec<f64>,
    /// Class of hardware of each.
    pub hardware_class: Vec<u32>,
    /// Number of those with which each steps together.
    pub lockstep_group: Vec<u32>,
}

impl Workers {
    /// Idle workers with empty caches, unknown speeds and no classes, that step by themselves.
    pub fn idle(capacity_tokens: &[u64]) -> Self {
        let workers = capacity_tokens.len();
        Self {
            capacity_tokens: capacity_tokens.to_vec(),
            used_tokens: vec![0; workers],
            running: vec![0; workers],
            token_us: vec![-1.0; workers],
            step_us: vec![-1.0; workers],
            prefill_us: vec![-1.0; workers],
            hardware_class: vec![NO_CLASS; workers],
            lockstep_group: vec![NO_GROUP; workers],
        }
    }

    /// Draws workers.
    pub fn draw(random: &mut SplitMix64, workers: usize) -> Self {
        Self {
            capacity_tokens: (0..workers).map(|_| draw::amount(random)).collect(),
            used_tokens: (0..workers).map(|_| draw::amount(random)).collect(),
            running: (0..workers).map(|_| draw::count(random)).collect(),
            token_us: (0..workers).map(|_| draw::predicted(random)).collect(),
            step_us: (0..workers).map(|_| draw::predicted(random)).collect(),
            prefill_us: (0..workers).map(|_| draw::predicted(random)).collect(),
            hardware_class: (0..workers).map(|_| draw::class(random)).collect(),
            lockstep_group: (0..workers).map(|_| draw::class(random)).collect(),
        }
    }

    /// The same workers in another order.
    #[must_use]
    pub fn permuted(&self, order: &[usize]) -> Self {
        Self {
            capacity_tokens: order.iter().map(|&row| self.capacity_tokens[row]).collect(),
            used_tokens: order.iter().map(|&row| self.used_tokens[row]).collect(),
            running: order.iter().map(|&row| self.running[row]).collect(),
            token_us: order.iter().map(|&row| self.token_us[row]).collect(),
            step_us: order.iter().map(|&row| self.step_us[row]).collect(),
            prefill_us: order.iter().map(|&row| self.prefill_us[row]).collect(),
            hardware_class: order.iter().map(|&row| self.hardware_class[row]).collect(),
            lockstep_group: order.iter().map(|&row| self.lockstep_group[row]).collect(),
        }
    }

    /// The columns for a policy.
    pub fn columns(&self) -> WorkerColumns<'_> {
        WorkerColumns {
            capacity_tokens: &self.capacity_tokens,
            used_tokens: &self.used_tokens,
            running: &self.running,
            token_us: &self.token_us,
            step_us: &self.step_us,
            prefill_us: &self.prefill_us,
            hardware_class: &self.hardware_class,
            lockstep_group: &self.lockstep_group,
        }
    }
}

impl Assign {
    /// Draws programs that were on these workers before, or nowhere.
    pub fn draw_with(
        random: &mut SplitMix64,
        rows: usize,
        extra_columns: usize,
        workers: &Workers,
    ) -> Self {
        let mut table = Self::draw(random, rows, extra_columns);
        for worker in &mut table.last_worker {
            *worker = draw::worker_or_nowhere(random, workers.running.len());
        }
        table
    }

    /// The columns for a policy.
    pub fn columns_with<'a>(&'a self, workers: &'a Workers) -> AssignColumns<'a> {
        AssignColumns {
            workers: workers.columns(),
            ..self.columns()
        }
    }
}

impl Migrate {
    /// Draws programs on these workers; there must be at least one.
    pub fn draw_with(
        random: &mut SplitMix64,
        rows: usize,
        extra_columns: usize,
        workers: &Workers,
    ) -> Self {
        let mut table = Self::draw(random, rows, extra_columns);
        for worker in &mut table.at_worker {
            *worker = draw::below(random, workers.running.len() as u64) as u32;
        }
        table
    }

    /// The columns for a policy.
    pub fn columns_with<'a>(&'a self, workers: &'a Workers) -> MigrateColumns<'a> {
        MigrateColumns {
            workers: workers.columns(),
            ..self.columns()
        }
    }
}

/// One step and the workers that could take it.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// Context length of the step's program.
    pub tokens: u64,
    /// Tokens of it that each worker is believed to have cached.
    pub cached_tokens: Vec<u64>,
    /// The workers.
    pub workers: Workers,
    /// Extra columns, one after the other.
    pub extra: Vec<f32>,
}

impl Route {
    /// Draws a step and workers; none caches more than the step's context.
    pub fn draw(random: &mut SplitMix64, workers: usize, extra_columns: usize) -> Self {
        let tokens = draw::amount(random);
        let extra = 0..workers * extra_columns;
        Self {
            tokens,
            cached_tokens: (0..workers)
                .map(|_| draw::amount(random).min(tokens))
                .collect(),
            workers: Workers::draw(random, workers),
            extra: extra.map(|_| draw::extra(random)).collect(),
        }
    }

    /// The same workers in another order.
    #[must_use]
    pub fn permuted(&self, order: &[usize]) -> Self {
        let extra = self.extra.chunks(order.len().max(1));
        Self {
            tokens: self.tokens,
            cached_tokens: order.iter().map(|&row| self.cached_tokens[row]).collect(),
            workers: self.workers.permuted(order),
            extra: extra
                .flat_map(|column| order.iter().map(|&row| column[row]))
                .collect(),
        }
    }

    /// The columns for a policy.
    pub fn columns(&self) -> RouteColumns<'_> {
        RouteColumns {
            cached_tokens: &self.cached_tokens,
            tokens: self.tokens,
            workers: self.workers.columns(),
            extra: &self.extra,
        }
    }
}

/// Running steps, and the scores of waiting programs.
#[derive(Debug, Clone, Default)]
pub struct Preempt {
    /// Scores of the programs of running steps.
    pub running_score: Vec<f64>,
    /// How long each step has run.
    pub running_ms: Vec<u64>,
    /// Scores of waiting programs.
    pub waiting_score: Vec<f64>,
}

impl Preempt {
    /// Draws running steps and waiting programs.
    pub fn draw(random: &mut SplitMix64, running: usize, waiting: usize) -> Self {
        Self {
            running_score: (0..running).map(|_| draw::finite(random)).collect(),
            running_ms: (0..running).map(|_| draw::amount(random)).collect(),
            waiting_score: (0..waiting).map(|_| draw::finite(random)).collect(),
        }
    }

    /// The columns for a policy.
    pub fn columns(&self) -> PreemptColumns<'_> {
        PreemptColumns {
            running_score: &self.running_score,
            running_ms: &self.running_ms,
            waiting_score: &self.waiting_score,
        }
    }
}

/// Devices, degrees of tensor parallelism, and expected programs.
#[derive(Debug, Clone, Default)]
pub struct Parallelism {
    /// Devices to distribute.
    pub gpus: u32,
    /// Degrees, ascending.
    pub degree: Vec<u32>,
    /// Time per output token of one program by itself, in microseconds.
    pub token_us: Vec<f64>,
    /// Time that each further program adds to this, in microseconds.
    pub step_us: Vec<f64>,
    /// Time per prompt token, in microseconds.
    pub prefill_us: Vec<f64>,
    /// KV cache of one worker of that degree.
    pub capacity_tokens: Vec<u64>,
    /// Expected length of each program.
    pub expected_tokens: Vec<u64>,
    /// Context of a program in addition to its expected length.
    pub prompt_tokens: u64,
    /// Growth of contexts in tokens per generated token.
    pub growth: f64,
    /// Time in tools per generated token, in microseconds.
    pub tool_us: f64,
}

impl Parallelism {
    /// Draws degrees, at most 8, which are powers of two, and programs.
    pub fn draw(random: &mut SplitMix64, degrees: usize, programs: usize) -> Self {
        let degrees = degrees.min(8);
        Self {
            gpus: draw::below(random, 65) as u32,
            degree: (0..degrees).map(|power| 1 << power).collect(),
            token_us: (0..degrees).map(|_| draw::token_us(random)).collect(),
            step_us: (0..degrees).map(|_| draw::token_us(random)).collect(),
            prefill_us: (0..degrees).map(|_| draw::token_us(random)).collect(),
            capacity_tokens: (0..degrees).map(|_| draw::amount(random)).collect(),
            expected_tokens: (0..programs).map(|_| draw::amount(random)).collect(),
            prompt_tokens: draw::amount(random),
            growth: draw::predicted(random),
            tool_us: draw::predicted(random),
        }
    }

    /// The columns for a policy.
    pub fn columns(&self) -> ParallelismColumns<'_> {
        ParallelismColumns {
            gpus: self.gpus,
            degree: &self.degree,
            token_us: &self.token_us,
            step_us: &self.step_us,
            prefill_us: &self.prefill_us,
            capacity_tokens: &self.capacity_tokens,
            expected_tokens: &self.expected_tokens,
            prompt_tokens: self.prompt_tokens,
            growth: self.growth,
            tool_us: self.tool_us,
        }
    }
}
