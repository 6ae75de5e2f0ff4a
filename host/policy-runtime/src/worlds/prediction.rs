//! The world `prediction`: how much of each program is still to come.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{calls, record, world};
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

calls! { PredictionInstance, treadle_policy_prediction_policy:
    /// Estimates for live programs.
    predict(programs: LiveColumns) -> Estimates {
        admit "predict" [programs.len()] |extra| programs.check(extra);
        ask Background call_predict(record!(given::LiveColumns of programs {
            group, tokens, output_tokens, steps, tool_ms, extra,
        }));
        check |estimates| check_estimates(estimates, programs.len());
        into estimates => record!(Estimates of estimates {
            remaining_tokens, remaining_tokens_p90, remaining_tool_s,
        });
    }

    /// Passes the outcomes of ended programs to the policy.
    learn(programs: FinishedColumns) -> () {
        admit "learn" [programs.len()] |extra| programs.check(extra);
        ask Background call_learn(record!(given::FinishedColumns of programs {
            group, tokens, output_tokens, steps, tool_ms, remaining_tokens, remaining_tool_ms, extra,
        }));
        check |()| Ok(());
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
