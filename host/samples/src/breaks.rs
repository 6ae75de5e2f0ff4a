//! Why a step continues no earlier one, told from its tokens. A break costs training time, never
//! correctness.

use crate::step::Step;

/// Tokens within which a difference is one of a header that changes with each call.
const HEADER_TOKENS: usize = 512;
/// Fewer common tokens than this are those that any two prompts of a template share.
const COMMON_TOKENS: usize = 16;
/// Earlier steps that a step is compared with, the last ones.
const COMPARED: usize = 64;

/// Why a step continues no earlier one of its program.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Break {
    /// The same prompt again.
    Repeated,
    /// The earlier prompt is there, what was sampled after it is not: the template or the harness
    /// writes the answer in another way, drops its thinking, or leaves it out.
    Rerendered,
    /// An earlier part of the prompt differs.
    Edited,
    /// The prompt is shorter than an earlier one that begins like it.
    Compacted,
    /// The prompts differ near their beginning: a date, a counter, a header that changes with each
    /// call.
    Volatile,
    /// The prompts have nothing in common: another agent, a title, a summary.
    Other,
}

impl Break {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Repeated => "repeated",
            Self::Rerendered => "rerendered",
            Self::Edited => "edited",
            Self::Compacted => "compacted",
            Self::Volatile => "volatile",
            Self::Other => "other",
        }
    }

    /// Why `step` continues none of `earlier`, which are in the order of their numbers; `None` for
    /// the first.
    pub(crate) fn of(step: &Step, earlier: &[&Step]) -> Option<Self> {
        let common = |t: &Step| {
            let pairs = t.context().zip(&step.prompt);
            pairs.take_while(|(a, b)| a == *b).count()
        };
        let last = &earlier[earlier.len().saturating_sub(COMPARED)..];
        let closest = last.iter().map(|t| (common(t), t.prompt.len()));
        let (common, prompt) = closest.max_by_key(|(common, _)| *common)?;
        Some(if common < COMMON_TOKENS.min(prompt / 2) {
            Self::Other
        } else if common >= prompt && step.prompt.len() == prompt {
            Self::Repeated
        } else if common >= prompt {
            Self::Rerendered
        } else if step.prompt.len() < prompt {
            Self::Compacted
        } else if common < HEADER_TOKENS && prompt > 2 * HEADER_TOKENS {
            Self::Volatile
        } else {
            Self::Edited
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_is_named_by_where_the_tokens_differ() {
        let step = |prompt: Vec<i32>, output: Vec<i32>| Step {
            prompt,
            output,
            ..Step::default()
        };
        let first = step((0..2_000).collect(), vec![7, 8, 9]);
        let changed = |at: usize, length: i32| {
            let mut prompt: Vec<i32> = (0..length).collect();
            prompt[at] = -1;
            prompt
        };
        let rerendered = (0..2_000).chain([7, 10]).collect();
        for (prompt, expected) in [
            (rerendered, Break::Rerendered),
            ((0..2_000).collect(), Break::Repeated),
            (changed(1_500, 2_100), Break::Edited),
            (changed(1_500, 1_600), Break::Compacted),
            (changed(40, 2_100), Break::Volatile),
            (changed(0, 2_100), Break::Other),
        ] {
            let found = Break::of(&step(prompt, vec![1]), &[&first]);
            assert_eq!(found, Some(expected));
        }
        assert_eq!(Break::of(&first, &[]), None);
    }
}
