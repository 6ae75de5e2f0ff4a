//! Rewards that treadle computes: an action for each member that ended well and has none.

use crate::app::{JobName, TrainingApp};
use crate::payloads::{info_of, json_of, of_group};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use treadle_core::actions::Outcome;
use treadle_core::training::{MemberRef, Reward, TrainingEvent};
use treadle_model::tenant::split;
use treadle_model::{ActionId, Tenant};
use treadle_runs::actions::{Actions, Failure, Submission};
use treadle_store::ActionRow;
use treadle_wire::ErrorCode;

/// Rewards of one job that are computed at once.
const AT_ONCE_MAX: usize = 64;
/// How often an action is submitted for one reward if what it runs on fails.
const ATTEMPTS_MAX: u32 = 8;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Longest wait for the end of an action, before it is looked at again.
const WAIT: Duration = Duration::from_mins(1);

/// Computes rewards until this is dropped.
pub async fn compute_rewards(
    app: TrainingApp,
    actions: Arc<Actions>,
    mut wanted: UnboundedReceiver<MemberRef>,
) {
    let mut jobs: BTreeMap<Box<str>, Arc<Semaphore>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    while let Some(member) = wanted.recv().await {
        while tasks.try_join_next().is_some() {}
        let room = jobs.entry(member.job.clone());
        let room = room.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_MAX)));
        let (app, actions, room) = (app.clone(), actions.clone(), room.clone());
        tasks.spawn(async move {
            // It is never closed.
            let _room = room.acquire().await;
            compute(&app, &actions, &member).await;
        });
    }
}

/// Whether a text describes an action that can compute rewards.
pub(crate) fn is_template(template: &Value) -> Result<(), String> {
    let written = filled(template, &json!({}), "x", "key");
    let submission = serde_json::from_value::<Submission>(written);
    submission.map(drop).map_err(|error| error.to_string())
}

/// What an attempt came to.
enum Verdict {
    Given(Reward),
    /// What the action runs on failed; it may work later.
    Later(String),
    Failed(String),
    /// The daemon stops, or the member needs no reward any more.
    Over,
}

async fn compute(app: &TrainingApp, actions: &Actions, member: &MemberRef) {
    let mut pause = Duration::from_secs(1);
    let mut cause = String::new();
    for attempt in 1..=ATTEMPTS_MAX {
        let event = match verdict(app, actions, member, attempt).await {
            Verdict::Given(reward) => TrainingEvent::RewardGiven {
                member: member.clone(),
                reward,
            },
            Verdict::Failed(cause) => failed(member, &cause),
            Verdict::Later(why) => {
                tracing::debug!(program = &*member.program, why, "a reward is tried again");
                cause = why;
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
                continue;
            }
            Verdict::Over => return,
        };
        // Its client's own reward counts more, if it came meanwhile; or the member was cut.
        if asked(app, member).await.is_some() {
            let _ = app.driver.train(event).await;
        }
        return;
    }
    let _ = app.driver.train(failed(member, &cause)).await;
}

fn failed(member: &MemberRef, cause: &str) -> TrainingEvent {
    tracing::warn!(
        program = &*member.program,
        cause,
        "no reward could be computed"
    );
    TrainingEvent::RewardFailed {
        member: member.clone(),
        cause: cause.chars().take(256).collect::<String>().into(),
    }
}

async fn verdict(
    app: &TrainingApp,
    actions: &Actions,
    member: &MemberRef,
    attempt: u32,
) -> Verdict {
    let Some((template, input)) = asked(app, member).await else {
        return Verdict::Over;
    };
    let (tenant, job) = split(&member.job);
    let tenant = Tenant::new(tenant);
    let key = format!("reward/{}/{attempt}", split(&member.program).1);
    let written = filled(&template, &input, job, &key);
    let submission = match serde_json::from_value::<Submission>(written.clone()) {
        Ok(submission) => submission,
        Err(error) => return Verdict::Failed(error.to_string()),
    };
    let admitted = match actions.submit(&tenant, submission, &written).await {
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
                Some(digest) => actions.output(&tenant, digest).await.ok().flatten(),
                None => None,
            };
            judged(&row, &output.unwrap_or_default())
        }
        Err(Failure::Stopped) => Verdict::Over,
        Err(failure) => Verdict::Later(failure.into_refusal().message),
    }
}

/// The template of a member's job and the input of its reward, unless it needs none.
async fn asked(app: &TrainingApp, at: &MemberRef) -> Option<(Value, Value)> {
    let member = at.clone();
    let read = app.driver.training(move |state| {
        let job = state.jobs.get(&member.job)?;
        let group = job.groups.get(&member.group)?;
        let found = group.members.get(&member.program)?;
        let template = job.settings.reward.clone()?;
        let is_open = found.has_ended_well() && found.reward.is_none();
        is_open.then(|| (template, group.content.clone(), found.clone()))
    });
    let (template, content, member) = read.await.ok()??;
    let job = JobName::inside(&at.job)?;
    let content = content.map(|digest| of_group(&at.group, &digest));
    let info = info_of(&at.program, &member);
    let names: Vec<String> = content.iter().chain(&info).cloned().collect();
    let payloads = app.payloads(&job, &names).await.ok()?;
    let content = json_of(&payloads, content.as_deref()).ok()?;
    let info = json_of(&payloads, info.as_deref()).ok()?;
    let input = json!({
        "job": job.own.as_str(),
        "group": at.group,
        "program": split(&at.program).1,
        "content": content,
        "info": info,
        "tokens": member.tokens,
        "turns": member.turns,
        "sample": member.sample,
    });
    Some((serde_json::from_str(&template).ok()?, input))
}

