//! What a stream knows of programs: which sequences their steps form so far. Within bounds; what it
//! forgot is read again.

use super::message::{NewTokens, Who};
use crate::app::{JobName, TrainingApp};
use crate::captured::Origin;
use crate::payloads::{digest_of, digest_text};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::Semaphore;
use treadle_core::training::{MemberRef, TrainingEvent};
use treadle_model::StepId;
use treadle_model::tenant::split;
use treadle_samples::{Call, Delivery, Growing, Scored, Step, digest, name_of_call};
use treadle_store::{EventPage, PAGE_ROWS_MAX, SeqPage, StoreError};

/// Steps of programs whose sequences a stream keeps in mind, as hashes.
const STEPS_KEPT: usize = 20_000;
/// Tokens that it keeps in mind of the latest steps: later ones are stored as differences.
const TOKENS_KEPT: usize = 1 << 19;
/// Stored calls that one builds on, each on the next; more are an error.
const BASES_MAX: usize = 64;
/// Tokens of the steps of a member whose layout is told, prompts included.
const LAYOUT_TOKENS_MAX: usize = 16 << 20;
/// Layouts that are found at once, for all streams.
static LAYOUTS: Semaphore = Semaphore::const_new(2);

/// What a stream knows of programs.
pub(super) struct Programs {
    app: TrainingApp,
    job: JobName,
    /// The event before which the job's name was another job's.
    since: u64,
    known: BTreeMap<Box<str>, Known>,
    uses: u64,
    recent: VecDeque<Recent>,
}

struct Known {
    growing: Growing,
    /// When it was used last.
    used: u64,
}

/// Tokens of a call.
struct Recent {
    program: Box<str>,
    step: Step,
}

/// A sequence of a member's sample.
#[derive(Serialize)]
pub(super) struct SampleSequence {
    /// The streamed sequence that has its tokens.
    sequence: usize,
    /// How many of that one's first tokens they are.
    tokens: usize,
    /// Ranges to train.
    sampled: Vec<SampledStep>,
}

/// Tokens to train.
#[derive(Serialize)]
struct SampledStep {
    /// First position in the sequence.
    start: usize,
    /// One past the last.
    end: usize,
    /// Number of the call that sampled them.
    step: u64,
    /// Which output of the call.
    output: usize,
}

impl Programs {
    pub(super) fn of(app: TrainingApp, job: JobName, since: u64) -> Self {
        Self {
            app,
            job,
            since,
            known: BTreeMap::new(),
            uses: 0,
            recent: VecDeque::new(),
        }
    }

    /// What a step that event `seq` put on record adds, for each output; `None` if its tokens, or
    /// those of a step before, are not stored any more.
    pub(super) async fn add(
        &mut self,
        seq: u64,
        member: &MemberRef,
        step: StepId,
        recorded: &str,
    ) -> Result<Option<Vec<NewTokens>>, StoreError> {
        let Some(mut growing) = self.known(seq, member).await? else {
            return Ok(None);
        };
        let Some(call) = self.call(&member.program, step.0, Some(recorded)).await? else {
            return Ok(None);
        };
        let who = Who::of(member);
        let placing = tokio::task::spawn_blocking(move || {
            let steps = steps_of(call).into_iter().enumerate();
            let added = steps.map(|(output, step)| {
                let placed = growing.add(&step, output);
                NewTokens::new(who.clone(), output, placed, step)
            });
            let added: Vec<NewTokens> = added.collect();
            (growing, added)
        });
        let Ok((growing, added)) = placing.await else {
            return Ok(None);
        };
        self.keep(&member.program, growing);
        Ok(Some(added))
    }

