//! Token ids and log-probabilities of answers: how each kind of engine is asked for them, where its
//! answers have them, and how they are hidden from a client that did not ask.
//!
//! | engine | path | prompt ids | output ids | log-probabilities |
//! |---|---|---|---|---|
//! | vLLM | chat | `prompt_token_ids` | `choices[].token_ids` | `choices[].logprobs.content[].logprob` |
//! | vLLM | completions | `choices[].prompt_token_ids` | `choices[].token_ids` | `choices[].logprobs.token_logprobs` |
//! | SGLang | chat, whole | `choices[].prompt_token_ids` | `choices[].response_token_ids` | as vLLM |
//! | SGLang | completions | `choices[].prompt_token_ids` | `choices[].token_ids` | as vLLM |
//! | llama.cpp | chat, whole | `/tokenize` of `__verbose.prompt` | `__verbose.tokens` | as vLLM |

mod ask;
mod place;
mod play;
mod read;

pub use ask::{NotCaptured, TokenRequest};
pub use read::{AnswerTokens, ChoiceTokens, Shown, TokenReader};

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
