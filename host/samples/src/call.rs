//! A call as it is stored until its program's sample is assembled: the tokens that it adds, and
//! what its engine said.

use crate::batch::bytes_of;
use crate::check::{Fault, check, check_scored};
use crate::delta::{Delta, DeltaError, restore};
use crate::step::{Delivery, Medium, Span, Step};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, SafeTensorError, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// What the names of a program's stored calls begin with. Other names may, too: programs may have
/// slashes in theirs.
pub fn calls_of(program: &str) -> String {
    format!("step/{program}/")
}

/// The name of a stored call. Names of a program sort by number.
pub fn name_of_call(program: &str, number: u64) -> String {
    format!("{}{number:020}", calls_of(program))
}

/// The number in the name of a stored call of this program.
pub fn number_in(name: &str, program: &str) -> Option<u64> {
    let digits = name.strip_prefix(&calls_of(program))?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// A captured call of a program. Each of its outputs is a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Number of the call, which orders those of a program.
    pub number: u64,
    /// Ids of the prompt's tokens.
    pub prompt: Vec<i32>,
    /// Its outputs, usually one.
    pub outputs: Vec<Output>,
    /// What else is known of it.
    pub facts: CallFacts,
}

/// An output of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Ids of the sampled tokens, the stop token included.
    pub ids: Vec<i32>,
    /// Log-probability of each.
    pub logprobs: Vec<f32>,
}

/// What is known of a call beside its tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallFacts {
    /// Version of the weights that sampled it.
    pub version: u64,
    /// Versions of ranges of each output, if they are not all that one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Vec<Span>>,
    /// Prompt tokens by the engine's own count, if it gave one.
    pub prompt_tokens: Option<u64>,
    /// Output tokens of all outputs by the engine's own count, if it gave one.
    pub output_tokens: Option<u64>,
    /// Digests of images and audio in the prompt, in their order, as hexadecimal text.
    pub media: Vec<String>,
    /// Where each begins in the prompt, if the engine's ids show it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<usize>,
    /// The kind of engine.
    pub engine: String,
    /// Name of the model that sampled it, if that is another one than its job's: context only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub other_model: String,
    /// The kind of its log-probabilities; empty if it was not asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub logprobs: String,
    /// Text of the first output, without thinking and calls.
    pub text: String,
    /// Whether it continued an answer by its tokens, if its job wants that; else why not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub history: String,
}

/// The engine that reports 0 for tokens that it drafted and did not score.
const DRAFTING: &str = "llamacpp";

/// What is stored of a call beside its tokens.
#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    base: Option<u64>,
    base_tokens: usize,
    /// Tokens of each output.
    outputs: Vec<usize>,
    facts: CallFacts,
}

/// Why a stored call can't be read.
#[derive(Debug, Error)]
pub enum CallError {
    /// The file is not one of these.
    #[error("this can't be read as a stored call: {0}")]
    Format(#[from] SafeTensorError),
    /// Its description is no JSON, or another one.
    #[error("this can't be read as a stored call: {0}")]
    Meta(#[from] serde_json::Error),
    /// It has other numbers of tokens than it says.
    #[error(
        "the stored call has {found} output tokens and {logprobs} log-probabilities, not {named}"
    )]
    Tokens {
        /// Tokens that it has.
        found: usize,
        /// Log-probabilities that it has.
        logprobs: usize,
        /// Tokens that it should have.
        named: usize,
    },
    /// It builds on a call that is not there.
    #[error(transparent)]
    Delta(#[from] DeltaError),
}

impl Call {
    /// The step of its first output; later prompts are stored as differences from it.
    pub fn first_step(&self) -> Step {
        let output = self.outputs.first().cloned().unwrap_or_default();
        Step {
            number: self.number,
            prompt: self.prompt.clone(),
            output: output.ids,
            ..Step::default()
        }
    }

    /// Checks each output, as [`check`] does, and all against the engine's count.
    ///
    /// # Errors
    /// What was found first, in words.
    pub fn check(&mut self) -> Result<(), String> {
        let sampled: usize = self.outputs.iter().map(|output| output.ids.len()).sum();
        if let Some(counted) = self.facts.output_tokens.filter(|n| *n != sampled as u64) {
            let what = "output";
            let ids = sampled;
            return Err(Fault::Count { what, counted, ids }.to_string());
        }
        let mut step = Step {
            prompt: std::mem::take(&mut self.prompt),
            prompt_tokens: self.facts.prompt_tokens,
            media: self.facts.media(),
            ..Step::default()
        };
        let mut found = Ok(());
        let mut spans = self.facts.spans.iter().cloned();
        for output in &mut self.outputs {
            std::mem::swap(&mut step.output, &mut output.ids);
            std::mem::swap(&mut step.logprobs, &mut output.logprobs);
            step.versions = spans.next().unwrap_or_default();
            found = found.and(check(&step, None));
            if self.facts.engine == DRAFTING {
                found = found.and(check_scored(&step.logprobs));
            }
            std::mem::swap(&mut step.output, &mut output.ids);
            std::mem::swap(&mut step.logprobs, &mut output.logprobs);
        }
        self.prompt = step.prompt;
        found.map_err(|fault| fault.to_string())
    }

