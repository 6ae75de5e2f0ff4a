//! Answers of programs with their tokens, which later requests may continue (`history` of a training
//! job is `as_sampled`). In memory: what is not held is sent as its client sent it.
//!
//! Tokens are shared, not copied, so that the lock is held for a few entries of a map.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use treadle_model::tenant::split;
use treadle_wire::history::{AnsweredConversation, AsSent, Conversation};

/// Tokens that are held, of all programs. Beyond, those of the tenant with the most are dropped that
/// were used least recently.
const TOKENS_MAX: usize = 64 << 20;
/// Sequences of a program, each with the answers along it.
const SEQUENCES_MAX: usize = 4;
/// Answers along a sequence.
const ANSWERS_MAX: usize = 16;
/// Tokens that take as much memory as what is kept of a message.
const MESSAGE_TOKENS: usize = 6;

/// Answers of programs.
#[derive(Default)]
pub(crate) struct AnswerCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tenants: HashMap<Box<str>, Own>,
    uses: u64,
    tokens: usize,
}

/// What is held for a tenant.
#[derive(Default)]
struct Own {
    programs: HashMap<Box<str>, Program>,
    by_use: BTreeMap<u64, Box<str>>,
    tokens: usize,
}

#[derive(Default)]
struct Program {
    sequences: Vec<Sequence>,
    used: u64,
}

/// The tokens of a prompt and of its answer, those of earlier answers at their beginning.
#[derive(Clone)]
struct Sequence {
    ids: Arc<Vec<i32>>,
    /// Answers and where each ends.
    answers: Vec<(Arc<AnsweredConversation>, usize)>,
}

/// The prompt of an answer, and the answer.
#[derive(Debug)]
pub(crate) struct Context {
    ids: Arc<Vec<i32>>,
    end: usize,
}

impl Context {
    /// Its tokens.
    pub(crate) fn ids(&self) -> &[i32] {
        &self.ids[..self.end]
    }
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

    /// Adds an answer, to the sequence with these tokens if it continues one.
    fn put(
        &mut self,
        said: AnsweredConversation,
        context: Arc<Vec<i32>>,
        continued: Option<&Arc<Vec<i32>>>,
    ) {
        let end = context.len();
        let mut own = self.sequences.iter();
        let place = continued.and_then(|ids| own.position(|known| Arc::ptr_eq(&known.ids, ids)));
        let mut answers = match place {
            Some(place) => self.sequences.remove(place).answers,
            None => Vec::new(),
        };
        answers.push((said.into(), end));
        if answers.len() > ANSWERS_MAX {
            answers.remove(0);
        }
        let ids = context;
        self.sequences.push(Sequence { ids, answers });
        if self.sequences.len() > SEQUENCES_MAX {
            self.sequences.remove(0);
        }
    }
}

impl AnswerCache {
    /// Holds an answer: `context` is its prompt and what was sampled.
    pub(crate) fn put(&self, program: &str, said: AnsweredConversation, context: Vec<i32>) {
        let known = self.change(|state| state.used(program));
        let mut known = known.iter().map(|sequence| &sequence.ids);
        let continued = known.find(|ids| context.starts_with(ids));
        let context = Arc::new(context);
        let dropped = self.change(|state| {
            let mut own = state.take(program).unwrap_or_default();
            own.put(said, context, continued);
            state.give(program, own);
            state.make_room()
        });
        // What memory it had is given back without the lock.
        drop(dropped);
    }

    /// The tokens of the answer that a request continues.
    ///
    /// # Errors
    /// Why it continues none.
    pub(crate) fn context(&self, program: &str, request: &Conversation) -> Result<Context, AsSent> {
        let own = self.change(|state| state.used(program));
        let answers = own.iter().flat_map(|sequence| {
            let answers = sequence.answers.iter();
            answers.map(|(said, end)| (&**said, (&sequence.ids, *end)))
        });
        let (said, contexts): (Vec<&AnsweredConversation>, Vec<_>) = answers.unzip();
        let (ids, end) = contexts[request.continued(said.into_iter())?];
        let ids = ids.clone();
        Ok(Context { ids, end })
    }

