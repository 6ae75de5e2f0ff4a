//! The chat template of the simulated engine.

/// Ends a rendered prompt: the model answers after it.
pub const ANSWER_TAG: &str = "<|assistant|>";

/// Renders a chat as the simulated engine's template does: `<|role|>`, content and a line break for
/// each message, then the tag under which the model answers. An answer added as an assistant
/// message makes the next rendering an extension of this one and the answer.
pub fn render_prompt<'a>(messages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut prompt = Vec::new();
    for (role, content) in messages {
        for part in ["<|", role, "|>", content, "\n"] {
            prompt.extend_from_slice(part.as_bytes());
        }
    }
    prompt.extend_from_slice(ANSWER_TAG.as_bytes());
    prompt
}
