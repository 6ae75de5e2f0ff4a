//! What one engine holds, as far as its answers prove.

use crate::call::{Answer, Call, Checksum};
use crate::trainer::Trainer;
use crate::version::{Checksums, Weights};
use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// How often a call that can be repeated is made before the engine counts as unknown.
const TRIES_MAX: u8 = 3;
/// Pause before an engine that could not be loaded is tried again, at first and at most.
const BACKOFF: Span = Span::from_secs(5);
const BACKOFF_MAX: Span = Span::from_secs(300);
/// How long steps that were cut are waited for before a pause.
pub(crate) const CUTS_WAIT: Span = Span::from_secs(10);
/// Why an engine is torn whose checksum is not that of most others.
pub(crate) const OTHER_CHECKSUM: &str = "its checksum differs from that of other engines";

/// How far an engine is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It serves what it holds: a version that was verified, or what it came with.
    Held,
    /// It is paused.
    Paused,
    /// It was told to load a version, and has to prove that it did.
    Verifying,
    /// It proved it; caches of other weights are cleared.
    Clearing,
    /// It may generate again, or will once the others are as far.
    Resuming,
    /// Its weights may be a mixture: only a full load or a new process mends that.
    Torn,
    /// What it has is not known.
    Unknown,
}

/// What an engine holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    /// The job whose weights it has.
    pub job: Box<str>,
    /// How far it is.
    pub phase: Phase,
    /// Since when.
    pub since: Timestamp,
    /// The version that it was last proven to have; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Weights>,
    /// The version that it is loading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loading: Option<Weights>,
    /// Its weights are what `held` says, whole.
    pub sound: bool,
    /// It said that it can be loaded with the next version.
    pub ready: bool,
    /// It confirmed that it loaded the version; else only its checksum can prove that.
    pub confirmed: bool,
    /// The checksum that it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Why it serves no programs, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<str>>,
    /// The call that has not ended, with its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PendingCall>,
    /// What its trainer is doing to it, if the trainer drives its updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer: Option<Trainer>,
    /// Calls in a row that failed.
    pub failures: u8,
    /// It is not called before then.
    pub rests_until: Timestamp,
    /// It is not paused before then, unless the steps that were cut end there sooner: some engines
    /// crash if a request is aborted while they are paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuts_until: Option<Timestamp>,
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PendingCall {
    /// Its number.
    pub number: u64,
    /// The call.
    pub call: Call,
    /// When it was made.
    #[serde(default)]
    pub since: Timestamp,
}

/// A call that an engine has not answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unanswered {
    /// The call's name.
    pub call: &'static str,
    /// When it was made.
    pub since: Timestamp,
}

/// What became of a call for the update that the engine takes part in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// It goes on.
    On,
    /// The engine is left behind.
    Out,
}

impl Holding {
    /// An engine that comes to a job.
    pub(crate) fn new(job: &str, now: Timestamp) -> Self {
        Self {
            job: job.into(),
            phase: Phase::Held,
            since: now,
            held: None,
            loading: None,
            sound: true,
            ready: false,
            confirmed: false,
            checksum: None,
            cause: None,
            call: None,
            trainer: None,
            failures: 0,
            rests_until: now,
            cuts_until: None,
        }
    }

    /// Whether it serves this version; `None` is what it came with.
    pub fn serves(&self, weights: Option<&Weights>) -> bool {
        self.phase == Phase::Held && self.held.as_ref() == weights
    }

    /// Whether it may be paused: the steps that were cut have ended there, or had their time.
    pub(crate) fn may_pause(&mut self, ends_steps: bool, now: Timestamp) -> bool {
        let until = *self.cuts_until.get_or_insert(now + CUTS_WAIT);
        let may = !ends_steps || now >= until;
        if may {
            self.cuts_until = None;
        }
        may
    }

    /// Whether an update by its trainer may have begun at the engine and not ended there: engines
    /// begin no other one before.
    pub fn may_be_open(&self) -> bool {
        !self.sound
    }

