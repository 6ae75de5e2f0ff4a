//! Samples of members whose steps the gateway captured.

use crate::app::{JobName, TrainingApp};
use crate::payloads::{digest_text, of_sample, payload};
use crate::room::Room;
use crate::sample::Checked;
use axum::response::Response;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Semaphore;
use treadle_auth::now_us;
use treadle_core::training::{CAPTURED_MAX, End, Member, MemberRef, Report, TrainingEvent};
use treadle_model::tenant::split;
use treadle_model::{StepId, Tenant};
use treadle_samples::{
    Assembly, Call, Delivery, Sample, Step, assemble, calls_of, digest, number_in, store,
};
use treadle_store::StoreError;

/// Stored calls of a program: those on record, and as many that are not.
const STEPS_MAX: usize = 2 * CAPTURED_MAX;
/// Tokens of the steps of a sample, prompts included.
const ASSEMBLED_TOKENS_MAX: usize = 64 << 20;
/// Memory of a token of a step in an answer: in its step, in a sequence and as text.
const TOKEN_BYTES: u64 = 24;
/// Longest pause between two attempts while the store fails.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Payloads that are read at once.
const READ_AT_ONCE: usize = 64;

/// The steps of a program that were captured, numbered by their places.
pub(crate) struct CapturedSteps {
    pub(crate) steps: Vec<Step>,
    /// How each continued an earlier answer, if its job has them continued by their tokens.
    pub(crate) histories: Vec<String>,
    /// Calls that they were, each with one output or more.
    pub(crate) calls: usize,
    /// Kinds of their log-probabilities.
    kinds: BTreeSet<String>,
    /// What each step is.
    pub(crate) origins: Vec<Origin>,
}

/// What a step is: an output of a call.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) call: u64,
    pub(crate) output: usize,
}

/// Kinds of log-probabilities that no engine has: it could not be told, and they differ.
const UNKNOWN: &str = "unknown";
const MIXED: &str = "mixed";

impl CapturedSteps {
    /// Calls in the order of their numbers. One that is stored and not on record was not answered
    /// to the end, or is of an earlier run; others may build on it.
    fn decode(stored: Vec<(u64, Vec<u8>)>, recorded: &BTreeSet<u64>) -> Result<Self, Unreadable> {
        let (mut earlier, mut steps, mut calls) = (BTreeMap::new(), Vec::new(), 0);
        let (mut kinds, mut histories) = (BTreeSet::new(), Vec::new());
        let mut origins = Vec::new();
        for (number, body) in stored {
            let call = Call::decode(number, &body, &earlier);
            let call = call.map_err(|error| Unreadable::Ever(error.to_string()))?;
            earlier.insert(number, call.first_step());
            if recorded.contains(&number) {
                kinds.insert(call.facts.logprobs.clone());
                let outputs = 0..call.outputs.len();
                origins.extend(outputs.map(|output| Origin {
                    call: number,
                    output,
                }));
                histories.extend(call.outputs.iter().map(|_| call.facts.history.clone()));
                steps.extend(call.into_steps(steps.len() as u64, Delivery::Complete));
                calls += 1;
            }
        }
        Ok(Self {
            steps,
            histories,
            calls,
            kinds,
            origins,
        })
    }

    /// The kind of all their log-probabilities.
    pub(crate) fn logprobs(&self) -> &str {
        let mut kinds = self.kinds.iter();
        match (kinds.next(), kinds.next()) {
            (_, Some(_)) => MIXED,
            (Some(kind), None) if !kind.is_empty() => kind,
            _ => UNKNOWN,
        }
    }

    /// What the steps form.
    pub(crate) fn assembly(&self) -> Assembly {
        assemble(&self.steps, None)
    }

    pub(crate) fn checked(&self) -> Result<Checked, String> {
        Checked::of(self.assembly(), &self.steps, self.calls as u32)
    }
}

/// Assembles the sample of a member that ended and puts it on record, or why it has no sample.
pub(crate) async fn assemble_member(app: &TrainingApp, at: &MemberRef, room: &Semaphore) {
    let mut pause = Duration::from_secs(1);
    while let Err(error) = {
        // It is never closed.
        let _room = room.acquire().await;
        try_to_assemble(app, at).await
    } {
        tracing::error!(%error, program = &*at.program, "a sample can't be assembled yet");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Nothing else is tried for a member that was cut meanwhile, or whose client reported its sample.
async fn try_to_assemble(app: &TrainingApp, at: &MemberRef) -> Result<(), StoreError> {
    let member = at.clone();
    let read = app.driver.training(move |state| {
        let job = state.jobs.get(&member.job)?;
        let found = state.member(&member)?;
        let is_open = found.has_ended_well() && found.sample.is_none();
        (is_open && job.settings.captured()).then(|| found.clone())
    });
    let Ok(Some(member)) = read.await else {
        return Ok(());
    };
    let event = match report_of(app, at, &member).await {
        Ok(report) => TrainingEvent::MemberEnded {
            member: at.clone(),
            report,
        },
        Err(Unassembled::Store(error)) => return Err(error),
        Err(Unassembled::Incomplete(cause)) => {
            tracing::warn!(program = &*at.program, cause, "a program has no sample");
            TrainingEvent::CaptureFailed {
                member: at.clone(),
                cause: cause.chars().take(256).collect::<String>().into(),
            }
        }
    };
    let _ = app.driver.train(event).await;
    Ok(())
}

/// Why a member has no sample.
enum Unassembled {
    /// Not now.
    Store(StoreError),
    /// It never will.
    Incomplete(String),
}

impl From<StoreError> for Unassembled {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TooLarge { .. } => Self::Incomplete(error.to_string()),
            error => Self::Store(error),
        }
    }
}

