//! The world `prediction`: how much of each program is still to come.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{record, world};
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Check, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{Estimates, FinishedColumns, LiveColumns};

world! {
    /// A running policy of the world `prediction`.
    PredictionInstance: "prediction", Prediction, PredictionPre
}

use raw::exports::treadle::policy::prediction_policy as given;

impl PredictionInstance {
    /// Estimates for live programs.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn predict(
        &mut self,
        context: &CallContext,
        programs: &LiveColumns<'_>,
    ) -> Result<Estimates, PolicyFault> {
        self.0
            .admit("predict", &[programs.len()], |extra| programs.check(extra))?;
        let columns = record!(given::LiveColumns of programs {
            group, tokens, output_tokens, steps, tool_ms, extra,
        });
        let given = self.0.ask(
            context,
            Urgency::Background,
            |guest, store| {
                guest
                    .treadle_policy_prediction_policy()
                    .call_predict(store, columns)
            },
            |given| check_estimates(given, programs.len()),
        )?;
        Ok(Estimates {
            remaining_tokens: given.remaining_tokens,
            remaining_tokens_p90: given.remaining_tokens_p90,
            remaining_tool_s: given.remaining_tool_s,
        })
    }

    /// Passes the outcomes of ended programs to the policy.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn learn(
        &mut self,
        context: &CallContext,
        programs: &FinishedColumns<'_>,
    ) -> Result<(), PolicyFault> {
        self.0
            .admit("learn", &[programs.len()], |extra| programs.check(extra))?;
        let columns = record!(given::FinishedColumns of programs {
            group, tokens, output_tokens, steps, tool_ms, remaining_tokens, remaining_tool_ms, extra,
        });
        self.0.ask(
            context,
            Urgency::Background,
            |guest, store| {
                guest
                    .treadle_policy_prediction_policy()
                    .call_learn(store, columns)
            },
            |()| Ok(()),
        )
    }
}

fn check_estimates(given: &given::Estimates, rows: usize) -> Check {
    let mean = &given.remaining_tokens;
    answers::not_negative("remaining_tokens", mean, rows)?;
    answers::not_negative("remaining_tool_s", &given.remaining_tool_s, rows)?;
    let p90 = &given.remaining_tokens_p90;
    let expected = "a finite number not below the mean";
    answers::each("remaining_tokens_p90", p90, rows, expected, |row, value| {
        value.is_finite() && value >= mean[row]
    })
}
