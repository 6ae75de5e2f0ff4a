//! Shadows: policies that get the same questions as the bound ones, off the path of decisions.
//! Their answers are recorded and compared, never used.
//!
//! One thread runs all shadows. Few questions may wait for it; further ones are skipped and
//! counted. The same thread drops replaced policies, so that freeing their memory delays no
//! decision.

use super::answer::action;
use super::bindings::Scope;
use super::call::PolicyCall;
use super::slot::PolicySlot;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use treadle_core::programs::CacheAction;
use treadle_model::{PolicyRef, ProgramId, World};
use treadle_policy_runtime::{CallContext, PolicyInstance};
use utoipa::ToSchema;

/// Maximum number of questions that wait for shadows. Other tasks are not limited: there is one for
/// each change of a binding and each policy that failed, and the driver must neither wait for the
/// thread nor lose one.
const QUESTIONS_MAX: usize = 32;
/// Number of stored comparisons per shadow.
const COMPARISONS_MAX: usize = 64;
/// Maximum number of rows that are compared pair by pair.
const COMPARED_ROWS_MAX: usize = 256;

/// One question that a shadow also answered.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ShadowComparison)]
pub struct Comparison {
    /// When it was asked, in milliseconds on the scheduler's clock.
    pub at_ms: u64,
    /// The kind of question.
    pub question: &'static str,
    /// Its rows.
    pub rows: usize,
    /// Share of pairs of programs in the same order; for weights, 1 minus the mean difference; for
    /// caches, the share with the same outcome.
    pub agreement: f64,
    /// The program that the bound policy put first, by its number.
    // For caches, the first that does not stay.
    #[schema(value_type = Option<u64>)]
    pub bound_first: Option<ProgramId>,
    /// The program that the shadow put first.
    #[schema(value_type = Option<u64>)]
    pub shadow_first: Option<ProgramId>,
}

/// A policy that answers beside the active one, and their agreement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Shadow)]
pub struct ShadowReport {
    /// The policy.
    #[schema(value_type = Option<String>)]
    pub policy: Option<PolicyRef>,
    /// Questions that it answered.
    pub answered: u64,
    /// Questions that it failed to answer.
    pub faults: u64,
    /// Its latest fault.
    pub latest_fault: Option<String>,
    /// Questions that were skipped because the shadows were busy.
    pub skipped: u64,
    /// Answers with the same first program as the bound policy's.
    pub same_first: u64,
    /// Mean agreement of all answers, from 0 to 1.
    pub agreement: f64,
    /// The latest comparisons, newest last.
    #[schema(value_type = Vec<Comparison>)]
    pub recent: VecDeque<Comparison>,
}

impl ShadowReport {
    fn record(&mut self, comparison: Comparison) {
        self.answered += 1;
        self.same_first += u64::from(comparison.bound_first == comparison.shadow_first);
        self.agreement += (comparison.agreement - self.agreement) / self.answered as f64;
        if self.recent.len() == COMPARISONS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(comparison);
    }
}

/// The world and scope of a shadow.
type ShadowKey = (World, Scope);
type Reports = Arc<Mutex<BTreeMap<ShadowKey, ShadowReport>>>;

enum ShadowTask {
    Install(ShadowKey, Box<PolicySlot>),
    Remove(ShadowKey),
    Ask {
        key: ShadowKey,
        call: Box<PolicyCall<'static>>,
        bound: Vec<f64>,
        now_ms: u64,
    },
    Dispose(Box<PolicySlot>),
    Warm(Box<PolicyInstance>, SyncSender<Box<PolicyInstance>>),
}

/// The thread of the shadows.
pub(super) struct Shadows {
    tasks: Sender<ShadowTask>,
    /// Number of waiting questions.
    waiting: Arc<AtomicUsize>,
    reports: Reports,
}

impl Shadows {
    /// Starts the thread; it ends when this is dropped.
    pub(super) fn start() -> Self {
        let (tasks, received) = channel();
        let reports = Reports::default();
        let theirs = Arc::clone(&reports);
        let waiting = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("treadle-shadow".into());
        if let Err(error) = thread.spawn(move || run(&received, &taken, &theirs)) {
            // Without the thread the channel is closed, and shadows report nothing.
            tracing::error!(%error, "starting the shadow thread failed");
        }
        Self {
            tasks,
            waiting,
            reports,
        }
    }

    /// Installs a shadow, replacing an earlier one.
    pub(super) fn install(&self, world: World, scope: Scope, slot: PolicySlot) {
        let report = ShadowReport {
            policy: Some(slot.policy.clone()),
            ..ShadowReport::default()
        };
        let key = (world, scope);
        lock(&self.reports).insert(key.clone(), report);
        let _ = self.tasks.send(ShadowTask::Install(key, Box::new(slot)));
    }

    /// Removes a shadow.
    pub(super) fn leave(&self, world: World, scope: Scope) {
        let key = (world, scope);
        lock(&self.reports).remove(&key);
        let _ = self.tasks.send(ShadowTask::Remove(key));
    }

