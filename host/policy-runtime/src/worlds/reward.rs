//! The world `reward`: the value of a finished program.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::world;
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Check, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{AnswerColumns, Scores};

world! {
    /// A running policy of the world `reward`.
    RewardInstance: "reward", Reward, RewardPre
}

use raw::exports::treadle::policy::reward_policy as given;

/// Maximum length of a part's name.
const PART_NAME_BYTES_MAX: usize = 64;

impl RewardInstance {
    /// Rewards of finished programs.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn score(
        &mut self,
        context: &CallContext,
        programs: &AnswerColumns<'_>,
    ) -> Result<Scores, PolicyFault> {
        self.0
            .admit("score", &[programs.len()], |extra| programs.check(extra))?;
        let limits = &self.0.core().limits;
        let parts_max = limits.reward_parts_max;
        check_texts(programs, limits.text_bytes_max)?;
        let columns = given::AnswerColumns {
            answer: &texts(programs.answer),
            reference: &texts(programs.reference),
            output_tokens: programs.output_tokens,
            steps: programs.steps,
            extra: programs.extra,
        };
        let given = self.0.ask(
            context,
            Urgency::Background,
            |guest, store| {
                guest
                    .treadle_policy_reward_policy()
                    .call_score(store, columns)
            },
            |given| check_scores(given, programs.len(), parts_max),
        )?;
        Ok(Scores {
            totals: given.totals,
            part_names: given.part_names,
            parts: given.parts,
        })
    }
}

/// Borrowed for the call.
fn texts(column: &[String]) -> Vec<&str> {
    column.iter().map(String::as_str).collect()
}

/// Limits the total size of texts, because the guest copies them.
fn check_texts(programs: &AnswerColumns<'_>, max: usize) -> Result<(), PolicyFault> {
    let texts = programs.answer.iter().chain(programs.reference);
    let bytes: usize = texts.map(String::len).sum();
    if bytes > max {
        return Err(PolicyFault::BadInput {
            detail: format!("the texts have {bytes} bytes; ask for at most {max} at once"),
        });
    }
    Ok(())
}

fn check_scores(given: &given::Scores, rows: usize, parts_max: usize) -> Check {
    answers::finite("totals", &given.totals, rows)?;
    let names = &given.part_names;
    if names.len() > parts_max {
        return Err(format!(
            "part_names: {} names, expected at most {parts_max}",
            names.len()
        ));
    }
    let wrong = |name: &String| name.is_empty() || name.len() > PART_NAME_BYTES_MAX;
    if let Some(at) = names.iter().position(wrong) {
        return Err(format!(
            "part_names: {} bytes in entry {at}, expected 1 to {PART_NAME_BYTES_MAX}",
            names[at].len()
        ));
    }
    answers::finite("parts", &given.parts, names.len() * rows)
}