    /// How many tokens a stored call has as steps: its prompt with each output.
    ///
    /// # Errors
    /// [`CallError`] if this is something else.
    pub fn tokens_of(bytes: &[u8]) -> Result<usize, CallError> {
        let file = SafeTensors::deserialize(bytes)?;
        let meta: Meta = serde_json::from_slice(file.tensor("meta")?.data())?;
        let tail = file.tensor("prompt")?.data().len() / 4;
        let prompt = meta.base_tokens.saturating_add(tail);
        let outputs = meta
            .outputs
            .iter()
            .fold(0_usize, |sum, n| sum.saturating_add(*n));
        let prompts = prompt.saturating_mul(meta.outputs.len());
        Ok(prompts.saturating_add(outputs))
    }

    /// Its steps, one for each output, numbered from `first`.
    pub fn into_steps(self, first: u64, delivery: Delivery) -> Vec<Step> {
        let Self {
            prompt,
            outputs,
            facts,
            ..
        } = self;
        // The engine counts all outputs together.
        let is_one = outputs.len() == 1;
        let (mut spans, media) = (facts.spans.iter(), facts.media());
        let outputs = (first..).zip(outputs);
        let steps = outputs.map(|(number, output)| Step {
            number,
            prompt: prompt.clone(),
            prompt_tokens: facts.prompt_tokens,
            output_tokens: facts.output_tokens.filter(|_| is_one),
            versions: match spans.next() {
                Some(spans) => spans.clone(),
                None => vec![Span::whole(&output.ids, facts.version)],
            },
            output: output.ids,
            logprobs: output.logprobs,
            media: media.clone(),
            delivery,
            foreign: !facts.other_model.is_empty(),
        });
        steps.collect()
    }

    /// Writes it; `delta` is its prompt.
    ///
    /// # Errors
    /// It can't be written.
    pub fn encode(&self, delta: &Delta) -> Result<Vec<u8>, CallError> {
        let meta = Meta {
            base: delta.base,
            base_tokens: delta.base_tokens,
            outputs: self.outputs.iter().map(|o| o.ids.len()).collect(),
            facts: self.facts.clone(),
        };
        let meta = serde_json::to_vec(&meta)?;
        let (mut outputs, mut logprobs) = (Vec::new(), Vec::new());
        for output in &self.outputs {
            outputs.extend(bytes_of(&output.ids, i32::to_le_bytes));
            logprobs.extend(bytes_of(&output.logprobs, f32::to_le_bytes));
        }
        let prompt = bytes_of(&delta.tail, i32::to_le_bytes);
        let tensor =
            |dtype, bytes, width| TensorView::new(dtype, vec![<[u8]>::len(bytes) / width], bytes);
        let tensors = [
            ("logprobs", tensor(Dtype::F32, &logprobs, 4)?),
            ("meta", tensor(Dtype::U8, &meta, 1)?),
            ("output", tensor(Dtype::I32, &outputs, 4)?),
            ("prompt", tensor(Dtype::I32, &prompt, 4)?),
        ];
        Ok(safetensors::tensor::serialize(tensors, None)?)
    }

    /// The text of a stored call, without its tokens.
    ///
    /// # Errors
    /// [`CallError`] if this is something else.
    pub fn text_of(bytes: &[u8]) -> Result<String, CallError> {
        let file = SafeTensors::deserialize(bytes)?;
        let meta: Meta = serde_json::from_slice(file.tensor("meta")?.data())?;
        Ok(meta.facts.text)
    }

    /// The call that a stored call builds on, if it builds on one.
    ///
    /// # Errors
    /// [`CallError`] if this is something else.
    pub fn base_of(bytes: &[u8]) -> Result<Option<u64>, CallError> {
        let file = SafeTensors::deserialize(bytes)?;
        let meta: Meta = serde_json::from_slice(file.tensor("meta")?.data())?;
        Ok(meta.base)
    }