/// An action from a template: the input is the body of its request, or the input of its command.
fn filled(template: &Value, input: &Value, job: &str, key: &str) -> Value {
    let mut written = template.as_object().cloned().unwrap_or_default();
    written.insert("job".into(), job.into());
    written.insert("idempotency_key".into(), key.into());
    written.entry("kind").or_insert("reward".into());
    written.entry("idempotent").or_insert(true.into());
    let run = written.get_mut("run").and_then(Value::as_object_mut);
    for (kind, run) in run.into_iter().flatten() {
        let Some(run) = run.as_object_mut() else {
            continue;
        };
        match kind.as_str() {
            "http" | "service" => {
                run.entry("method").or_insert("POST".into());
                let headers = run.entry("headers").or_insert_with(|| Map::new().into());
                if let Some(headers) = headers.as_object_mut() {
                    let json = || "application/json".into();
                    headers.entry("content-type").or_insert_with(json);
                }
                run.insert("body".into(), input.to_string().into());
            }
            _ => {
                run.insert("stdin".into(), input.to_string().into());
            }
        }
    }
    written.into()
}

async fn ended(actions: &Actions, tenant: &Tenant, id: ActionId) -> Result<ActionRow, Failure> {
    loop {
        let row = actions.ended(tenant, id, WAIT).await?;
        if row.ended_at_us.is_some() {
            return Ok(row);
        }
    }
}

/// What an action that ended says.
fn judged(row: &ActionRow, output: &[u8]) -> Verdict {
    let outcome = row.outcome.as_deref();
    let outcome = outcome.and_then(|text| serde_json::from_str::<Outcome>(text).ok());
    match outcome {
        Some(Outcome::Exited {
            code: 0 | 200..=299,
        }) => match reward_in(output) {
            Some(reward) => Verdict::Given(reward),
            None => Verdict::Failed(
                "the answer has no reward; answer a number, or an object with `reward`".to_owned(),
            ),
        },
        Some(Outcome::Exited {
            code: code @ (429 | 500..=599),
        }) => Verdict::Later(format!("the answer has status {code}")),
        Some(Outcome::Exited { code }) => Verdict::Failed(format!("it ended with {code}")),
        Some(Outcome::InfrastructureFailure { cause }) => Verdict::Later(cause.into()),
        Some(Outcome::Unknown | Outcome::Expired) | None => {
            Verdict::Later("it is unknown how it ended".to_owned())
        }
        Some(Outcome::Killed { .. } | Outcome::OutOfMemory) => {
            Verdict::Failed("it was killed".to_owned())
        }
        Some(Outcome::TimedOut) => Verdict::Failed("it ran for too long".to_owned()),
        Some(Outcome::Cancelled) => Verdict::Failed("it was cancelled".to_owned()),
    }
}

/// A number, or that of `reward` in an object.
fn reward_in(output: &[u8]) -> Option<Reward> {
    let value: Value = serde_json::from_slice(output).ok()?;
    let number = value.get("reward").unwrap_or(&value).as_f64()?;
    Reward::new(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: &Value) -> ActionRow {
        ActionRow {
            outcome: Some(outcome.to_string()),
            ..ActionRow::default()
        }
    }

    #[test]
    fn only_a_number_is_a_reward_and_only_failures_of_others_are_tried_again() {
        let exited = |code: i32| json!({"outcome": "exited", "code": code});
        let given = |output: &str| match judged(&row(&exited(200)), output.as_bytes()) {
            Verdict::Given(reward) => Some(reward.get()),
            _ => None,
        };
        assert_eq!(given("0.5"), Some(0.5));
        assert_eq!(given("{\"reward\": -1, \"why\": \"x\"}"), Some(-1.0));
        for none in [
            "",
            "null",
            "\"0.5\"",
            "{\"score\": 1}",
            "1e999",
            "{\"reward\": null}",
        ] {
            assert_eq!(given(none), None, "{none}");
        }
        for (outcome, later) in [
            (exited(503), true),
            (exited(429), true),
            (exited(404), false),
            (exited(1), false),
            (json!({"outcome": "timed_out"}), false),
            (json!({"outcome": "unknown"}), true),
            (
                json!({"outcome": "infrastructure_failure", "cause": "x"}),
                true,
            ),
        ] {
            let verdict = judged(&row(&outcome), b"1");
            assert_eq!(matches!(verdict, Verdict::Later(_)), later, "{outcome}");
            assert!(!matches!(verdict, Verdict::Given(_)), "{outcome}");
        }
    }

    #[test]
    fn the_input_goes_where_the_action_reads_it() {
        let input = json!({"program": "p"});
        let http = json!({"run": {"http": {"url": "http://judge/score"}}});
        let written = filled(&http, &input, "math", "k");
        let http = &written["run"]["http"];
        assert_eq!(http["body"], input.to_string());
        assert_eq!(http["method"], "POST");
        assert_eq!(
            (&written["job"], &written["kind"]),
            (&json!("math"), &json!("reward"))
        );
        let process = json!({"kind": "tests", "run": {"process": {"command": ["x"]}}});
        let written = filled(&process, &input, "math", "k");
        assert_eq!(written["run"]["process"]["stdin"], input.to_string());
        assert!(is_template(&process).is_ok());
        assert!(is_template(&json!({"runs": {}})).is_err());
    }
}
