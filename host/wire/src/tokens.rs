//! Token ids and log-probabilities of answers: how each kind of engine is asked for them, where its
//! answers have them, and how they are hidden from a client that did not ask.
//!
//! | engine | path | prompt ids | output ids | log-probabilities |
//! |---|---|---|---|---|
//! | vLLM | chat | `prompt_token_ids` | `choices[].token_ids` | `choices[].logprobs.content[].logprob` |
//! | vLLM | completions | `choices[].prompt_token_ids` | `choices[].token_ids` | `choices[].logprobs.token_logprobs` |
//! | SGLang | chat, whole | `choices[].prompt_token_ids` | `choices[].response_token_ids` | as vLLM |
//! | SGLang | completions | `choices[].prompt_token_ids` | `choices[].token_ids` | as vLLM |
//! | llama.cpp | chat and completions, whole | `/tokenize` of `__verbose.prompt` | `__verbose.tokens` | as vLLM's chat |
//! | vLLM | `/inference/v1/generate` | the request's `token_ids` | `choices[].token_ids` | `choices[].logprobs.content[].logprob` |
//! | SGLang | `/generate` | the request's `input_ids`, or `prompt_token_ids` | `meta_info.output_token_logprobs` | the same list |

mod answer;
mod ask;
mod ask_native;
mod form;
mod kind;
mod llama_cpp;
mod place;
mod play;
mod read;
mod request;
mod sglang;
mod versions;

pub use answer::{AnswerTokens, ChoiceTokens};
pub use kind::{KIND_PROMPT, LogprobKind};
pub use read::{Shown, TokenReader};
pub use request::{NotCaptured, TokenRequest};
pub use versions::NamedSpan;

#[cfg(test)]
mod native_tests;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