    /// Reads what [`Call::encode`] wrote; `earlier` has the first steps of earlier calls by their
    /// numbers.
    ///
    /// # Errors
    /// [`CallError`] if this is something else, or builds on a call that is not there.
    pub fn decode(
        number: u64,
        bytes: &[u8],
        earlier: &BTreeMap<u64, Step>,
    ) -> Result<Self, CallError> {
        let file = SafeTensors::deserialize(bytes)?;
        let meta: Meta = serde_json::from_slice(file.tensor("meta")?.data())?;
        let ids = |name: &str| -> Result<Vec<i32>, SafeTensorError> {
            let words = file.tensor(name)?.data().as_chunks().0;
            Ok(words.iter().map(|w| i32::from_le_bytes(*w)).collect())
        };
        let delta = Delta {
            base: meta.base,
            base_tokens: meta.base_tokens,
            tail: ids("prompt")?,
        };
        let (sampled, scores) = (ids("output")?, file.tensor("logprobs")?.data());
        let scores = scores.as_chunks().0.iter().map(|w| f32::from_le_bytes(*w));
        let named = meta
            .outputs
            .iter()
            .fold(0_usize, |sum, n| sum.saturating_add(*n));
        if sampled.len() != named || scores.len() != named {
            return Err(CallError::Tokens {
                found: sampled.len(),
                logprobs: scores.len(),
                named,
            });
        }
        let (mut sampled, mut scores) = (sampled.into_iter(), scores);
        let outputs = meta.outputs.iter().map(|n| Output {
            ids: sampled.by_ref().take(*n).collect(),
            logprobs: scores.by_ref().take(*n).collect(),
        });
        Ok(Self {
            number,
            prompt: restore(number, &delta, earlier)?,
            outputs: outputs.collect(),
            facts: meta.facts,
        })
    }
}

impl CallFacts {
    /// Without known places the order of media stands for them, so that a prompt with another list
    /// of media begins a sequence.
    fn media(&self) -> Vec<Medium> {
        let is_placed = self.places.len() == self.media.len();
        let media = self.media.iter().enumerate().map(|(order, text)| {
            let mut digest = [0; 32];
            for (byte, digits) in digest.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
                let digits = str::from_utf8(digits).ok();
                *byte = digits
                    .and_then(|d| u8::from_str_radix(d, 16).ok())
                    .unwrap_or(0);
            }
            let position = if is_placed { self.places[order] } else { order };
            Medium { position, digest }
        });
        media.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::Deltas;

    /// vLLM's answer to a request with the grammar `Q{40}`.
    #[test]
    fn forced_tokens_are_certain_and_drafted_ones_are_not_scored() {
        let forced = [51; 24];
        for (engine, is_kept) in [("vllm", true), ("sglang", true), ("llamacpp", false)] {
            let mut call = call(0, [1, 2], &[&forced]);
            call.outputs[0].logprobs = vec![0.0; forced.len()];
            call.facts.media.clear();
            engine.clone_into(&mut call.facts.engine);
            let checked = call.check();
            assert_eq!(checked.is_ok(), is_kept, "{engine}: {checked:?}");
        }
    }

    fn call(number: u64, prompt: impl IntoIterator<Item = i32>, outputs: &[&[i32]]) -> Call {
        let output = |ids: &&[i32]| Output {
            ids: ids.to_vec(),
            logprobs: vec![-0.25; ids.len()],
        };
        Call {
            number,
            prompt: prompt.into_iter().collect(),
            outputs: outputs.iter().map(output).collect(),
            facts: CallFacts {
                version: 3,
                text: "yes".to_owned(),
                media: vec!["ff".repeat(32)],
                ..CallFacts::default()
            },
        }
    }

    #[test]
    fn calls_come_back_as_they_were_and_later_ones_are_small() {
        let first = call(1, 0..1_000, &[&[5, 6], &[7]]);
        let second = call(9, (0..1_000).chain([5, 6, 8]), &[&[4]]);
        let (mut deltas, mut earlier) = (Deltas::default(), BTreeMap::new());
        let mut sizes = Vec::new();
        for call in [first, second] {
            let delta = deltas.add(&call.first_step());
            let bytes = call.encode(&delta).expect("it can be written");
            let read = Call::decode(call.number, &bytes, &earlier).expect("it can be read");
            assert_eq!(read, call);
            assert_eq!(Call::text_of(&bytes).expect("it has one"), "yes");
            assert!(Call::decode(call.number, &bytes[..bytes.len() - 1], &earlier).is_err());
            earlier.insert(call.number, call.first_step());
            sizes.push(bytes.len());
        }
        assert!(sizes[1] < sizes[0] / 4, "{sizes:?}");
        assert!(Call::decode(1, b"", &earlier).is_err());
    }