    /// The sequences of a sample that event `seq` put on record, as places in those that were
    /// streamed. `None` if it was not assembled from the captured steps, or can't be told.
    pub(super) async fn layout(
        &mut self,
        seq: u64,
        member: &MemberRef,
        sample: &str,
    ) -> Result<Option<Vec<SampleSequence>>, StoreError> {
        let recorded = self.recorded(seq, member).await?.unwrap_or_default();
        if recorded.is_empty() {
            return Ok(None);
        }
        let Some(growing) = self.known(seq, member).await? else {
            return Ok(None);
        };
        // It is never closed.
        let room = LAYOUTS.acquire().await;
        let steps = self.app.captured_steps(
            &self.job,
            &member.program,
            &recorded,
            LAYOUT_TOKENS_MAX,
            None,
        );
        let found = match steps.await? {
            Ok(captured) if captured.calls == recorded.len() => {
                let checking = tokio::task::spawn_blocking(move || {
                    // It goes on without its client.
                    let _room = room;
                    let checked = captured.checked().ok()?;
                    Some((
                        digest_text(&digest(&checked.sequences)),
                        checked,
                        captured.origins,
                    ))
                });
                checking.await.ok().flatten()
            }
            _ => None,
        };
        let layout = found
            .filter(|(assembled, ..)| assembled == sample)
            .and_then(|(_, checked, origins)| laid_out(&checked.sequences, &origins, &growing));
        Ok(layout)
    }

    /// Forgets a program that is over.
    pub(super) fn forget(&mut self, program: &str) {
        self.known.remove(program);
        self.recent.retain(|recent| &*recent.program != program);
    }

    /// The sequences of a program before an event; [`Programs::keep`] puts them back.
    async fn known(&mut self, seq: u64, member: &MemberRef) -> Result<Option<Growing>, StoreError> {
        if let Some(known) = self.known.remove(&member.program) {
            return Ok(Some(known.growing));
        }
        let Some(recorded) = self.recorded(seq, member).await? else {
            return Ok(None);
        };
        let mut growing = Growing::default();
        for step in recorded {
            let Some(call) = self.call(&member.program, step.0, None).await? else {
                return Ok(None);
            };
            let grown = tokio::task::spawn_blocking(move || {
                for (output, step) in steps_of(call).iter().enumerate() {
                    growing.add(step, output);
                }
                growing
            });
            let Ok(grown) = grown.await else {
                return Ok(None);
            };
            growing = grown;
        }
        Ok(Some(growing))
    }

    fn keep(&mut self, program: &str, growing: Growing) {
        self.uses += 1;
        let known = Known {
            growing,
            used: self.uses,
        };
        self.known.insert(program.into(), known);
        let mut steps: usize = self.known.values().map(|known| known.growing.len()).sum();
        while steps > STEPS_KEPT
            && self.known.len() > 1
            && let Some((oldest, _)) = self.known.iter().min_by_key(|(_, known)| known.used)
        {
            let oldest = oldest.clone();
            let removed = self.known.remove(&oldest);
            steps -= removed.map_or(0, |known| known.growing.len());
        }
    }

    /// The captured steps of a program before an event, in their order on record; `None` if they
    /// are not known any more.
    async fn recorded(
        &self,
        seq: u64,
        member: &MemberRef,
    ) -> Result<Option<Vec<StepId>>, StoreError> {
        let mut page = EventPage {
            job: Some(self.job.inside.to_string()),
            program: Some(member.program.to_string()),
            kind: Some("member_arrived".to_owned()),
            range: SeqPage {
                after: Some(self.since),
                before: Some(seq),
                limit: 1,
                ..SeqPage::default()
            },
            ..EventPage::default()
        };
        let is_whole = !self.app.store.events_page(&page).await?.is_empty();
        page.kind = Some("step_captured".to_owned());
        if is_whole {
            return self.steps_in(page).await.map(Some);
        }
        // The journal lost its beginning.
        let at = member.clone();
        let captured = self.app.driver.training(move |state| {
            let member = state.member(&at);
            member.map(|member| member.captured.clone())
        });
        let Ok(Some(mut captured)) = captured.await else {
            return Ok(None);
        };
        (page.range.after, page.range.before) = (Some(seq.saturating_sub(1)), None);
        let later = self.steps_in(page).await?;
        captured.retain(|step| !later.contains(step));
        Ok(Some(captured))
    }

