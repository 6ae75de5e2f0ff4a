//! `treadle plugin test`: runs a policy on recorded inputs.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use treadle_policy_runtime::{
    CallContext, InstanceOptions, PolicyEngine, PolicyFault, PolicyInstance, PolicyModule,
};

use super::project::{Project, component};
use crate::cli::error::CliError;
use crate::cli::output::{plain, print_json, print_text, shortened};
use crate::cli::plugin::read;
use crate::cli::progress;
use crate::cli::settings::Settings;
use treadle_policy::calls::{NoAnswer, RecordedCall, ask};

/// Default file of a project's inputs.
const INPUTS_FILE: &str = "inputs.jsonl";
/// Allowed relative difference between an answer and the expected one.
const TOLERANCE: f64 = 1e-9;
/// Longest answer that is shown to people, in characters.
const ANSWER_CHARS_MAX: usize = 100;
/// The version field of a component; a core module has another.
const COMPONENT_VERSION: [u8; 4] = [0x0d, 0, 1, 0];

/// Arguments of `treadle plugin test`.
#[derive(Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// The component, or the folder of a built project.
    #[arg(default_value = ".")]
    file: PathBuf,
    /// Recorded inputs, one JSON object per line; by default inputs.jsonl of a project.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Time limit of one answer. The default is generous: a daemon applies
    /// `plugins.hot_deadline_ms`.
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    deadline_ms: u64,
    #[command(flatten)]
    settings: Settings,
}

/// The result of one line.
struct Outcome {
    line: usize,
    function: String,
    answer: Value,
    took_us: f64,
    /// Why the answer is wrong.
    complaint: Option<String>,
}

impl TestArgs {
    /// Runs the calls and prints each answer; fails if one is not as expected.
    pub(super) fn run(self, json: bool) -> Result<(), CliError> {
        let inputs = self.inputs()?;
        let module = self.compile()?;
        let mut outcomes = Vec::new();
        // An instance is reused while the configuration stays the same.
        let mut running: Option<(String, PolicyInstance)> = None;
        for (line, call) in recorded(&inputs)? {
            let config = call.config.to_string();
            let instance = match running.take() {
                Some((of, instance)) if of == config => instance,
                _ => start(&module, &config, line)?,
            };
            let (_, instance) = running.insert((config, instance));
            let outcome = self.outcome(instance, line, &call)?;
            if !json {
                print_text(&shown(&outcome))?;
            }
            outcomes.push(outcome);
        }
        if json {
            print_json(&report(&outcomes))?;
        }
        let failed = outcomes
            .iter()
            .filter(|outcome| outcome.complaint.is_some());
        match (failed.count(), outcomes.len()) {
            (_, 0) => Err(CliError::Usage(format!(
                "{} is empty; record inputs",
                inputs.display()
            ))),
            (0, _) if json => Ok(()),
            (0, count) => print_text(&format!("{count} calls, all as expected")),
            (failed, count) => Err(CliError::Failed(format!(
                "{failed} of {count} calls are not as expected; correct the policy or the inputs"
            ))),
        }
    }

    fn inputs(&self) -> Result<PathBuf, CliError> {
        match &self.inputs {
            Some(inputs) => Ok(inputs.clone()),
            None if self.file.is_dir() => Ok(Project::open(&self.file)?.folder.join(INPUTS_FILE)),
            None => Err(CliError::Usage(
                "a component has no inputs of its own; give a file with --inputs FILE".to_owned(),
            )),
        }
    }

    fn compile(&self) -> Result<PolicyModule, CliError> {
        let file = component(&self.file)?;
        let bytes = read(&file)?;
        let engine = PolicyEngine::new(self.settings.load(Vec::new())?.plugins.limits())?;
        let spinner = progress::spinner(format!("compiling {}", file.display()));
        let refused = |error: &dyn std::fmt::Display| {
            let file = file.display();
            CliError::Failed(format!(
                "{file}: {error}; `treadle plugin check {file}` has details"
            ))
        };
        // The inspection turns a core module into a component. A component skips it, because
        // compiling an interpreter twice takes long.
        let compiled = if bytes.get(4..8) == Some(&COMPONENT_VERSION) {
            engine.compile(&bytes).map_err(|error| refused(&error))
        } else {
            let inspection = engine.inspect(&bytes).map_err(|error| refused(&error));
            inspection.and_then(|passed| engine.compile(&passed.component).map_err(|e| refused(&e)))
        };
        spinner.finish_and_clear();
        compiled
    }

