//! Reads a stream's messages from the journal and the store, as fast as its client takes them.

use super::message::{Item, Message, Who};
use super::offset::Offset;
use super::programs::{Programs, SampleSequence};
use crate::app::{JobName, TrainingApp};
use crate::jobs::end_text;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;
use treadle_core::programs::ProgramEvent;
use treadle_core::training::{MemberRef, Report, Reward, TrainingEvent};
use treadle_model::StepId;
use treadle_model::tenant::split;
use treadle_store::{EventPage, EventRow, Follower, StoreError};

/// Longest silence of a stream.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Reads the messages of a stream.
pub(super) struct Reader {
    app: TrainingApp,
    job: JobName,
    follower: Follower,
    programs: Programs,
    /// What the client had seen when it connected.
    seen: Offset,
    /// Events that were read and have not become messages.
    rows: VecDeque<EventRow>,
    /// Messages of an event, and how many of it were before them.
    items: VecDeque<Item>,
    seq: u64,
    part: u32,
    over: bool,
}

/// What comes next.
pub(super) enum Next {
    /// A message.
    Message(Offset, Message),
    /// Nothing for a while; the client has seen everything up to here.
    Silence(Offset),
}

/// A member ended.
#[derive(Serialize)]
pub(super) struct StreamEnded {
    #[serde(flatten)]
    who: Who,
    /// completed, truncated, or how it failed.
    end: &'static str,
    /// Its reward, if it was reported with the end.
    reward: Option<f64>,
    /// Digest of its sample; null if it is not on record yet.
    sample: Option<String>,
    /// The sequences of its sample, in their order. Null without one, and if the sample is in its
    /// batch only: its client reported it, or it is too long to be told.
    sequences: Option<Vec<SampleSequence>>,
}

/// A member has its reward; a later one replaces it.
#[derive(Serialize)]
pub(super) struct StreamReward {
    /// The program.
    program: String,
    /// The reward.
    reward: f64,
}

/// A member is not trained, or not by its captured steps.
#[derive(Serialize)]
pub(super) struct StreamDropped {
    #[serde(flatten)]
    who: Who,
    /// How it was lost; null if a step of it was not captured, and its client may still report its
    /// sample.
    end: Option<&'static str>,
    /// A short cause, if one was given.
    cause: Option<String>,
}

/// A batch took a group.
#[derive(Serialize)]
pub(super) struct StreamBatch {
    /// Number of the batch.
    batch: u64,
    /// The group.
    group: String,
    /// Its members.
    programs: Vec<String>,
    /// Groups of the batch, each with a message.
    groups: usize,
}

/// Something is not stored any more.
#[derive(Serialize)]
pub(super) struct StreamGone {
    /// step, batch, journal or job.
    what: &'static str,
    /// The program, of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    /// Number of the call, of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    /// Number of the batch, of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    /// What happened, and what to do.
    message: String,
}

impl StreamGone {
    fn of(what: &'static str, message: &str) -> Self {
        Self {
            what,
            program: None,
            step: None,
            batch: None,
            message: message.to_owned(),
        }
    }

    fn items(self) -> Vec<Item> {
        vec![Item::message("gone", &self)]
    }
}

impl Reader {
    /// Reads what comes after `seen`; `since` is the last event of an earlier job of the name.
    pub(super) fn new(app: TrainingApp, job: JobName, seen: Offset, since: u64) -> Self {
        let page = EventPage {
            job: Some(job.inside.to_string()),
            ..EventPage::default()
        };
        let follower = Follower::new(app.store.clone(), app.committed.clone(), page, seen.after());
        Self {
            programs: Programs::of(app.clone(), job.clone(), since),
            app,
            job,
            follower,
            seen,
            rows: VecDeque::new(),
            items: VecDeque::new(),
            seq: 0,
            part: 0,
            over: false,
        }
    }