async fn report_of(
    app: &TrainingApp,
    at: &MemberRef,
    member: &Member,
) -> Result<Report, Unassembled> {
    let incomplete = Unassembled::Incomplete;
    let job = JobName::inside(&at.job).ok_or_else(|| incomplete("its job has no name".into()))?;
    let recorded = &member.captured;
    let captured = app.captured_steps(&job, &at.program, recorded, ASSEMBLED_TOKENS_MAX, None);
    let captured = captured.await??;
    let turns = recorded.len().max(member.turns as usize);
    if captured.calls < turns {
        let found = captured.calls;
        return Err(incomplete(format!(
            "{found} of {turns} steps were captured"
        )));
    }
    let checked = tokio::task::spawn_blocking(move || {
        let checked = captured.checked()?;
        let sample = Sample {
            sequences: checked.sequences.clone(),
            logprobs: Some(captured.logprobs().to_owned()),
            excluded: checked.excluded.clone(),
        };
        let body = store(sample).map_err(|error| error.to_string())?;
        Ok((checked, body))
    });
    let checked = checked
        .await
        .unwrap_or_else(|_| Err("treadle is shutting down".to_owned()));
    let (checked, body) = checked.map_err(incomplete)?;
    let sample = digest_text(&digest(&checked.sequences));
    let payload = payload(&job, of_sample(&at.program, &sample), body);
    let tenant = Tenant::new(split(&at.job).0);
    // The steps are stored already: what they form is not refused for lack of room.
    let _ = app
        .room
        .reserve(&tenant, u64::MAX, payload.size_bytes)
        .await;
    app.store.put_payloads(&[payload]).await?;
    Ok(Report {
        end: member.end.unwrap_or(End::Completed),
        tokens: checked.tokens,
        turns: checked.turns,
        reward: None,
        sample: Some(sample.into()),
        version: checked.oldest(),
        breaks: checked.breaks,
        info: None,
    })
}

impl TrainingApp {
    /// The text of a program's last captured answer; empty without one.
    pub(crate) async fn last_text(
        &self,
        job: &JobName,
        program: &str,
    ) -> Result<String, StoreError> {
        let names = self.step_names(job, program).await?;
        let last: Vec<String> = names.into_iter().next_back().into_iter().collect();
        let rows = self.store.payloads(&job.inside, &last).await?;
        let text = rows.first().and_then(|row| Call::text_of(&row.body).ok());
        Ok(text.unwrap_or_default())
    }

    /// Names of the captured calls of a program, in their order.
    async fn step_names(&self, job: &JobName, program: &str) -> Result<Vec<String>, StoreError> {
        let own = split(program).1;
        let prefix = calls_of(own);
        let (mut after, mut names) = (prefix.clone(), Vec::new());
        loop {
            let before_us = now_us() + 3_600_000_000;
            let page = self
                .store
                .payload_names(&job.inside, before_us, &after)
                .await?;
            let is_own = |name: &&String| number_in(name, own).is_some();
            names.extend(page.iter().filter(is_own).cloned());
            match page.last() {
                Some(last) if last.starts_with(&prefix) => after.clone_from(last),
                _ => return Ok(names),
            }
        }
    }

    /// The captured steps of a program that are on record, unless they have more tokens than
    /// `tokens_max`, prompts included. The inner error says why they can't be read.
    pub(crate) async fn captured_steps(
        &self,
        job: &JobName,
        program: &str,
        recorded: &[StepId],
        tokens_max: usize,
        mut room: Option<&mut Room>,
    ) -> Result<Result<CapturedSteps, Unreadable>, StoreError> {
        let own = split(program).1;
        let names = self.step_names(job, program).await?;
        if names.len() > STEPS_MAX {
            let cause = format!("it has {} steps, more than {STEPS_MAX}", names.len());
            return Ok(Err(Unreadable::Ever(cause)));
        }
        let recorded: BTreeSet<u64> = recorded.iter().map(|step| step.0).collect();
        let (mut tokens, mut stored) = (0_usize, Vec::with_capacity(names.len()));
        for names in names.chunks(READ_AT_ONCE) {
            let before = tokens;
            for row in self.store.payloads(&job.inside, names).await? {
                let number = number_in(&row.name, own).unwrap_or_default();
                tokens = tokens.saturating_add(Call::tokens_of(&row.body).unwrap_or_default());
                stored.push((number, row.body));
            }
            if tokens > tokens_max {
                let cause = format!("its steps have more than {tokens_max} tokens");
                return Ok(Err(Unreadable::Ever(cause)));
            }
            let bytes = (tokens - before) as u64 * TOKEN_BYTES;
            if let Some(Err(full)) = room.as_deref_mut().map(|room| room.grow(bytes)) {
                return Ok(Err(Unreadable::Now(Box::new(full))));
            }
        }
        let decoding =
            tokio::task::spawn_blocking(move || CapturedSteps::decode(stored, &recorded));
        let stopped = || Err(Unreadable::Ever("treadle is shutting down".to_owned()));
        Ok(decoding.await.unwrap_or_else(|_| stopped()))
    }
}

/// Why the captured steps of a program can't be read.
pub(crate) enum Unreadable {
    /// They never can.
    Ever(String),
    /// There is no room for the answer now.
    Now(Box<Response>),
}

impl From<Unreadable> for Unassembled {
    fn from(unreadable: Unreadable) -> Self {
        Self::Incomplete(match unreadable {
            Unreadable::Ever(cause) => cause,
            Unreadable::Now(_) => "there is no room for its steps".to_owned(),
        })
    }
}
