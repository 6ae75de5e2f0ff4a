//! The agent programs: well-behaved OpenAI clients. They retry broken requests at any daemon, under
//! the same program, and record the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use treadle_broker::RabbitMq;

use crate::actions::Actor;
use crate::error::ChaosError;
use crate::exchange::{Client, Outcome};
use crate::form::Form;
use crate::options::Options;
use crate::record::Record;

/// The model that the simulated engines serve.
pub(crate) const MODEL: &str = "treadle-sim";
/// Chats request at least this many tokens, completions fewer: so the requested tokens distinguish
/// each arrival in the journal from all others of its program.
pub(crate) const CHAT_TOKENS_MIN: u64 = 64;
/// Tokens that a completion requests at its first attempt; one more at each further.
const COMPLETION_TOKENS: u64 = 4;
/// Attempts of one step; with the pauses between them they take minutes.
const ATTEMPTS_MAX: u64 = CHAT_TOKENS_MIN - COMPLETION_TOKENS;
/// Programs of a job, whose prompts begin alike.
const GROUP: u32 = 8;
/// Steps of a program at most.
const STEPS_MAX: u32 = 1_000;
/// Pauses between attempts: the first one, and the longest.
const RETRY_MS: (u64, u64) = (100, 4_000);

/// State shared by all programs.
pub(crate) struct Shared {
    /// Base URLs of the daemons.
    pub(crate) daemons: Vec<String>,
    /// The way to them.
    pub(crate) client: Client,
    /// The way to the queue of actions, where there is a broker and the form runs some.
    pub(crate) runs: Option<RabbitMq>,
    /// The clients' record.
    pub(crate) record: Record,
    /// Set once the last kill was survived: then programs end.
    pub(crate) ending: AtomicBool,
    /// Progress counters.
    pub(crate) pulse: Pulse,
}

/// Progress counters of all programs.
#[derive(Default)]
pub(crate) struct Pulse {
    /// Attempts.
    pub(crate) requests: AtomicU64,
    /// Complete answers.
    pub(crate) acknowledged: AtomicU64,
    /// Programs that have ended well.
    pub(crate) ended: AtomicU64,
    /// Actions that the broker has acknowledged.
    pub(crate) sent: AtomicU64,
    /// Start of the latest attempt with a complete answer.
    last_began: std::sync::Mutex<Option<Instant>>,
    answered: Notify,
}

impl Pulse {
    pub(crate) fn answer(&self, began: Instant) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut last) = self.last_began.lock() {
            *last = (*last).max(Some(began));
        }
        self.answered.notify_waiters();
    }

    /// Waits for a complete answer to a request that began after an instant.
    pub(crate) async fn answer_begun_after(&self, instant: Instant) -> Instant {
        loop {
            let answered = self.answered.notified();
            let last = self.last_began.lock().ok().and_then(|last| *last);
            if last.is_some_and(|last| last > instant) {
                return Instant::now();
            }
            answered.await;
        }
    }
}

/// Runs all programs to their ends.
pub(crate) fn start(
    shared: &Arc<Shared>,
    options: &Options,
    form: Form,
) -> JoinSet<Result<(), ChaosError>> {
    let mut programs = JoinSet::new();
    for number in 0..options.programs {
        let name = format!("chaos-{}-{number}", options.seed);
        let job = format!("job-{}", number / GROUP);
        let seed = options.seed ^ (u64::from(number) << 20);
        let actor = || Actor::new(&name, &job, shared, seed + 1);
        let program = Program {
            actor: (form == Form::Actions).then(actor),
            name,
            job,
            ends_early: form.ends_early(number),
            shared: shared.clone(),
            random: Pcg64Mcg::seed_from_u64(seed),
            steps_min: options.steps_min,
            pause_ms_max: options.pause_ms_max.max(1),
            prompt: Vec::new(),
            chats: 0,
            daemon: number as usize,
        };
        programs.spawn(program.run());
    }
    programs
}

struct Program {
    /// Where the daemon runs its tools.
    actor: Option<Actor>,
    name: String,
    job: String,
    /// It does not wait for the last kill to end.
    ends_early: bool,
    shared: Arc<Shared>,
    random: Pcg64Mcg,
    steps_min: u32,
    pause_ms_max: u64,
    /// Grows with each step, so that no two steps have prompts of one length.
    prompt: Vec<u32>,
    chats: u64,
    daemon: usize,
}