    /// The next message, or a sign of life; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Next>, StoreError> {
        loop {
            while let Some(item) = self.items.pop_front() {
                let is_last = self.items.is_empty();
                let part = (!is_last).then_some(self.part);
                let offset = Offset {
                    seq: self.seq,
                    part,
                };
                self.part += 1;
                if !self.seen.has(offset) {
                    return Ok(Some(Next::Message(offset, item.written())));
                }
            }
            if self.over {
                return Ok(None);
            }
            if let Some(row) = self.rows.pop_front() {
                (self.seq, self.part) = (row.seq, 0);
                self.items = self.items_of(&row).await?.into();
                continue;
            }
            let after = self.follower.after();
            let Ok(rows) = tokio::time::timeout(SILENCE_MAX, self.follower.next()).await else {
                let read = Offset::whole(self.follower.after());
                let seen = if self.seen.has(read) { self.seen } else { read };
                return Ok(Some(Next::Silence(seen)));
            };
            let Some(rows) = rows? else {
                return Ok(None);
            };
            self.rows = rows.into();
            if oldest(&self.app).await? > after.saturating_add(1) {
                let message = "events that were not read yet were removed from the journal \
                               (`store.keep_events`); connect without an offset, and forget \
                               members that are not streamed again";
                (self.seq, self.part, self.over) = (after, 0, true);
                self.seen = Offset {
                    seq: 0,
                    part: Some(0),
                };
                self.items = StreamGone::of("journal", message).items().into();
            }
        }
    }

    /// The messages that an event becomes.
    async fn items_of(&mut self, row: &EventRow) -> Result<Vec<Item>, StoreError> {
        if row.kind == "program_rewarded" {
            return Ok(rewarded(row));
        }
        if !TrainingEvent::KINDS.contains(&&*row.kind) {
            return Ok(Vec::new());
        }
        let Ok(event) = serde_json::from_str::<TrainingEvent>(&row.body) else {
            return Ok(Vec::new());
        };
        Ok(match event {
            TrainingEvent::StepCaptured {
                member,
                step,
                digest,
                ..
            } => self.step(row.seq, &member, step, &digest).await?,
            TrainingEvent::MemberEnded { member, report } => {
                self.ended(row.seq, &member, &report).await?
            }
            TrainingEvent::RewardGiven { member, reward } => {
                vec![reward_of(&member.program, reward.get())]
            }
            TrainingEvent::CaptureFailed { member, cause } => {
                vec![dropped(&member, None, Some(cause))]
            }
            TrainingEvent::MemberDropped { member, end, cause } => {
                self.programs.forget(&member.program);
                vec![dropped(&member, Some(end_text(end)), cause)]
            }
            TrainingEvent::BatchCut { batch, .. } => self.batch(batch).await,
            TrainingEvent::JobRemoved { .. } => {
                self.over = true;
                StreamGone::of("job", "the job was forgotten; forget its members").items()
            }
            _ => Vec::new(),
        })
    }

    async fn step(
        &mut self,
        seq: u64,
        member: &MemberRef,
        step: StepId,
        digest: &str,
    ) -> Result<Vec<Item>, StoreError> {
        if let Some(added) = self.programs.add(seq, member, step, digest).await? {
            return Ok(added
                .into_iter()
                .flat_map(super::message::NewTokens::items)
                .collect());
        }
        let message = "the step's tokens are not stored any more: the batch of its member was \
                       released, or the member was dropped; forget the member";
        Ok(StreamGone {
            program: Some(split(&member.program).1.to_owned()),
            step: Some(step.0),
            ..StreamGone::of("step", message)
        }
        .items())
    }

    async fn ended(
        &mut self,
        seq: u64,
        member: &MemberRef,
        report: &Report,
    ) -> Result<Vec<Item>, StoreError> {
        let sequences = match report.sample.as_deref() {
            Some(sample) => {
                let layout = self.programs.layout(seq, member, sample).await?;
                self.programs.forget(&member.program);
                layout
            }
            None => None,
        };
        let ended = StreamEnded {
            who: Who::of(member),
            end: end_text(report.end),
            reward: report.reward.map(Reward::get),
            sample: report.sample.as_deref().map(str::to_owned),
            sequences,
        };
        Ok(vec![Item::message("ended", &ended)])
    }

    /// A batch never changes until it is released.
    async fn batch(&mut self, number: u64) -> Vec<Item> {
        let inside = self.job.inside.clone();
        let read = self.app.driver.training(move |state| {
            let batch = state.jobs.get(&inside)?.batches.get(&number)?;
            let groups = batch.groups.iter().map(|(key, group)| {
                let programs = group.members.keys();
                StreamBatch {
                    batch: number,
                    group: key.to_string(),
                    programs: programs.map(|p| split(p).1.to_owned()).collect(),
                    groups: batch.groups.len(),
                }
            });
            Some(groups.collect::<Vec<StreamBatch>>())
        });
        if let Ok(Some(groups)) = read.await {
            return groups
                .iter()
                .map(|group| Item::message("batch", group))
                .collect();
        }
        StreamGone {
            batch: Some(number),
            ..StreamGone::of(
                "batch",
                "the batch was released by a checkpoint; forget its members",
            )
        }
        .items()
    }
}

fn dropped(member: &MemberRef, end: Option<&'static str>, cause: Option<Box<str>>) -> Item {
    let dropped = StreamDropped {
        who: Who::of(member),
        end,
        cause: cause.map(String::from),
    };
    let kind = if end.is_some() {
        "dropped"
    } else {
        "incomplete"
    };
    Item::message(kind, &dropped)
}

fn reward_of(program: &str, reward: f64) -> Item {
    let program = split(program).1.to_owned();
    Item::message("reward", &StreamReward { program, reward })
}

/// The reward of a program is that of the member that it is.
fn rewarded(row: &EventRow) -> Vec<Item> {
    let event = serde_json::from_str(&row.body);
    let Ok(ProgramEvent::ProgramRewarded {
        program,
        reward_millionths,
    }) = event
    else {
        return Vec::new();
    };
    vec![reward_of(&program, reward_millionths as f64 / 1e6)]
}

/// The oldest event in the journal; without one, the next.
pub(super) async fn oldest(app: &TrainingApp) -> Result<u64, StoreError> {
    if let Some(row) = app.store.events_after(0, 1).await?.first() {
        return Ok(row.seq);
    }
    Ok(app.store.last_seq().await? + 1)
}
