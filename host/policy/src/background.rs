//! The evaluator of the worlds that scheduling does not wait for: prediction and reward. Clients'
//! questions about allocation go to a policy instance of their own.

use super::background_native::{Native, Prediction};
use super::calls::{self, NoAnswer, RecordedCall};
use super::lock;
use crate::columns::ENDED_COLUMN;
use crate::evaluator::{BoundPolicy, Change, Changed, Notice, PolicyEvaluator, PolicyState, Scope};
use serde_json::Value;
use std::sync::Mutex;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;
use treadle_core::bindings::BindingEvent;
use treadle_model::{PolicyRef, World};
use treadle_plugin::{Estimates, PolicyError};
use treadle_policy_runtime::{
    CallContext, FinishedColumns, LiveColumns, PolicyFault, PolicyInstance,
};

/// An evaluator shared among requests; it answers one question at a time.
pub struct BackgroundEvaluator {
    evaluator: Mutex<PolicyEvaluator>,
    native: Mutex<Native>,
    /// Where to report bindings that the evaluator changed by itself.
    notices: UnboundedSender<Notice>,
    /// The start of the evaluator's clock.
    began: Instant,
}

impl BackgroundEvaluator {
    /// Wraps an evaluator; the built-in defaults are its fallback.
    pub fn new(
        evaluator: PolicyEvaluator,
        notices: UnboundedSender<Notice>,
    ) -> Result<Self, PolicyError> {
        Ok(Self {
            evaluator: Mutex::new(evaluator),
            native: Mutex::new(Native::new()?),
            notices,
            began: Instant::now(),
        })
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Applies a change of a binding that is on record.
    pub fn follow(&self, event: &BindingEvent, loaded: Option<BoundPolicy>) -> Changed {
        let now_ms = self.now_ms();
        lock(&self.evaluator).follow(event, loaded, now_ms)
    }

    /// Gives a policy its role from before a restart.
    pub fn restore(&self, world: World, scope: &Scope, change: Change) {
        let now_ms = self.now_ms();
        // A change that assigns a role is never refused.
        let _ = lock(&self.evaluator).change(world, scope, change, now_ms);
    }

    /// Reads from the evaluator.
    pub fn read<T>(&self, read: impl FnOnce(&PolicyEvaluator) -> T) -> T {
        read(&lock(&self.evaluator))
    }

    /// The state of the bound policies, to be stored.
    pub fn states(&self) -> Vec<PolicyState> {
        let now_ms = self.now_ms();
        lock(&self.evaluator).states(now_ms)
    }

    /// Calls a policy that is not bound here.
    pub fn ask_unbound(
        &self,
        instance: &mut PolicyInstance,
        call: &RecordedCall,
    ) -> Result<Value, NoAnswer> {
        calls::ask(instance, &CallContext::at(self.now_ms()), call)
    }

    /// Calls the built-in default.
    pub fn ask_native(&self, call: &RecordedCall) -> Result<Value, NoAnswer> {
        let context = CallContext::at(self.now_ms());
        calls::ask_native(&mut lock(&self.native), &context, call)
    }

    /// Predictions for programs, by the policy bound for the job or by the built-in default.
    /// `extra` builds the extra columns with the given indices.
    pub fn predict(
        &self,
        job: &str,
        columns: &LiveColumns<'_>,
        extra: impl FnOnce(&[usize]) -> Vec<f32>,
    ) -> Option<Estimates> {
        let bound = self.ask_prediction(job, columns.len(), |instance, context, named| {
            let extra = extra(named);
            let columns = LiveColumns {
                extra: &extra,
                ..*columns
            };
            let instance = instance.as_prediction_mut();
            instance
                .ok_or(PolicyFault::NotSupported)?
                .predict(context, &columns)
        });
        if let Some((_, estimates)) = bound {
            return Some(estimates);
        }
        let context = CallContext::at(self.now_ms());
        let native = &mut lock(&self.native).prediction;
        Prediction::predict(native, &context, columns).ok()
    }

    /// Reports the outcomes of programs to the policy bound for the job, and to the built-in
    /// default too, which may have to replace it. The rows after the first `ended` are programs
    /// that were cut short: only a policy that asks for the column `ended` gets them.
    pub fn learn(
        &self,
        job: &str,
        columns: &FinishedColumns<'_>,
        ended: usize,
        extra: impl FnOnce(&[usize], usize) -> Vec<f32>,
    ) {
        let of_ended = first(columns, ended);
        let _ = self.ask_prediction(job, columns.len(), |instance, context, named| {
            let given = if named.contains(&ENDED_COLUMN) {
                columns
            } else {
                &of_ended
            };
            let extra = extra(named, given.len());
            let columns = FinishedColumns {
                extra: &extra,
                ..*given
            };
            let instance = instance.as_prediction_mut();
            instance
                .ok_or(PolicyFault::NotSupported)?
                .learn(context, &columns)
        });
        let context = CallContext::at(self.now_ms());
        let native = &mut lock(&self.native).prediction;
        // The default only refuses columns of unequal length.
        let _ = Prediction::learn(native, &context, &of_ended);
    }

    /// Calls the prediction policy with the extra columns that it asks for.
    fn ask_prediction<T>(
        &self,
        job: &str,
        rows: usize,
        ask: impl FnOnce(&mut PolicyInstance, &CallContext, &[usize]) -> Result<T, PolicyFault>,
    ) -> Option<(PolicyRef, T)> {
        let now_ms = self.now_ms();
        let context = CallContext::at(now_ms);
        let mut evaluator = lock(&self.evaluator);
        let named = evaluator.extra_of(World::Prediction, job);
        let answer = evaluator.ask_bound(World::Prediction, job, rows, now_ms, |instance| {
            ask(instance, &context, &named)
        });
        self.report(&mut evaluator);
        answer
    }

    /// Calls the policy bound for a job. `None` if the built-in default has to answer.
    pub fn ask<T>(
        &self,
        world: World,
        job: &str,
        rows: usize,
        ask: impl FnOnce(&mut PolicyInstance, u64) -> Result<T, PolicyFault>,
    ) -> Option<(PolicyRef, T)> {
        let now_ms = self.now_ms();
        let mut evaluator = lock(&self.evaluator);
        let answer =
            evaluator.ask_bound(world, job, rows, now_ms, |instance| ask(instance, now_ms));
        self.report(&mut evaluator);
        answer
    }

    fn report(&self, evaluator: &mut PolicyEvaluator) {
        while let Some(notice) = evaluator.poll_notice() {
            let _ = self.notices.send(notice);
        }
    }
}

/// The first rows of a table without extra columns.
fn first<'t>(columns: &FinishedColumns<'t>, rows: usize) -> FinishedColumns<'t> {
    let rows = rows.min(columns.len());
    FinishedColumns {
        group: &columns.group[..rows],
        tokens: &columns.tokens[..rows],
        output_tokens: &columns.output_tokens[..rows],
        steps: &columns.steps[..rows],
        tool_ms: &columns.tool_ms[..rows],
        remaining_tokens: &columns.remaining_tokens[..rows],
        remaining_tool_ms: &columns.remaining_tool_ms[..rows],
        extra: &[],
    }
}