    fn outcome(
        &self,
        instance: &mut PolicyInstance,
        line: usize,
        call: &RecordedCall,
    ) -> Result<Outcome, CliError> {
        let context = CallContext {
            now_ms: call.now_ms,
            seed: call.seed,
            deadline_ms: Some(self.deadline_ms),
        };
        let began = Instant::now();
        let answered = ask(instance, &context, call);
        let took_us = began.elapsed().as_secs_f64() * 1e6;
        let (answer, fault) = match answered {
            Ok(answer) => (answer, None),
            Err(NoAnswer::Fault(fault)) => (error_of(&fault), Some(fault)),
            Err(NoAnswer::BadLine(what)) => {
                return Err(CliError::Usage(format!(
                    "line {line} of the inputs: {what}"
                )));
            }
        };
        let complaint = match (&call.expect, fault) {
            (Some(expect), _) if !alike(expect, &answer) => Some(format!("expected {expect}")),
            (None, Some(fault)) if fault.is_policys_fault() => Some(fault.to_string()),
            _ => None,
        };
        Ok(Outcome {
            line,
            function: call.function.clone(),
            answer,
            took_us,
            complaint,
        })
    }
}

fn start(module: &PolicyModule, config: &str, line: usize) -> Result<PolicyInstance, CliError> {
    let options = InstanceOptions::configured(config);
    module.instance(&options).map_err(|error| {
        CliError::Failed(format!(
            "line {line} of the inputs: {error}; correct the policy or the line"
        ))
    })
}

/// Recorded calls with their line numbers.
fn recorded(path: &Path) -> Result<Vec<(usize, RecordedCall)>, CliError> {
    let unreadable = |cause| CliError::File {
        path: path.to_owned(),
        cause,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut calls = Vec::new();
    for (index, line) in std::io::BufReader::new(file).lines().enumerate() {
        let line = line.map_err(unreadable)?;
        if line.trim().is_empty() {
            continue;
        }
        let call = serde_json::from_str(&line).map_err(|error| {
            CliError::Usage(format!("line {} of {}: {error}", index + 1, path.display()))
        })?;
        calls.push((index + 1, call));
    }
    Ok(calls)
}

/// A fault, in the form of an answer.
fn error_of(fault: &PolicyFault) -> Value {
    match fault {
        PolicyFault::NotSupported => json!({"error": "not-supported"}),
        PolicyFault::PolicyError(said) => {
            let (code, message) = said.split_once(": ").unwrap_or((said, ""));
            json!({"error": code, "message": message})
        }
        other => json!({"error": other.cause(), "message": other.to_string()}),
    }
}

/// Whether an answer is as expected; of errors only the codes are compared.
fn alike(expect: &Value, answer: &Value) -> bool {
    match (expect, answer) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()),
            _ => a == b,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) if a.contains_key("error") => {
            a.get("error") == b.get("error")
        }
        (Value::Object(a), Value::Object(b)) => {
            let is_in =
                |(key, value): (&String, &Value)| b.get(key).is_some_and(|b| alike(value, b));
            a.len() == b.len() && a.iter().all(is_in)
        }
        _ => expect == answer,
    }
}

fn shown(outcome: &Outcome) -> String {
    let (line, function, us) = (outcome.line, &outcome.function, outcome.took_us);
    let mark = if outcome.complaint.is_some() {
        "wrong"
    } else {
        "ok"
    };
    let answer = shortened(&plain(&outcome.answer), ANSWER_CHARS_MAX);
    let mut text = format!("{line:>4}  {mark:<5}  {function:<14}  {us:>9.1} us  {answer}");
    if let Some(complaint) = &outcome.complaint {
        text.push_str("\n      ");
        text.push_str(&shortened(complaint, ANSWER_CHARS_MAX));
    }
    text
}

fn report(outcomes: &[Outcome]) -> Value {
    let calls = outcomes.iter().map(|outcome| {
        json!({
            "line": outcome.line, "function": outcome.function, "answer": outcome.answer,
            "took_us": outcome.took_us, "complaint": outcome.complaint,
        })
    });
    json!({
        "passed": outcomes.iter().all(|outcome| outcome.complaint.is_none()),
        "calls": calls.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_with_a_tolerance_and_errors_by_their_code() {
        let same = [
            (json!([1, 0.1]), json!([1.0, 0.1 + 1e-17])),
            (
                json!({"error": "failed"}),
                json!({"error": "failed", "message": "why"}),
            ),
            (json!({"totals": [1]}), json!({"totals": [1.0]})),
            (Value::Null, Value::Null),
        ];
        for (expect, answer) in same {
            assert!(alike(&expect, &answer), "{expect} {answer}");
        }
        let different = [
            (json!([1]), json!([1.000_001])),
            (json!([1]), json!([1, 1])),
            (json!({"error": "failed"}), json!({"error": "timeout"})),
            (json!({"totals": [1]}), json!({"totals": [1], "parts": []})),
            (json!([1]), json!({"error": "failed"})),
        ];
        for (expect, answer) in different {
            assert!(!alike(&expect, &answer), "{expect} {answer}");
        }
    }

    #[test]
    fn an_error_keeps_its_code() {
        let fault = PolicyFault::PolicyError("odd: three: four".to_owned());
        assert_eq!(
            error_of(&fault),
            json!({"error": "odd", "message": "three: four"})
        );
        assert_eq!(
            error_of(&PolicyFault::NotSupported),
            json!({"error": "not-supported"})
        );
    }
}
