//! Answers of programs with their tokens, which later requests may continue (`history` of a training
//! job is `as_sampled`). In memory: what is not held is sent as its client sent it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use treadle_wire::history::{AsSent, Conversation, Said};

/// Tokens that are held, of all programs; those that were used least recently are dropped first.
const TOKENS_MAX: usize = 64 << 20;
/// Sequences of a program, each with the answers along it.
const SEQUENCES_MAX: usize = 4;
/// Answers along a sequence.
const ANSWERS_MAX: usize = 16;
/// Tokens that take as much memory as what is kept of a message.
const MESSAGE_TOKENS: usize = 6;

/// Answers of programs.
#[derive(Default)]
pub(crate) struct HeldAnswers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    programs: HashMap<Box<str>, Program>,
    by_use: BTreeMap<u64, Box<str>>,
    uses: u64,
    tokens: usize,
}

#[derive(Default)]
struct Program {
    sequences: Vec<Sequence>,
    used: u64,
}

/// The tokens of a prompt and of its answer, those of earlier answers at their beginning.
struct Sequence {
    ids: Vec<i32>,
    /// Answers and where each ends.
    answers: Vec<(Said, usize)>,
}

impl Sequence {
    fn size(&self) -> usize {
        let messages = self.answers.iter().map(|(said, _)| said.messages());
        self.ids.len() + MESSAGE_TOKENS * messages.sum::<usize>()
    }
}

impl Program {
    fn size(&self) -> usize {
        self.sequences.iter().map(Sequence::size).sum()
    }

    fn put(&mut self, said: Said, context: Vec<i32>) {
        let end = context.len();
        let mut own = self.sequences.iter();
        let mut sequence = match own.position(|known| context.starts_with(&known.ids)) {
            Some(place) => self.sequences.remove(place),
            None => Sequence {
                ids: Vec::new(),
                answers: Vec::new(),
            },
        };
        sequence.ids = context;
        sequence.answers.push((said, end));
        if sequence.answers.len() > ANSWERS_MAX {
            sequence.answers.remove(0);
        }
        self.sequences.push(sequence);
        if self.sequences.len() > SEQUENCES_MAX {
            self.sequences.remove(0);
        }
    }
}

impl HeldAnswers {
    /// Holds an answer: `context` is its prompt and what was sampled.
    pub(crate) fn put(&self, program: &str, said: Said, context: Vec<i32>) {
        self.change(|state| {
            let mut own = state.take(program).unwrap_or_default();
            own.put(said, context);
            state.give(program, own);
            while state.tokens > TOKENS_MAX
                && let Some((_, oldest)) = state.by_use.first_key_value()
            {
                let oldest = oldest.clone();
                state.take(&oldest);
            }
        });
    }

    /// The tokens of the answer that a request continues.
    ///
    /// # Errors
    /// Why it continues none.
    pub(crate) fn context(
        &self,
        program: &str,
        request: &Conversation,
    ) -> Result<Vec<i32>, AsSent> {
        self.change(|state| {
            let own = state.take(program).unwrap_or_default();
            let answers = own.sequences.iter().flat_map(|sequence| {
                let answers = sequence.answers.iter();
                answers.map(|(said, end)| (said, &sequence.ids[..*end]))
            });
            let (said, contexts): (Vec<&Said>, Vec<&[i32]>) = answers.unzip();
            let place = request.continued(said.into_iter());
            let context = place.map(|place| contexts[place].to_vec());
            state.give(program, own);
            context
        })
    }

    /// Forgets the programs whose keys begin like this.
    pub(crate) fn forget(&self, start: &str) {
        self.change(|state| {
            let own = state.programs.keys().filter(|key| key.starts_with(start));
            for key in own.cloned().collect::<Vec<_>>() {
                state.take(&key);
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn take(&mut self, program: &str) -> Option<Program> {
        let own = self.programs.remove(program)?;
        self.by_use.remove(&own.used);
        self.tokens -= own.size();
        Some(own)
    }

    fn give(&mut self, program: &str, mut own: Program) {
        if own.sequences.is_empty() {
            return;
        }
        self.uses += 1;
        own.used = self.uses;
        self.tokens += own.size();
        self.by_use.insert(own.used, program.into());
        self.programs.insert(program.into(), own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use treadle_wire::history::AnswerMessage;

    fn asked(answers: usize) -> Conversation {
        let user = |n: usize| json!({"role": "user", "content": n.to_string()});
        let turns = (0..answers).flat_map(|n| {
            let answer = json!({"role": "assistant", "content": format!("answer {n}")});
            [user(n), answer]
        });
        let messages: Vec<_> = turns.chain([user(answers)]).collect();
        let body = json!({"messages": messages}).to_string();
        Conversation::parse(body.as_bytes()).expect("a request")
    }

    fn said(number: usize) -> Said {
        let message = json!({"role": "assistant", "content": format!("answer {number}")});
        let body = json!({"choices": [{"finish_reason": "stop", "message": message}]});
        let answer = AnswerMessage::parse(body.to_string().as_bytes()).expect("an answer");
        asked(number).answered(answer)
    }

    #[test]
    fn each_answer_along_a_sequence_can_be_continued() {
        let held = HeldAnswers::default();
        held.put("p", said(0), vec![1, 2]);
        held.put("p", said(1), vec![1, 2, 3, 4]);
        // Another answer to the first request.
        held.put("p", said(0), vec![1, 7]);
        assert_eq!(held.context("p", &asked(1)), Ok(vec![1, 7]), "the latest");
        assert_eq!(held.context("p", &asked(2)), Ok(vec![1, 2, 3, 4]));
        assert_eq!(held.context("p", &asked(3)), Err(AsSent::NotHeld));
        assert_eq!(held.context("q", &asked(1)), Err(AsSent::NotHeld));
        held.forget("p");
        assert_eq!(held.context("p", &asked(1)), Err(AsSent::NotHeld));
        assert_eq!(
            held.change(|state| (state.tokens, state.by_use.len())),
            (0, 0)
        );
    }

    #[test]
    fn memory_is_bounded_and_the_program_used_last_stays() {
        let held = HeldAnswers::default();
        for number in 0..5 {
            held.put(&number.to_string(), said(0), vec![number; TOKENS_MAX / 4]);
            let _ = held.context("0", &asked(1));
            assert!(held.change(|state| state.tokens <= TOKENS_MAX));
        }
        assert_eq!(held.context("1", &asked(1)), Err(AsSent::NotHeld));
        assert!(held.context("0", &asked(1)).is_ok());
        assert!(held.context("4", &asked(1)).is_ok());
        for number in 0..40_u8 {
            held.put("4", said(number.into()), vec![9, number.into()]);
        }
        let sizes = |state: &mut State| state.programs["4"].sequences.len();
        assert_eq!(held.change(sizes), SEQUENCES_MAX);
    }
}