    /// Forgets the programs whose keys begin like this, which all are of one tenant.
    pub(crate) fn forget(&self, start: &str) {
        self.change(|state| {
            let Some(own) = state.tenants.get(split(start).0) else {
                return Vec::new();
            };
            let keys = own.programs.keys().filter(|key| key.starts_with(start));
            let keys: Vec<Box<str>> = keys.cloned().collect();
            keys.iter().filter_map(|key| state.take(key)).collect()
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// What is held of a program, which is used now.
    fn used(&mut self, program: &str) -> Vec<Sequence> {
        let Some(own) = self.take(program) else {
            return Vec::new();
        };
        let sequences = own.sequences.clone();
        self.give(program, own);
        sequences
    }

    fn take(&mut self, program: &str) -> Option<Program> {
        let tenant = split(program).0;
        let own = self.tenants.get_mut(tenant)?;
        let taken = own.programs.remove(program)?;
        own.by_use.remove(&taken.used);
        own.tokens -= taken.size();
        self.tokens -= taken.size();
        if own.programs.is_empty() {
            self.tenants.remove(tenant);
        }
        Some(taken)
    }

    fn give(&mut self, program: &str, mut given: Program) {
        if given.sequences.is_empty() {
            return;
        }
        self.uses += 1;
        given.used = self.uses;
        self.tokens += given.size();
        let own = self.tenants.entry(split(program).0.into()).or_default();
        own.tokens += given.size();
        own.by_use.insert(given.used, program.into());
        own.programs.insert(program.into(), given);
    }

    /// Takes programs of the tenant with the most until there is room.
    fn make_room(&mut self) -> Vec<Program> {
        let mut taken = Vec::new();
        while self.tokens > TOKENS_MAX {
            let most = self.tenants.values().max_by_key(|own| own.tokens);
            let oldest = most.and_then(|own| Some(own.by_use.first_key_value()?.1.clone()));
            let Some(oldest) = oldest else { break };
            taken.extend(self.take(&oldest));
        }
        taken
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

    fn said(number: usize) -> AnsweredConversation {
        let message = json!({"role": "assistant", "content": format!("answer {number}")});
        let body = json!({"choices": [{"finish_reason": "stop", "message": message}]});
        let answer = AnswerMessage::parse(body.to_string().as_bytes()).expect("an answer");
        asked(number).answered(answer)
    }

    fn held(answers: &AnswerCache, program: &str, request: usize) -> Result<Vec<i32>, AsSent> {
        let context = answers.context(program, &asked(request));
        context.map(|context| context.ids().to_vec())
    }

    #[test]
    fn each_answer_along_a_sequence_can_be_continued() {
        let answers = AnswerCache::default();
        answers.put("p", said(0), vec![1, 2]);
        answers.put("p", said(1), vec![1, 2, 3, 4]);
        // Another answer to the first request.
        answers.put("p", said(0), vec![1, 7]);
        assert_eq!(held(&answers, "p", 1), Ok(vec![1, 7]), "the latest");
        assert_eq!(held(&answers, "p", 2), Ok(vec![1, 2, 3, 4]));
        assert_eq!(held(&answers, "p", 3), Err(AsSent::NotHeld));
        assert_eq!(held(&answers, "q", 1), Err(AsSent::NotHeld));
        let sequences = answers.change(|state| state.used("p").len());
        assert_eq!(sequences, 2, "the second answer continued the first one's");
        answers.forget("p");
        assert_eq!(held(&answers, "p", 1), Err(AsSent::NotHeld));
        let left = answers.change(|state| (state.tokens, state.tenants.len()));
        assert_eq!(left, (0, 0));
    }

    #[test]
    fn what_is_read_is_not_copied() {
        let answers = AnswerCache::default();
        answers.put("p", said(0), vec![1, 2]);
        let read = || answers.context("p", &asked(1)).expect("it is held");
        let (one, other) = (read(), read());
        assert!(Arc::ptr_eq(&one.ids, &other.ids));
        answers.put("p", said(1), vec![1, 2, 3]);
        assert_eq!(one.ids(), [1, 2], "and stays as it was read");
    }

    #[test]
    fn memory_is_bounded_and_the_program_used_last_stays() {
        let answers = AnswerCache::default();
        for number in 0..5 {
            answers.put(&number.to_string(), said(0), vec![number; TOKENS_MAX / 4]);
            let _ = answers.context("0", &asked(1));
            assert!(answers.change(|state| state.tokens <= TOKENS_MAX));
        }
        let is_held = |program| answers.context(program, &asked(1)).is_ok();
        assert_eq!(["0", "1", "4"].map(is_held), [true, false, true]);
        for number in 0..40_u8 {
            answers.put("4", said(number.into()), vec![9, number.into()]);
        }
        let sequences = answers.change(|state| state.used("4").len());
        assert_eq!(sequences, SEQUENCES_MAX);
    }

    #[test]
    fn a_tenant_whose_answers_fill_the_room_loses_its_own_first() {
        let answers = AnswerCache::default();
        let of = |tenant: &str, job: &str| format!("\u{1f}{tenant}\u{1f}{job}\0p");
        let put = |key: &str, tokens| answers.put(key, said(0), vec![1; tokens]);
        put(&of("acme", "math"), TOKENS_MAX / 8);
        put("math\0p", TOKENS_MAX / 8);
        for number in 0..20 {
            put(&of("busy", &number.to_string()), TOKENS_MAX / 8);
        }
        let is_held = |key: &str| answers.context(key, &asked(1)).is_ok();
        assert!(is_held(&of("acme", "math")) && is_held("math\0p"));
        let busy = (0..20).map(|number| is_held(&of("busy", &number.to_string())));
        let busy: Vec<bool> = busy.collect();
        assert_eq!(busy.iter().filter(|held| **held).count(), 5, "{busy:?}");
        assert!(busy[19], "its latest");
    }
}
