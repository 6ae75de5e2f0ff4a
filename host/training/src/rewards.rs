//! Rewards that treadle computes: an action or a policy for each member that ended well and has
//! none, or for all members of a group together.

use crate::app::TrainingApp;
use crate::breakers::Permit;
use crate::judge::{Judge, Question, filled};
use crate::scores::{Scores, judged};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use treadle_core::training::{MemberRef, TrainingEvent};
use treadle_model::tenant::split;
use treadle_model::{ActionId, Tenant};
use treadle_registry::PluginRegistry;
use treadle_runs::actions::{Actions, Failure, Submission};
use treadle_store::ActionRow;
use treadle_wire::ErrorCode;

/// Rewards of one job that are computed at once.
const AT_ONCE_MAX: usize = 64;
/// How often an action is submitted for one reward if what it runs on fails.
const ATTEMPTS_MAX: u32 = 8;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// How often a group that is being judged is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for the end of an action, before it is looked at again.
const WAIT: Duration = Duration::from_mins(1);
/// How often it is looked at while nobody tells of its end.
const WAIT_PAUSE: Duration = Duration::from_secs(1);

/// Computes rewards.
pub(crate) struct Rewards {
    judges: Arc<Judges>,
    jobs: BTreeMap<Box<str>, Arc<Semaphore>>,
}

/// What computes rewards.
struct Judges {
    app: TrainingApp,
    actions: Option<Arc<Actions>>,
    policies: Arc<PluginRegistry>,
    /// Groups whose rewards are computed together now.
    groups: Mutex<BTreeSet<(Box<str>, Box<str>)>>,
}

impl Rewards {
    pub(crate) fn of(
        app: TrainingApp,
        actions: Option<Arc<Actions>>,
        policies: Arc<PluginRegistry>,
    ) -> Self {
        Self {
            judges: Arc::new(Judges {
                app,
                actions,
                policies,
                groups: Mutex::default(),
            }),
            jobs: BTreeMap::new(),
        }
    }

    /// Computes the reward of a member.
    pub(crate) fn of_member(
        &mut self,
        member: MemberRef,
    ) -> impl Future<Output = ()> + Send + use<> {
        let room = self.jobs.entry(member.job.clone());
        let room = room.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_MAX)));
        let (judges, room) = (self.judges.clone(), room.clone());
        async move {
            // It is never closed.
            let _room = room.acquire().await;
            judges.compute(&member).await;
        }
    }
}

/// What an attempt came to.
enum Verdict {
    Given(Scores),
    /// treadle could not ask now.
    Later(String),
    /// What computes it failed; it may work later, and may have said when.
    Broken(String, Option<Duration>),
    Failed(String),
    /// The daemon stops.
    Over,
}

impl Judges {
    async fn compute(&self, at: &MemberRef) {
        let (mut pause, mut attempt) = (Duration::from_secs(1), 1);
        // Its client's own reward counts more, if it came meanwhile; or the member was cut.
        while let Some(needed) = self.app.needed_reward(at).await {
            let Some(judging) = self.judging(at, needed.of_group) else {
                // It is judged with the members that it had before.
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            };
            let judges = &self.app.judges;
            let permit = match judges.permit(&at.job, &needed.template, Instant::now()) {
                Ok(permit) => permit,
                // This is no attempt, and the member keeps its turn.
                Err(wait) => {
                    drop(judging);
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            match self.app.question(at, needed).await {
                Ok(mut question) => {
                    let verdict = self.verdict(&mut question, attempt).await;
                    tell(permit, &verdict);
                    let scores = match verdict {
                        Verdict::Over => return,
                        Verdict::Given(scores) => {
                            let fits = question.check(&scores);
                            fits.map_or_else(Scores::Failed, |()| scores)
                        }
                        Verdict::Later(cause) | Verdict::Broken(cause, _)
                            if attempt < ATTEMPTS_MAX =>
                        {
                            tracing::debug!(
                                program = &*at.program,
                                cause,
                                "a reward is tried again"
                            );
                            attempt += 1;
                            drop(judging);
                            tokio::time::sleep(pause).await;
                            pause = (2 * pause).min(PAUSE_MAX);
                            continue;
                        }
                        Verdict::Failed(cause)
                        | Verdict::Later(cause)
                        | Verdict::Broken(cause, _) => Scores::Failed(cause),
                    };
                    return self.give(&question, &scores).await;
                }
                // No judge was asked: this is no attempt either.
                Err(cause) => {
                    tracing::error!(
                        program = &*at.program,
                        cause,
                        "a reward can't be asked for yet"
                    );
                    drop((judging, permit));
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
        }
    }

    /// The right to judge the group of a member. `None` while another one has it.
    fn judging(&self, at: &MemberRef, of_group: bool) -> Option<Judging<'_>> {
        let group = of_group.then(|| (at.job.clone(), at.group.clone()));
        let is_free = group
            .clone()
            .is_none_or(|group| self.groups().insert(group));
        is_free.then_some(Judging {
            judges: self,
            group,
        })
    }

    fn groups(&self) -> std::sync::MutexGuard<'_, BTreeSet<(Box<str>, Box<str>)>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts rewards on record, of those members that still need one.
    async fn give(&self, question: &Question, scores: &Scores) {
        for (place, member) in question.open() {
            if !self.app.needs_reward(member).await {
                continue;
            }
            let event = match scores.of(place, member) {
                Ok(reward) => TrainingEvent::RewardGiven {
                    member: member.clone(),
                    reward,
                },
                Err(cause) => {
                    let program = &*member.program;
                    tracing::warn!(program, cause, "no reward could be computed");
                    TrainingEvent::RewardFailed {
                        member: member.clone(),
                        cause: cause.chars().take(256).collect::<String>().into(),
                    }
                }
            };
            let _ = self.app.driver.train(event).await;
        }
    }

    async fn verdict(&self, question: &mut Question, attempt: u32) -> Verdict {
        match question.judge.clone() {
            Judge::Policy => self.ask_policy(question).await,
            Judge::Action(template) => match &self.actions {
                Some(actions) => by_action(actions, question, &template, attempt).await,
                None => Verdict::Failed("this daemon runs no actions".to_owned()),
            },
        }
    }

    async fn ask_policy(&self, question: &Question) -> Verdict {
        let asked = self
            .policies
            .score(question.job.to_string(), question.call());
        let asked = asked.await;
        match asked {
            Ok(asked) => match Scores::of_policy(&asked.answer) {
                Some(scores) => Verdict::Given(scores),
                None => Verdict::Failed(format!("{} gave no totals", asked.policy)),
            },
            Err(error) => Verdict::Broken(error.to_string(), None),
        }
    }
}

/// Has the judge's breaker know what its call came to.
fn tell(permit: Permit<'_>, verdict: &Verdict) {
    match verdict {
        Verdict::Given(_) | Verdict::Failed(_) => permit.answered(),
        Verdict::Broken(cause, after) => permit.failed(cause, *after, Instant::now()),
        Verdict::Later(_) | Verdict::Over => drop(permit),
    }
}

/// A group is judged by one at a time.
struct Judging<'j> {
    judges: &'j Judges,
    group: Option<(Box<str>, Box<str>)>,
}

impl Drop for Judging<'_> {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            self.judges.groups().remove(group);
        }
    }
}

