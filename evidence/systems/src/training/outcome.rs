//! What a run came to.

use serde::Serialize;
use std::collections::BTreeMap;
use treadle_core::training::{Account, Outcomes};

/// A batch, when it was cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct BatchSeen {
    /// When the trainer had trained on it, in seconds.
    pub(super) trained_s: f64,
    /// When it was cut, in seconds.
    pub(super) cut_s: f64,
    /// How long the trainer had waited for it, in seconds.
    pub(super) waited_s: f64,
    /// From the first member that began to the cut, in seconds.
    pub(super) rollout_s: f64,
    /// Tokens of its sequences.
    pub(super) tokens: u64,
    /// Tokens that its members sampled.
    pub(super) sampled_tokens: u64,
    /// Largest lag of its groups.
    pub(super) lag: u64,
    /// Sum of their lags.
    pub(super) lags: u64,
    /// Its groups.
    pub(super) groups: u64,
    /// Groups that sampled as many members as they may.
    pub(super) saturated: u64,
    /// Most often that one of its prompts returned to the queue.
    pub(super) returned: u32,
}

/// Lengths, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct LengthFigures {
    /// Trajectories.
    pub(super) count: u64,
    /// Mean.
    pub(super) mean: f64,
    /// Median.
    pub(super) p50: f64,
    /// 90th percentile.
    pub(super) p90: f64,
    /// The longest.
    pub(super) max: f64,
}

impl LengthFigures {
    pub(super) fn of(lengths: &[u64]) -> Self {
        let mut sorted = lengths.to_vec();
        sorted.sort_unstable();
        let at = |share: f64| {
            let place = (share * sorted.len().saturating_sub(1) as f64).round();
            sorted.get(place as usize).copied().unwrap_or(0) as f64
        };
        Self {
            count: sorted.len() as u64,
            mean: sorted.iter().sum::<u64>() as f64 / sorted.len().max(1) as f64,
            p50: at(0.5),
            p90: at(0.9),
            max: at(1.0),
        }
    }
}

/// A domain's share of what began and of what was trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct DomainShare {
    /// Members that began.
    pub(super) begun: f64,
    /// Members that were trained.
    pub(super) trained: f64,
}

/// A run's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Outcome {
    /// Mean time of a training step, in seconds.
    pub(super) step_s: f64,
    /// Mean time from a batch's first member to its cut, in seconds.
    pub(super) rollout_s: f64,
    /// Share of the time that the trainer waits for a batch.
    pub(super) waiting_share: f64,
    /// Share of the engines' time that they compute.
    pub(super) engines_busy: f64,
    /// Share of the judges' time that they judge.
    pub(super) judges_busy: f64,
    /// Tokens of a batch's sequences, mean.
    pub(super) batch_tokens: f64,
    /// Tokens that engines sampled for each one that was trained.
    pub(super) sampled_per_trained: f64,
    /// Members that began for each one that was trained.
    pub(super) begun_per_trained: f64,
    /// Largest lag of any group that was trained.
    pub(super) lag_max: u64,
    /// Mean lag of groups that were trained.
    pub(super) lag_mean: f64,
    /// Time that engines stood still for weights, in seconds a step.
    pub(super) paused_s: f64,
    /// Time that weights travelled, in seconds a step.
    pub(super) transfer_s: f64,
    /// Share of groups that sampled as many members as they may.
    pub(super) saturated_share: f64,
    /// Most often that a trained prompt had returned to the queue.
    pub(super) returned_max: u32,
    /// Cost of a step: accelerators by their cost, times seconds.
    pub(super) step_cost: f64,
    /// Lengths of members that began, as they would have been.
    pub(super) begun: LengthFigures,
    /// Lengths of members that were trained.
    pub(super) trained: LengthFigures,
    /// By domain.
    pub(super) domains: BTreeMap<String, DomainShare>,
    /// Members lost, by reason.
    pub(super) lost: BTreeMap<String, u64>,
    /// Members whose environment failed, for each one that was trained.
    pub(super) failed_per_trained: f64,
    /// What is learnt of lengths at the end: what is added to their logarithm.
    pub(super) shift: f64,
    /// Nothing happened any more before all steps were trained.
    pub(super) stalled: bool,
    /// Members that began, and what became of them; both are the same number.
    pub(super) conserved: Conserved,
    /// Batches.
    pub(super) batches: Vec<BatchSeen>,
}

/// Both sides of an account.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub(super) struct Conserved {
    /// Members that began.
    pub(super) members_begun: u64,
    /// Members that were trained, were lost, or are still in groups.
    pub(super) members_accounted: u64,
    /// Groups that were submitted.
    pub(super) groups_submitted: u64,
    /// Groups that were trained, were given up, or are still queued.
    pub(super) groups_accounted: u64,
}

fn lost_members(of: &Outcomes) -> u64 {
    of.lost.values().map(|tally| tally.members).sum()
}

impl Outcome {
    /// Takes over what the core counted.
    pub(super) fn count(&mut self, account: &Account, in_groups: u64) {
        let all = &account.all;
        let trained = all.served.members.max(1) as f64;
        let lost_tokens: u64 = all.lost.values().map(|tally| tally.tokens).sum();
        let trained_tokens = all.served.tokens.max(1);
        self.sampled_per_trained = (lost_tokens + trained_tokens) as f64 / trained_tokens as f64;
        self.begun_per_trained = (all.begun - in_groups) as f64 / trained;
        for (end, tally) in &all.lost {
            let name = serde_json::to_value(end).ok();
            let name = name.and_then(|name| name.as_str().map(str::to_owned));
            self.lost.insert(name.unwrap_or_default(), tally.members);
        }
        let failed = self.lost.get("environment_failed").copied();
        self.failed_per_trained = failed.unwrap_or(0) as f64 / trained;
        self.conserved.members_begun = all.begun;
        self.conserved.members_accounted = all.served.members + lost_members(all) + in_groups;
        for (domain, of) in &account.domains {
            let share = DomainShare {
                begun: of.begun as f64 / all.begun.max(1) as f64,
                trained: of.served.members as f64 / trained,
            };
            self.domains.insert(domain.to_string(), share);
        }
    }

    /// Means over the batches after the first ones.
    pub(super) fn average(&mut self, warmup: u64) {
        let counted = self.batches.len().saturating_sub(warmup as usize).max(1) as f64;
        let later = || self.batches.iter().skip(warmup as usize);
        let sum = |of: fn(&BatchSeen) -> f64| later().map(of).sum::<f64>();
        let begin = self.batches.get((warmup as usize).wrapping_sub(1));
        let begin_s = begin.map_or(0.0, |batch| batch.trained_s);
        let end_s = self.batches.last().map_or(0.0, |batch| batch.trained_s);
        let groups = sum(|batch| batch.groups as f64).max(1.0);
        let (rollout, waited) = (sum(|batch| batch.rollout_s), sum(|batch| batch.waited_s));
        let (tokens, lags) = (
            sum(|batch| batch.tokens as f64),
            sum(|batch| batch.lags as f64),
        );
        let saturated = sum(|batch| batch.saturated as f64);
        self.step_s = (end_s - begin_s) / counted;
        self.rollout_s = rollout / counted;
        self.waiting_share = waited / (end_s - begin_s).max(1e-9);
        self.batch_tokens = tokens / counted;
        self.lag_mean = lags / groups;
        self.saturated_share = saturated / groups;
        let all = self.batches.iter();
        self.lag_max = all.clone().map(|batch| batch.lag).max().unwrap_or(0);
        self.returned_max = all.map(|batch| batch.returned).max().unwrap_or(0);
    }
}
