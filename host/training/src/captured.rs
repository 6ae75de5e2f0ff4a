//! Samples of members whose steps the gateway captured.

use crate::app::{JobName, TrainingApp};
use crate::payloads::{digest_text, of_sample, of_steps, payload};
use crate::sample::Checked;
use std::collections::BTreeMap;
use treadle_auth::now_us;
use treadle_core::training::{Member, MemberRef, Report, TrainingEvent};
use treadle_model::Tenant;
use treadle_model::tenant::split;
use treadle_samples::{Assembly, Call, Delivery, Step, assemble, digest, store};
use treadle_store::StoreError;

/// Steps of a program.
const STEPS_MAX: usize = 10_000;
/// Payloads that are read at once.
const READ_AT_ONCE: usize = 64;

/// The steps of a program that were captured, numbered by their places.
pub(crate) struct CapturedSteps {
    pub(crate) steps: Vec<Step>,
    /// Calls that they were, each with one output or more.
    pub(crate) calls: usize,
}

impl CapturedSteps {
    /// What the steps form.
    pub(crate) fn assembly(&self) -> Assembly {
        assemble(&self.steps, None)
    }

    fn checked(&self) -> Result<Checked, String> {
        let spans = self.steps.iter().map(|step| step.versions.iter());
        let versions = spans.map(|spans| spans.filter_map(|s| s.version.parse().ok()).collect());
        let versions: Vec<Vec<u64>> = versions.collect();
        Checked::of(self.assembly(), &self.steps, &versions, self.calls as u32)
    }
}

/// Assembles the sample of a member that ended and puts it on record, or why it has no sample.
pub(crate) async fn assemble_member(app: &TrainingApp, at: &MemberRef) {
    let member = at.clone();
    let read = app.driver.training(move |state| {
        let job = state.jobs.get(&member.job)?;
        let found = state.member(&member)?;
        let is_open = found.has_ended_well() && found.sample.is_none();
        (is_open && job.settings.captured()).then(|| found.clone())
    });
    // It was cut meanwhile, its client reported its sample, or the daemon stops.
    let Ok(Some(member)) = read.await else { return };
    let event = match report_of(app, at, &member).await {
        Ok(report) => TrainingEvent::MemberEnded {
            member: at.clone(),
            report,
        },
        Err(Unassembled::Store(error)) => {
            // It is assembled after the next start.
            return tracing::error!(%error, program = &*at.program, "a sample can't be assembled");
        }
        Err(Unassembled::Incomplete(cause)) => {
            tracing::warn!(program = &*at.program, cause, "a program has no sample");
            TrainingEvent::CaptureFailed {
                member: at.clone(),
                cause: cause.chars().take(256).collect::<String>().into(),
            }
        }
    };
    let _ = app.driver.train(event).await;
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
        Self::Store(error)
    }
}

async fn report_of(
    app: &TrainingApp,
    at: &MemberRef,
    member: &Member,
) -> Result<Report, Unassembled> {
    let incomplete = Unassembled::Incomplete;
    let job = JobName::inside(&at.job).ok_or_else(|| incomplete("its job has no name".into()))?;
    let captured = app
        .captured_steps(&job, &at.program, member.captured)
        .await??;
    if captured.calls < member.captured.max(member.turns) as usize {
        let (found, turns) = (captured.calls, member.turns.max(member.captured));
        return Err(incomplete(format!(
            "{found} of {turns} steps were captured"
        )));
    }
    let checked = tokio::task::spawn_blocking(move || {
        let checked = captured.checked()?;
        let body = store(checked.sequences.clone()).map_err(|error| error.to_string())?;
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
        end: member.end.unwrap_or(treadle_core::training::End::Completed),
        tokens: checked.tokens,
        turns: checked.turns,
        reward: None,
        sample: Some(sample.into()),
        version: checked.versions.map(|(oldest, _)| oldest),
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
        let last: Vec<String> = names.into_iter().last().into_iter().collect();
        let rows = self.store.payloads(&job.inside, &last).await?;
        let text = rows.first().and_then(|row| Call::text_of(&row.body).ok());
        Ok(text.unwrap_or_default())
    }

    /// Names of the captured calls of a program, in their order.
    async fn step_names(&self, job: &JobName, program: &str) -> Result<Vec<String>, StoreError> {
        let prefix = of_steps(program);
        let (mut after, mut names) = (prefix.clone(), Vec::new());
        loop {
            let before_us = now_us() + 3_600_000_000;
            let page = self
                .store
                .payload_names(&job.inside, before_us, &after)
                .await?;
            let own = page.iter().filter(|name| name.starts_with(&prefix));
            names.extend(own.cloned());
            match page.last() {
                Some(last) if last.starts_with(&prefix) => after.clone_from(last),
                _ => return Ok(names),
            }
        }
    }

    /// The captured steps of a program; `recorded` of its calls are on record. The inner error says
    /// why they can't be read.
    pub(crate) async fn captured_steps(
        &self,
        job: &JobName,
        program: &str,
        recorded: u32,
    ) -> Result<Result<CapturedSteps, Unreadable>, StoreError> {
        let prefix = of_steps(program);
        let names = self.step_names(job, program).await?;
        if names.len() > STEPS_MAX {
            let cause = format!("it has {} steps, more than {STEPS_MAX}", names.len());
            return Ok(Err(Unreadable(cause)));
        }
        // One that is stored and not on record was not answered to the end.
        let delivery = if names.len() == recorded as usize {
            Delivery::Complete
        } else {
            Delivery::Unknown
        };
        let (mut earlier, mut steps) = (BTreeMap::new(), Vec::new());
        for names in names.chunks(READ_AT_ONCE) {
            for row in self.store.payloads(&job.inside, names).await? {
                let number = row.name[prefix.len()..].parse().unwrap_or_default();
                let call = match Call::decode(number, &row.body, &earlier) {
                    Ok(call) => call,
                    Err(error) => return Ok(Err(Unreadable(error.to_string()))),
                };
                earlier.insert(number, call.first_step());
                steps.extend(call.into_steps(steps.len() as u64, delivery));
            }
        }
        let calls = earlier.len();
        Ok(Ok(CapturedSteps { steps, calls }))
    }
}

/// Why the captured steps of a program can't be read.
pub(crate) struct Unreadable(pub(crate) String);

impl From<Unreadable> for Unassembled {
    fn from(Unreadable(cause): Unreadable) -> Self {
        Self::Incomplete(cause)
    }
}