async fn by_action(
    actions: &Actions,
    question: &mut Question,
    template: &serde_json::Value,
    attempt: u32,
) -> Verdict {
    let key = format!("reward/{}/{attempt}", question.name());
    // It is large, and not needed while the action waits and runs.
    let input = question.take_input();
    let (tenant, job) = split(&question.job);
    let tenant = Tenant::new(tenant);
    let written = filled(template, &input, job, &key);
    drop(input);
    let submission = match serde_json::from_value::<Submission>(written.clone()) {
        Ok(submission) => submission,
        Err(error) => return Verdict::Failed(error.to_string()),
    };
    let admitted = actions.submit(&tenant, submission, &written).await;
    drop(written);
    let admitted = match admitted {
        Ok(admitted) => admitted,
        // An earlier run of this job's name may have used the key.
        Err(Failure::Refused(error))
            if error.code.status() < 429 && error.code != ErrorCode::IdempotencyKeyTaken =>
        {
            return Verdict::Failed(error.message);
        }
        Err(Failure::Refused(error)) => return Verdict::Later(error.message),
        Err(Failure::Store(error)) => return Verdict::Later(error.to_string()),
        Err(Failure::Stopped) => return Verdict::Over,
    };
    match ended(actions, &tenant, admitted.action).await {
        Ok(row) => {
            let output = match row.output.as_deref() {
                Some(digest) => match actions.output(&tenant, digest).await {
                    Ok(Some(output)) => output,
                    // What can't be read is no answer without a reward.
                    Ok(None) => return Verdict::Later("its answer is not stored any more".into()),
                    Err(error) => return Verdict::Later(error.to_string()),
                },
                None => Vec::new(),
            };
            match judged(&row, &output) {
                Ok(Ok(scores)) => Verdict::Given(scores),
                Ok(Err(cause)) => Verdict::Broken(cause, actions.retry_after(admitted.action)),
                Err(cause) => Verdict::Failed(cause),
            }
        }
        Err(Failure::Stopped) => Verdict::Over,
        Err(failure) => Verdict::Later(failure.into_refusal().message),
    }
}

/// Whether too many wait for actions.
fn is_busy(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::TenantBusy | ErrorCode::Overloaded)
}

/// An action once it has ended. It goes on while its tenant waits for too many, or the store fails.
async fn ended(actions: &Actions, tenant: &Tenant, id: ActionId) -> Result<ActionRow, Failure> {
    let mut wait = WAIT;
    loop {
        match actions.ended(tenant, id, wait).await {
            Ok(row) if row.ended_at_us.is_some() => return Ok(row),
            Ok(_) if wait.is_zero() => tokio::time::sleep(WAIT_PAUSE).await,
            Ok(_) => {}
            Err(Failure::Refused(error)) if is_busy(error.code) => {
                wait = Duration::ZERO;
                continue;
            }
            Err(Failure::Store(error)) => {
                tracing::warn!(%error, action = id.0, "an action is looked at again");
                tokio::time::sleep(WAIT_PAUSE).await;
            }
            Err(other) => return Err(other),
        }
        wait = WAIT;
    }
}