    /// The call that it has not answered, treadle's own or its trainer's.
    pub fn unanswered(&self) -> Option<Unanswered> {
        let own = self.call.as_ref().map(|pending| Unanswered {
            call: pending.call.as_str(),
            since: pending.since,
        });
        let trainer = self.trainer.as_ref();
        let of_trainer = trainer.and_then(|trainer| {
            let call = trainer.call.as_ref()?.as_str();
            let since = trainer.since;
            Some(Unanswered { call, since })
        });
        own.or(of_trainer)
    }

    /// A display name of how far it is.
    pub fn state_name(&self) -> &'static str {
        match self.phase {
            Phase::Held if self.ready => "ready",
            Phase::Held => "held",
            Phase::Paused => "paused",
            Phase::Verifying => "verifying",
            Phase::Clearing => "clearing",
            Phase::Resuming => "resuming",
            Phase::Torn => "torn",
            Phase::Unknown => "unknown",
        }
    }

    pub(crate) fn come_to(&mut self, phase: Phase, now: Timestamp) {
        self.cuts_until = None;
        if self.phase != phase {
            (self.phase, self.since) = (phase, now);
        }
    }

    /// What it has is not known any more.
    pub(crate) fn doubt(&mut self, cause: &str, now: Timestamp) {
        self.come_to(Phase::Unknown, now);
        self.cause = Some(cause.into());
        (self.loading, self.checksum, self.confirmed) = (None, None, false);
        self.sound = false;
        (self.call, self.ready, self.failures) = (None, false, 0);
        self.rests_until = now;
        // No other call is made before the one that is under way has ended.
        let trainer = self.trainer.take().filter(|trainer| trainer.call.is_some());
        self.trainer = trainer.map(|trainer| Trainer {
            call: trainer.call,
            since: trainer.since,
            ..Trainer::default()
        });
    }

    pub(crate) fn tear(&mut self, cause: &str, now: Timestamp) -> Progress {
        self.doubt(cause, now);
        self.come_to(Phase::Torn, now);
        Progress::Out
    }

    /// It is not called for a while, longer each time.
    fn rest(&mut self, cause: &str, now: Timestamp) -> Progress {
        let doubled = BACKOFF.0.saturating_mul(1 << self.failures.min(16));
        self.rests_until = now + Span(doubled.min(BACKOFF_MAX.0));
        self.failures = self.failures.saturating_add(1);
        self.cause = Some(cause.into());
        self.ready = false;
        Progress::Out
    }

    /// The same call is made again, a few times.
    fn repeat(&mut self, cause: &str, now: Timestamp) -> Progress {
        self.failures = self.failures.saturating_add(1);
        self.rests_until = now + Span::from_secs(1);
        if self.failures < TRIES_MAX {
            return Progress::On;
        }
        self.doubt(cause, now);
        self.rest(cause, now)
    }

    /// A call ended. `known` are checksums of the version that it is to have.
    pub(crate) fn ended(
        &mut self,
        call: Call,
        answer: &Answer,
        known: &Checksums,
        now: Timestamp,
    ) -> Progress {
        self.call = None;
        match (call, answer) {
            (Call::Prepare, Answer::Done) => {
                (self.ready, self.failures) = (true, 0);
                Progress::On
            }
            (Call::Pause, Answer::Done) => {
                self.come_to(Phase::Paused, now);
                Progress::On
            }
            (Call::Apply, Answer::Done) => {
                (self.sound, self.confirmed) = (false, true);
                self.come_to(Phase::Verifying, now);
                Progress::On
            }
            (Call::Clear, Answer::Done) => {
                self.failures = 0;
                self.come_to(Phase::Resuming, now);
                Progress::On
            }
            (Call::Resume, Answer::Done) => {
                self.hold(now);
                Progress::On
            }
            (
                Call::Verify,
                Answer::Reports {
                    name,
                    checksum,
                    whole,
                },
            ) => {
                self.failures = 0;
                self.confirmed |= *whole && name.is_some();
                self.reported(name.as_deref(), checksum.as_ref(), known, now)
            }
            (_, Answer::Refused { cause } | Answer::Failed { cause }) => {
                let is_sure = matches!(answer, Answer::Refused { .. });
                self.failed(call, is_sure, cause, now)
            }
            (_, Answer::Done | Answer::Reports { .. }) => {
                self.failed(call, false, "the answer belongs to another call", now)
            }
        }
    }

    fn failed(&mut self, call: Call, is_sure: bool, cause: &str, now: Timestamp) -> Progress {
        let cause = format!("{} failed: {cause}", call.as_str());
        match call {
            // Its weights are what they were, and it may be paused.
            Call::Pause if self.sound => self.go_back(&cause, now),
            Call::Prepare | Call::Pause => self.rest(&cause, now),
            Call::Apply if is_sure && self.sound => self.go_back(&cause, now),
            Call::Apply if is_sure => {
                self.come_to(Phase::Torn, now);
                self.rest(&cause, now)
            }
            Call::Apply => {
                self.sound = false;
                self.cause = Some(cause.into());
                self.come_to(Phase::Verifying, now);
                Progress::On
            }
            Call::Verify | Call::Clear | Call::Resume => self.repeat(&cause, now),
        }
    }

    /// It serves on with what it has.
    fn go_back(&mut self, cause: &str, now: Timestamp) -> Progress {
        self.loading = self.held.clone();
        self.come_to(Phase::Resuming, now);
        self.rest(cause, now);
        self.rests_until = now;
        Progress::Out
    }

    /// It says what it has. What was not confirmed is believed only with the checksum of another
    /// engine that has it, which is compared once all have answered.
    fn reported(
        &mut self,
        name: Option<&str>,
        checksum: Option<&Checksum>,
        known: &Checksums,
        now: Timestamp,
    ) -> Progress {
        let Some(wanted) = self.loading.clone() else {
            return Progress::On;
        };
        if let Some(name) = name.filter(|name| **name != *wanted.name) {
            let cause = format!("it reports version `{name}` instead of `{}`", wanted.name);
            return self.not_proven(&self.after_loss(&cause), now);
        }
        let expected = checksum.and_then(|sum| known.get(&sum.layout));
        let differs = checksum.zip(expected);
        if differs.is_some_and(|(sum, expected)| sum.value != *expected) {
            return self.not_proven(&self.after_loss(OTHER_CHECKSUM), now);
        }
        let is_asked = self.phase != Phase::Verifying;
        if !self.confirmed && (checksum.is_none() || is_asked && expected.is_none()) {
            let cause = self.cause.clone();
            let cause = cause.unwrap_or_else(|| "no checksum proves what it has".into());
            return self.not_proven(&cause, now);
        }
        self.checksum = checksum.cloned();
        self.come_to(Phase::Clearing, now);
        Progress::On
    }

    /// A cause, after that of a load whose answer was lost: it is what began the doubt.
    pub(crate) fn after_loss(&self, cause: &str) -> String {
        match &self.cause {
            Some(lost) if !self.confirmed => format!("{lost}; {cause}"),
            _ => cause.to_owned(),
        }
    }

    fn not_proven(&mut self, cause: &str, now: Timestamp) -> Progress {
        if self.phase == Phase::Verifying {
            return self.tear(cause, now);
        }
        // A question to an engine that was not told to load anything: it has to.
        self.cause = Some(cause.into());
        (self.loading, self.confirmed) = (None, false);
        self.come_to(Phase::Torn, now);
        Progress::Out
    }

    fn hold(&mut self, now: Timestamp) {
        self.held = self.loading.take();
        (self.ready, self.confirmed, self.failures) = (false, false, 0);
        (self.sound, self.cause, self.trainer) = (true, None, None);
        self.come_to(Phase::Held, now);
        self.since = now;
    }
}