    /// The steps that events of a page put on record, and all pages after it.
    async fn steps_in(&self, mut page: EventPage) -> Result<Vec<StepId>, StoreError> {
        page.range.limit = PAGE_ROWS_MAX;
        let mut steps = Vec::new();
        loop {
            let rows = self.app.store.events_page(&page).await?;
            let events = rows.iter().map(|row| serde_json::from_str(&row.body));
            steps.extend(events.filter_map(|event| match event {
                Ok(TrainingEvent::StepCaptured { step, .. }) => Some(step),
                _ => None,
            }));
            match rows.last() {
                Some(last) if rows.len() == PAGE_ROWS_MAX as usize => {
                    page.range.after = Some(last.seq);
                }
                _ => return Ok(steps),
            }
        }
    }

    /// A stored call; `None` if it is not stored any more, or is not the one that was recorded.
    async fn call(
        &mut self,
        program: &str,
        number: u64,
        recorded: Option<&str>,
    ) -> Result<Option<Call>, StoreError> {
        let mut stored: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut earlier = BTreeMap::new();
        let mut wanted = Some(number);
        while let Some(number) = wanted {
            let mut recent = self.recent.iter();
            let is_it =
                |recent: &&Recent| &*recent.program == program && recent.step.number == number;
            if let Some(known) = recent.find(is_it).filter(|_| !stored.is_empty()) {
                earlier.insert(number, known.step.clone());
                break;
            }
            let name = name_of_call(split(program).1, number);
            let rows = self.app.store.payloads(&self.job.inside, &[name]).await?;
            let Some(row) = rows.into_iter().next().filter(|_| stored.len() < BASES_MAX) else {
                return Ok(None);
            };
            let base = Call::base_of(&row.body).ok().flatten();
            wanted = base.filter(|base| *base < number);
            stored.push((number, row.body));
        }
        let is_other = |recorded: &str| digest_of(&stored[0].1) != recorded;
        if recorded.is_some_and(is_other) {
            return Ok(None);
        }
        let mut found = None;
        for (number, body) in stored.into_iter().rev() {
            let Ok(call) = Call::decode(number, &body, &earlier) else {
                return Ok(None);
            };
            earlier = BTreeMap::from([(number, call.first_step())]);
            found = Some(call);
        }
        if let Some(step) = earlier.remove(&number) {
            self.remember(program, step);
        }
        Ok(found)
    }

    /// Keeps the tokens of a step in mind, and within the bound those of the ones before.
    fn remember(&mut self, program: &str, step: Step) {
        if step.context_len() > TOKENS_KEPT {
            return;
        }
        let program = program.into();
        self.recent.push_back(Recent { program, step });
        let lengths = self.recent.iter().map(|recent| recent.step.context_len());
        let mut tokens: usize = lengths.sum();
        while tokens > TOKENS_KEPT
            && let Some(oldest) = self.recent.pop_front()
        {
            tokens -= oldest.step.context_len();
        }
    }
}

/// The steps of a call, with its number.
fn steps_of(call: Call) -> Vec<Step> {
    let number = call.number;
    let mut steps = call.into_steps(0, Delivery::Complete);
    for step in &mut steps {
        step.number = number;
    }
    steps
}

fn laid_out(
    sequences: &[Scored],
    origins: &[Origin],
    growing: &Growing,
) -> Option<Vec<SampleSequence>> {
    let laid_out = sequences.iter().map(|scored| {
        let sampled = scored.sequence.sampled.iter().map(|range| {
            let origin = origins.get(range.step as usize)?;
            Some(SampledStep {
                start: range.start,
                end: range.end,
                step: origin.call,
                output: origin.output,
            })
        });
        let sampled: Vec<SampledStep> = sampled.collect::<Option<_>>()?;
        let last = sampled.last()?;
        let (sequence, tokens) = growing.place(last.step, last.output)?;
        Some(SampleSequence {
            sequence,
            tokens,
            sampled,
        })
    });
    laid_out.collect()
}