    /// Sends a shadow a question and the bound policy's answer.
    pub(super) fn show(
        &self,
        world: World,
        scope: Scope,
        call: PolicyCall<'static>,
        bound: &[f64],
        now_ms: u64,
    ) {
        let key = (world, scope);
        if self.waiting.load(Ordering::Relaxed) >= QUESTIONS_MAX {
            if let Some(report) = lock(&self.reports).get_mut(&key) {
                report.skipped += 1;
            }
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.tasks.send(ShadowTask::Ask {
            key,
            call: Box::new(call),
            bound: bound.to_vec(),
            now_ms,
        });
    }

    /// Restarts an instance that was dropped after a fault; it is returned through the channel.
    pub(super) fn warm(&self, instance: Box<PolicyInstance>) -> Receiver<Box<PolicyInstance>> {
        let (sender, back) = sync_channel(1);
        let _ = self.tasks.send(ShadowTask::Warm(instance, sender));
        back
    }

    /// Frees a policy that is no longer needed.
    pub(super) fn dispose(&self, slot: PolicySlot) {
        let _ = self.tasks.send(ShadowTask::Dispose(Box::new(slot)));
    }

    /// The results of a shadow.
    pub(super) fn report(&self, world: World, scope: &Scope) -> Option<ShadowReport> {
        lock(&self.reports).get(&(world, scope.clone())).cloned()
    }
}

fn lock(reports: &Reports) -> std::sync::MutexGuard<'_, BTreeMap<ShadowKey, ShadowReport>> {
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(tasks: &Receiver<ShadowTask>, waiting: &AtomicUsize, reports: &Reports) {
    let mut slots: BTreeMap<ShadowKey, Box<PolicySlot>> = BTreeMap::new();
    while let Ok(task) = tasks.recv() {
        match task {
            ShadowTask::Install(key, slot) => {
                slots.insert(key, slot);
            }
            ShadowTask::Remove(key) => {
                slots.remove(&key);
            }
            ShadowTask::Dispose(slot) => drop(slot),
            ShadowTask::Warm(mut instance, back) => {
                if let Err(fault) = instance.warm(&CallContext::default()) {
                    tracing::warn!(%fault, "restarting a policy failed");
                }
                let _ = back.send(instance);
            }
            ShadowTask::Ask {
                key,
                call,
                bound,
                now_ms,
            } => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                let Some(slot) = slots.get_mut(&key) else {
                    continue;
                };
                let named = slot.extra.clone();
                // A shadow's instance never leaves this thread.
                let Some(instance) = slot.instance() else {
                    continue;
                };
                let answer = call.put_to_shadow(instance, &named, now_ms);
                if let Some(report) = lock(reports).get_mut(&key) {
                    match answer {
                        Ok(scores) => report.record(compare(&call, &bound, &scores, now_ms)),
                        // A function that it leaves to the default is not compared.
                        Err(fault) if !fault.is_policys_fault() => {}
                        Err(fault) => {
                            report.faults += 1;
                            report.latest_fault = Some(fault.to_string());
                        }
                    }
                }
            }
        }
    }
}

fn compare(call: &PolicyCall<'_>, bound: &[f64], shadow: &[f64], now_ms: u64) -> Comparison {
    let first = |scores: &[f64]| {
        let mut rows = 0..scores.len();
        let best = if call.is_retention() {
            rows.find(|row| action(scores[*row]) != CacheAction::Keep)
        } else {
            // On equal scores the earlier row wins.
            rows.max_by(|a, b| scores[*a].total_cmp(&scores[*b]).then(b.cmp(a)))
        };
        best.map(|row| call.programs.program[row])
    };
    let agreement = if call.asks_for_weights() {
        1.0 - mean_difference(bound, shadow)
    } else if call.is_retention() {
        same_actions(bound, shadow)
    } else {
        concordance(bound, shadow)
    };
    Comparison {
        at_ms: now_ms,
        question: call.name(),
        rows: bound.len(),
        agreement,
        bound_first: first(bound),
        shadow_first: first(shadow),
    }
}

fn mean_difference(a: &[f64], b: &[f64]) -> f64 {
    let pairs = a.len().min(b.len());
    if pairs == 0 {
        return 0.0;
    }
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / pairs as f64
}

/// Share of caches with the same action; 1 without caches.
fn same_actions(a: &[f64], b: &[f64]) -> f64 {
    let rows = a.len().min(b.len());
    if rows == 0 {
        return 1.0;
    }
    let same = a.iter().zip(b).filter(|(a, b)| action(**a) == action(**b));
    same.count() as f64 / rows as f64
}

/// Share of pairs of rows that are in the same order in both, ties included; 1 without pairs.
fn concordance(a: &[f64], b: &[f64]) -> f64 {
    let rows = a.len().min(b.len()).min(COMPARED_ROWS_MAX);
    let (mut same, mut pairs) = (0_u64, 0_u64);
    for i in 0..rows {
        for j in i + 1..rows {
            pairs += 1;
            same += u64::from(a[i].total_cmp(&a[j]) == b[i].total_cmp(&b[j]));
        }
    }
    if pairs == 0 {
        1.0
    } else {
        same as f64 / pairs as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concordance_is_one_for_the_same_order_and_nought_for_the_reverse() {
        let up = [1.0, 2.0, 3.0];
        assert!((concordance(&up, &[10.0, 20.0, 30.0]) - 1.0).abs() < 1e-12);
        assert!(concordance(&up, &[3.0, 2.0, 1.0]).abs() < 1e-12);
        assert!((concordance(&up, &[2.0, 1.0, 3.0]) - 2.0 / 3.0).abs() < 1e-12);
        assert!((concordance(&[1.0], &[5.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn cache_actions_agree_by_the_share_of_equal_ones() {
        let found = same_actions(&[0.0, 1.0, 3.0, 2.0], &[0.0, 1.0, 2.0, 2.0]);
        assert!((found - 0.75).abs() < 1e-12);
        assert!((same_actions(&[], &[]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn weights_agree_by_their_distance() {
        assert!((mean_difference(&[1.0, 0.0], &[0.5, 0.5]) - 0.5).abs() < 1e-12);
        assert!(mean_difference(&[], &[]).abs() < 1e-12);
    }
}