impl Program {
    async fn run(mut self) -> Result<(), ChaosError> {
        // All prompts of a group begin alike, as those of rollouts do.
        let group = self.daemon as u32 / GROUP;
        let start = self.random.random_range(48..200);
        self.prompt
            .extend((0..start).map(|token| group * 1_000 + token));
        for step in 0..STEPS_MAX {
            let may_end = self.ends_early || self.shared.ending.load(Ordering::Relaxed);
            if step >= self.steps_min && may_end {
                break;
            }
            // Before its first step a program is unknown.
            let acted = match &mut self.actor {
                Some(actor) if step > 0 => actor.act().await?,
                _ => {
                    self.pause().await;
                    true
                }
            };
            if !acted || !self.step().await? {
                return Ok(());
            }
        }
        if self.release().await? {
            self.shared.pulse.ended.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A tool at work.
    async fn pause(&mut self) {
        let ms = self
            .random
            .random_range(self.pause_ms_max / 10..=self.pause_ms_max);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// One step with all its attempts; whether it was answered in the end.
    async fn step(&mut self) -> Result<bool, ChaosError> {
        let grown = self.random.random_range(2..12);
        let next = self.prompt.len() as u32;
        self.prompt.extend((0..grown).map(|token| next * 7 + token));
        let is_chat = self.random.random_ratio(1, 6);
        let streams = self.random.random_ratio(1, 2);
        for attempt in 0..ATTEMPTS_MAX {
            let (path, mut body, asked) = self.request(is_chat, attempt);
            if streams {
                body["stream"] = json!(true);
                body["stream_options"] = json!({"include_usage": true});
            }
            let began = Instant::now();
            self.shared.pulse.requests.fetch_add(1, Ordering::Relaxed);
            let outcome = self.post(path, &body).await;
            let (is_over, line) = self.line(&outcome, asked, is_chat);
            self.shared.record.add(&line)?;
            if let Outcome::Complete { .. } = outcome {
                self.shared.pulse.answer(began);
            }
            if is_over {
                return Ok(matches!(outcome, Outcome::Complete { .. }));
            }
            self.retry_pause(attempt).await;
        }
        Ok(false)
    }

    async fn post(&self, path: &str, body: &Value) -> Outcome {
        let base = &self.shared.daemons[self.daemon % self.shared.daemons.len()];
        self.shared.client.post(base, path, &self.job, body).await
    }

    fn request(&mut self, is_chat: bool, attempt: u64) -> (&'static str, Value, u64) {
        if is_chat {
            self.chats += 1;
            let asked = CHAT_TOKENS_MIN + self.chats;
            let body = json!({
                "model": MODEL,
                "program_id": self.name,
                "messages": [{"role": "user", "content": format!("{} once more", self.name)}],
                "max_tokens": asked,
            });
            return ("/v1/chat/completions", body, asked);
        }
        let asked = COMPLETION_TOKENS + attempt;
        let body = json!({
            "model": MODEL,
            "program_id": self.name,
            "prompt": self.prompt,
            "max_tokens": asked,
        });
        ("/v1/completions", body, asked)
    }

    /// Whether the step is over, and its record.
    fn line(&self, outcome: &Outcome, asked: u64, is_chat: bool) -> (bool, Value) {
        let prompt = if is_chat {
            None
        } else {
            Some(self.prompt.len())
        };
        let mut line = json!({
            "kind": "attempt",
            "program": self.name,
            "prompt_tokens": prompt,
            "max_tokens": asked,
            "outcome": "complete",
        });
        match outcome {
            Outcome::Complete { answer, text } => {
                line["usage"] = answer["usage"].clone();
                line["text"] = json!(text);
                (true, line)
            }
            Outcome::Broken(why) => {
                line["outcome"] = json!("broken");
                line["why"] = json!(why);
                (false, line)
            }
            Outcome::Refused(why) => {
                line["outcome"] = json!("refused");
                line["why"] = json!(why);
                (true, line)
            }
        }
    }

    async fn release(&mut self) -> Result<bool, ChaosError> {
        let body = json!({"program_id": self.name});
        for attempt in 0..ATTEMPTS_MAX {
            let path = "/programs/release";
            let outcome = self.post(path, &body).await;
            let (is_done, why) = match &outcome {
                Outcome::Complete { .. } => (true, Value::Null),
                Outcome::Broken(why) | Outcome::Refused(why) => (false, json!(why)),
            };
            self.shared.record.add(&json!({
                "kind": "release",
                "program": self.name,
                "outcome": if is_done { "complete" } else { "broken" },
                "why": why,
            }))?;
            if is_done {
                return Ok(true);
            }
            self.retry_pause(attempt).await;
        }
        Ok(false)
    }

    /// Waits longer each time, with jitter, then switches to another daemon.
    async fn retry_pause(&mut self, attempt: u64) {
        let (first, longest) = RETRY_MS;
        let ceiling = (first << attempt.min(6)).min(longest);
        let ms = self.random.random_range(ceiling / 2..=ceiling);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.daemon += 1;
    }
}
