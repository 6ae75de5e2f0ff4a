//! Log-probabilities that llama.cpp leaves out of its answers: those of tokens that end within a
//! character, and of a stop sequence. It is asked for each again, after the same tokens.

use super::capture::{parse, post};
use super::generate::GatewayState;
use serde::Deserialize;
use serde_json::json;

/// Tokens of an output that are asked for again.
const ASKED_MAX: usize = 1_024;
/// Tokens whose log-probabilities are listed: first the most likely ones, then all.
const LISTED: [u32; 2] = [128, 1 << 24];
/// What it samples meanwhile: a whole character, since otherwise it lists nothing.
const WHOLE: &str = "a";

#[derive(Deserialize)]
struct Answer {
    completion_probabilities: Vec<Sampled>,
}

#[derive(Deserialize)]
struct Sampled {
    top_logprobs: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    id: i32,
    logprob: f32,
}

/// The engine that is asked.
pub(super) struct Engine<'e> {
    pub(super) app: &'e GatewayState,
    pub(super) url: &'e str,
    /// The slot that has the step's cache.
    pub(super) slot: Option<u32>,
}

impl Engine<'_> {
    /// Fills in the log-probabilities that are missing.
    ///
    /// # Errors
    /// They can't be had.
    pub(super) async fn score(
        &self,
        prompt: &[i32],
        ids: &[i32],
        logprobs: &mut [f32],
    ) -> Result<(), String> {
        let missing = (0..logprobs.len()).filter(|at| logprobs[*at].is_nan());
        let missing: Vec<usize> = missing.collect();
        if missing.len() > ASKED_MAX {
            let found = missing.len();
            return Err(format!(
                "the engine left out {found} log-probabilities, more than {ASKED_MAX}"
            ));
        }
        let mut context = [prompt, ids].concat();
        for at in missing.into_iter().rev() {
            context.truncate(prompt.len() + at);
            logprobs[at] = self.logprob(&context, ids[at]).await?;
        }
        Ok(())
    }

    async fn logprob(&self, context: &[i32], id: i32) -> Result<f32, String> {
        for listed in LISTED {
            let mut request = json!({"prompt": context, "n_predict": 1, "n_probs": listed,
                "temperature": 0, "cache_prompt": true, "logit_bias": [[WHOLE, 1e9]]});
            if let Some(slot) = self.slot {
                request["id_slot"] = slot.into();
            }
            let answer = post(
                self.app,
                self.url,
                "/completion",
                request.to_string().into(),
            );
            let answer: Answer = parse(&answer.await?)?;
            let listed = answer.completion_probabilities.first();
            let mut listed = listed.into_iter().flat_map(|sampled| &sampled.top_logprobs);
            if let Some(found) = listed.find(|listed| listed.id == id) {
                return Ok(found.logprob);
            }
        }
        Err(format!(
            "the engine reports no log-probability of token {id}"
        ))
    }
}