    #[test]
    fn calls_that_end_in_another_order_can_be_read() {
        let prompt = || 0..200;
        let (mut deltas, mut stored) = (Deltas::default(), BTreeMap::new());
        for number in [5, 3, 4, 9] {
            let call = call(number, prompt(), &[&[number as i32]]);
            let delta = deltas.add(&call.first_step());
            stored.insert(number, call.encode(&delta).expect("it can be written"));
        }
        let mut earlier = BTreeMap::new();
        for (number, bytes) in stored {
            let read = Call::decode(number, &bytes, &earlier).expect("it can be read");
            assert!(read.prompt.iter().copied().eq(prompt()));
            assert_eq!(Call::tokens_of(&bytes).expect("a call"), 201);
            earlier.insert(number, read.first_step());
        }
    }

    #[test]
    fn outputs_are_checked_and_counted_together() {
        let mut whole = call(1, [1, 2], &[&[3], &[4, 5]]);
        whole.facts.media.clear();
        whole.facts.output_tokens = Some(3);
        let before = whole.clone();
        assert_eq!(whole.check(), Ok(()));
        assert_eq!(whole, before, "nothing is changed");
        whole.facts.output_tokens = Some(2);
        assert!(
            whole
                .check()
                .is_err_and(|fault| fault.contains("counted 2"))
        );
        whole.facts.output_tokens = None;
        whole.outputs[1].logprobs.pop();
        assert!(
            whole
                .check()
                .is_err_and(|fault| fault.contains("1 log-prob"))
        );
    }

    #[test]
    fn names_tell_programs_apart() {
        for number in [0, 7, u64::MAX] {
            let name = name_of_call("s", number);
            assert_eq!(number_in(&name, "s"), Some(number));
            assert_eq!(number_in(&name_of_call("s/agent", number), "s"), None);
        }
        assert!(name_of_call("s", 9) < name_of_call("s", 10));
        assert_eq!(number_in("step/s/1", "s"), None);
    }

    #[test]
    fn each_output_is_a_step() {
        let steps = call(7, [1, 2], &[&[5, 6], &[7]]).into_steps(3, Delivery::Complete);
        let numbers = steps.iter().map(|step| (step.number, step.output.len()));
        assert_eq!(numbers.collect::<Vec<_>>(), [(3, 2), (4, 1)]);
        assert_eq!(steps[1].versions, [Span::whole(&[7], 3)]);
        assert_eq!(steps[0].media[0].digest, [0xff; 32]);
    }

    #[test]
    fn ranges_of_each_output_have_their_versions() {
        let mut call = call(7, [1, 2], &[&[5, 6], &[7]]);
        let span = |start, end, newest| Span {
            start,
            end,
            version: 3,
            newest,
        };
        call.facts.spans = vec![vec![span(0, 1, 3), span(1, 2, 4)], vec![span(0, 1, 4)]];
        let delta = Deltas::default().add(&call.first_step());
        let bytes = call.encode(&delta).expect("it can be written");
        let read = Call::decode(7, &bytes, &BTreeMap::new()).expect("it can be read");
        let steps = read.into_steps(0, Delivery::Complete);
        assert_eq!(steps[0].versions, call.facts.spans[0]);
        assert_eq!(steps[1].versions, call.facts.spans[1]);
        call.facts.media.clear();
        assert_eq!(call.check(), Ok(()));
        call.facts.spans[0].pop();
        assert!(call.check().is_err_and(|fault| fault.contains("spans")));
    }

    /// An agent that looks at a screen again and again: by order, each image would be another list.
    #[test]
    fn a_later_image_continues_what_was_there_if_its_place_is_known() {
        let image = [99; 8];
        let first = [&[1][..], &image, &[2]].concat();
        let second = [&first[..], &[5, 6], &image, &[2]].concat();
        for (places, sequences) in [([vec![1], vec![1, 12]], 1), ([vec![], vec![]], 2)] {
            let prompts = [(&first, &[5, 6][..]), (&second, &[7])];
            let steps =
                (0..)
                    .zip(prompts)
                    .zip(places)
                    .map(|((number, (prompt, output)), places)| {
                        let mut call = call(number, prompt.iter().copied(), &[output]);
                        let digests = ["aa", "bb"].map(|digest| digest.repeat(32));
                        call.facts.media = digests[..=number as usize].to_vec();
                        call.facts.places = places;
                        assert_eq!(call.check(), Ok(()));
                        call.into_steps(number, Delivery::Complete).remove(0)
                    });
            let formed = crate::assemble(&steps.collect::<Vec<Step>>(), None);
            assert_eq!(formed.sequences.len(), sequences);
        }
    }
}
