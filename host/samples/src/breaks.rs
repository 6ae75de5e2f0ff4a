//! Why a step continues no earlier one, told from its tokens. A break costs training time, never
//! correctness.

use crate::step::Step;

/// Tokens within which a difference is one of a header that changes with each call.
const HEADER_TOKENS: usize = 512;
/// Fewer common tokens than this are those that any two prompts of a template share.
const COMMON_TOKENS: usize = 16;
/// Earlier steps that a step is compared with, the last ones.
const COMPARED: usize = 64;
/// Prompts with fewer common tokens than this do not come from one template.
const TEMPLATE_TOKENS: usize = 2;
/// Last tokens of a prompt that a template writes before an answer, such as the role and the start
/// of thinking, and those that it writes in place of dropped thinking.
const ROLE_TOKENS: usize = 16;
/// An answer without its thinking has at least this many tokens: one could be there by chance.
const ANSWER_TOKENS: usize = 2;
/// Thinking in whose place something else is written has at least this many tokens more than that:
/// else it may be the answer in other tokens.
const THINKING_TOKENS: usize = 16;

/// Why a step continues no earlier one of its program.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Break {
    /// The same prompt again.
    Repeated,
    /// The earlier prompt is there, what was sampled after it is not: the template or the harness
    /// writes the answer in another way, or leaves it out.
    Rerendered,
    /// The earlier prompt is there, and then only the end of what was sampled: the template drops
    /// the thinking before an answer.
    ThinkingDropped,
    /// An earlier part of the prompt differs.
    Edited,
    /// The prompt is shorter than an earlier one that begins like it.
    Compacted,
    /// The prompts differ near their beginning: a date, a counter, a header that changes with each
    /// call.
    Volatile,
    /// The prompts come from one template and differ from their first text on: another agent with a
    /// system prompt of its own, a title, a summary.
    OtherAgent,
    /// The prompts have nothing in common.
    Other,
}

impl Break {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Repeated => "repeated",
            Self::Rerendered => "rerendered",
            Self::ThinkingDropped => "thinking_dropped",
            Self::Edited => "edited",
            Self::Compacted => "compacted",
            Self::Volatile => "volatile",
            Self::OtherAgent => "other_agent",
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
        let closest = last.iter().map(|t| (common(t), *t));
        let (common, closest) = closest.max_by_key(|(common, _)| *common)?;
        let prompt = closest.prompt.len();
        Some(if common < COMMON_TOKENS.min(prompt / 2) {
            if common < TEMPLATE_TOKENS {
                Self::Other
            } else {
                Self::OtherAgent
            }
        } else if drops_thinking(step, closest, common) {
            Self::ThinkingDropped
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

/// Whether a prompt that has this many tokens in common with an earlier step goes on with the end of
/// what that sampled, and not with its beginning.
fn drops_thinking(step: &Step, earlier: &Step, common: usize) -> bool {
    if common + ROLE_TOKENS < earlier.prompt.len() {
        return false;
    }
    let rest = &step.prompt[common..];
    // The template may write something in place of the thinking.
    (0..ROLE_TOKENS.min(rest.len())).any(|start| {
        let left = end_at_start(&earlier.output, &rest[start..]);
        let dropped = earlier.output.len() - left;
        let is_long = start == 0 || dropped >= start + THINKING_TOKENS;
        left >= ANSWER_TOKENS && dropped > 0 && is_long
    })
}

/// How many of the last tokens of one list another one begins with, at most.
fn end_at_start(tokens: &[i32], other: &[i32]) -> usize {
    let other = &other[..other.len().min(tokens.len())];
    // Of each first part of `other`, the longest beginning that is also its end.
    let mut borders = vec![0; other.len()];
    let grown = |borders: &[usize], mut length: usize, token: i32| {
        while length > 0 && (length == other.len() || other[length] != token) {
            length = borders[length - 1];
        }
        length + usize::from(other.get(length) == Some(&token))
    };
    for at in 1..other.len() {
        borders[at] = grown(&borders, borders[at - 1], other[at]);
    }
    let all = tokens.iter();
    all.fold(0, |length, token| grown(&borders, length, *token))
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
        let output: Vec<i32> = [7, 8, 9]
            .into_iter()
            .chain(100..120)
            .chain([6, 5])
            .collect();
        let first = step((0..2_000).collect(), output.clone());
        let changed = |at: usize, length: i32| {
            let mut prompt: Vec<i32> = (0..length).collect();
            prompt[at] = -1;
            prompt
        };
        let after = |kept: i32, tokens: &[i32]| (0..kept).chain(tokens.iter().copied()).collect();
        for (prompt, expected) in [
            (after(2_000, &[7, 10]), Break::Rerendered),
            (after(2_000, &[6, 5, 1]), Break::ThinkingDropped),
            (after(2_000, &[77, 78, 6, 5, 1]), Break::ThinkingDropped),
            (after(1_995, &[6, 5, 1, 2, 3, 4]), Break::ThinkingDropped),
            (after(2_000, &[5, 1, 2]), Break::Rerendered),
            (after(2_000, &[119, 6, 1, 2]), Break::Rerendered),
            (
                after(2_000, &[&[77], &output[3..]].concat()),
                Break::Rerendered,
            ),
            (after(1_900, &[6, 5, 1]), Break::Compacted),
            (after(3, &[70; 2_000]), Break::OtherAgent),
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

    #[test]
    fn the_end_of_a_list_is_found_at_the_start_of_another() {
        for (tokens, other, expected) in [
            (vec![1, 2, 3], vec![2, 3, 4], 2),
            (vec![1, 2, 3], vec![1, 2, 3], 3),
            (vec![1, 2, 1, 2], vec![1, 2, 1, 3], 2),
            (vec![1, 1, 2, 1, 1], vec![1, 1, 1], 2),
            (vec![1, 2], vec![3], 0),
            (vec![1, 2], vec![], 0),
            (vec![], vec![1], 0),
        ] {
            let brute = (0..=tokens.len()).find(|at| other.starts_with(&tokens[*at..]));
            assert_eq!(brute.map(|at| tokens.len() - at), Some(expected));
            assert_eq!(
                end_at_start(&tokens, &other),
                expected,
                "{tokens:?} {other:?}"
            );
        }
    }
}
