//! TrainingJobs: declaring, showing and forgetting them.

use crate::app::{JobName, TrainingApp, store_failed};
use crate::breakers::Breakers;
use crate::capturing::check_engines;
use crate::domains::TrainingProfile;
use crate::judge::Judge;
use crate::refusal::REFUSALS;
use crate::waits::{Waiting, waits};
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::time::Instant;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_auth::{Caller, Change, now_us};
use treadle_core::programs;
use treadle_core::training::{
    Account, Capture, End, History, Job, JobSettings, Outcomes, Stale, Tally, TrainingEvent,
};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, get, put};
use treadle_http::{error_response, refuse};
use treadle_model::ClientName;
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

/// Longest description of what computes rewards.
const REWARD_BYTES_MAX: usize = 16 << 10;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    let job = "/api/v1/jobs/{job}";
    vec![
        get("/api/v1/jobs", VIEW, list).summary("Training jobs, by name"),
        get(job, VIEW, show)
            .summary("A training job: settings, counts, who waits for whom, bias account")
            .fails(&[ErrorCode::JobUnknown]),
        put(job, RUN, declare)
            .summary("Declares a training job, or replaces its settings")
            .details("TrainingSettings that are left out have their defaults.")
            .fails(REFUSALS)
            .fails(&[ErrorCode::ActionsDisabled]),
    ]
}

/// TrainingSettings of a job; docs/training.md has the defaults.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct TrainingSettings {
    /// The model that is trained, as requests name it. Steps of captured members that name another
    /// one are context only.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Members of a group, 1 to 1,024.
    group_size: u16,
    /// Groups in a batch, 1 to 65,536.
    batch_groups: u32,
    /// Bound on the lag, in training steps, at most 1,000.
    lag_max: u64,
    /// Batches begun ahead of the one that is collected; at most `lag_max`.
    pipeline: u64,
    /// What happens to groups that are too old: cut, finish or wait.
    stale: String,
    /// Members that a group may lose before its prompt returns to the queue.
    failures_max: u32,
    /// A prompt that returned this many times is waited for.
    starved_after: u32,
    /// A shaping policy may have a group sample at most this many times what it trains, 1 to 16.
    redundancy_max: u16,
    /// Whether a group is ready only when each member has a reward.
    rewarded: bool,
    /// What is captured: none, or tokens. With tokens a group is ready only when each member has a
    /// sample.
    capture: String,
    /// Which prompts continue captured answers: as_sent, what the template makes of the client's
    /// messages; or as_sampled, the answer's own tokens if possible.
    history: String,
    /// Seconds after which a member that its client samples is lost; at most a week.
    member_timeout_s: u64,
    /// The class of hardware that the programs of each domain prefer: an object from domain to
    /// class, with the key `default` for all other domains, or "auto".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    affinity: Option<Value>,
    /// An action that computes the rewards that clients don't report; docs/training.md has its form.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    reward: Option<Value>,
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self::of(&JobSettings::default())
    }
}

impl TrainingSettings {
    fn of(settings: &JobSettings) -> Self {
        let stale = match settings.stale {
            Stale::Cut => "cut",
            Stale::Finish => "finish",
            Stale::Wait => "wait",
        };
        Self {
            model: settings.model.as_deref().map(str::to_owned),
            group_size: settings.group_size,
            batch_groups: settings.batch_groups,
            lag_max: settings.lag_max,
            pipeline: settings.pipeline,
            stale: stale.to_owned(),
            failures_max: settings.failures_max,
            starved_after: settings.starved_after,
            redundancy_max: settings.redundancy_max,
            rewarded: settings.rewarded,
            capture: capture_text(settings.capture).to_owned(),
            history: match settings.history {
                History::AsSent => "as_sent".to_owned(),
                History::AsSampled => "as_sampled".to_owned(),
            },
            member_timeout_s: settings.member_timeout_s,
            affinity: settings.affinity.as_ref().map(|affinity| json!(affinity)),
            reward: settings
                .reward
                .as_deref()
                .and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}

/// A training job.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrainingJob {
    /// Its name.
    job: String,
    /// Its settings.
    settings: TrainingSettings,
    /// How often the trainer went back to a checkpoint.
    lineage: u32,
    /// The version that engines have; null after the trainer went back, until it says so.
    version: Option<u64>,
    /// Digest of these weights, if the trainer gave one.
    digest: Option<String>,
    /// The next batch to be cut.
    next_batch: u64,
    /// The last batch in a checkpoint; 0 before the first.
    checkpoint: u64,
    /// Groups that have not begun.
    queued: usize,
    /// Groups that have begun and are not ready.
    running: usize,
    /// Groups that can be put into a batch.
    ready: usize,
    /// Programs that wait to begin.
    held: usize,
    /// Who waits for whom.
    waits: Vec<Waiting>,
    /// What members need, by domain; absent before the first has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<TrainingProfile>,
    /// What became of members.
    account: TrainingAccount,
}

/// What became of members.
#[derive(Serialize, ToSchema)]
struct MemberOutcomes {
    /// Members that began.
    begun: u64,
    /// Those that came to an end of their own.
    finished: TrainingTally,
    /// Those in a batch.
    served: TrainingTally,
    /// Those that were lost, by reason.
    lost: BTreeMap<String, TrainingTally>,
}

impl MemberOutcomes {
    fn of(outcomes: &Outcomes) -> Self {
        let lost = outcomes.lost.iter();
        let lost = lost.map(|(end, tally)| (end_text(*end).to_owned(), TrainingTally::of(tally)));
        Self {
            begun: outcomes.begun,
            finished: TrainingTally::of(&outcomes.finished),
            served: TrainingTally::of(&outcomes.served),
            lost: lost.collect(),
        }
    }
}

/// What became of the members of a job.
#[derive(Serialize, ToSchema)]
struct TrainingAccount {
    /// All members.
    #[serde(flatten)]
    all: MemberOutcomes,
    /// Those of groups with a domain, by that: the first 64 domains, and all others as `other`.
    domains: BTreeMap<String, MemberOutcomes>,
    /// Steps of samples on record that continue no earlier one of their member, by why they don't:
    /// repeated, rerendered, thinking_dropped, edited, compacted, volatile, other_agent or
    /// other.
    breaks: BTreeMap<String, u64>,
    /// Groups that returned to the queue.
    returned: u64,
    /// Groups that are not tried again.
    never_served: u64,
    /// Programs that named a group which had all its members.
    surplus: u64,
    /// Largest lag of a group in a batch.
    lag: u64,
}

/// Sums over members.
#[derive(Serialize, ToSchema)]
struct TrainingTally {
    /// Members.
    members: u64,
    /// Tokens that they sampled.
    tokens: u64,
    /// Their steps.
    turns: u64,
    /// Members with a reward.
    rewarded: u64,
    /// Mean of the rewards; null without any.
    reward_mean: Option<f64>,
}

impl TrainingTally {
    fn of(tally: &Tally) -> Self {
        let mean = |tally: &Tally| tally.reward_millionths as f64 / 1e6 / tally.rewarded as f64;
        Self {
            members: tally.members,
            tokens: tally.tokens,
            turns: tally.turns,
            rewarded: tally.rewarded,
            reward_mean: (tally.rewarded > 0).then(|| mean(tally)),
        }
    }
}

impl TrainingAccount {
    fn of(account: &Account) -> Self {
        let domains = account.domains.iter();
        let domains = domains.map(|(name, own)| (name.to_string(), MemberOutcomes::of(own)));
        Self {
            all: MemberOutcomes::of(&account.all),
            domains: domains.collect(),
            breaks: account
                .breaks
                .iter()
                .map(|(kind, steps)| (kind.to_string(), *steps))
                .collect(),
            returned: account.returned,
            never_served: account.never_served,
            surplus: account.surplus,
            lag: account.lag,
        }
    }
}

impl TrainingJob {
    /// `inside` is the name that the core knows it by.
    fn of(
        name: &str,
        inside: &str,
        job: &Job,
        programs: &programs::State,
        judges: &Breakers,
    ) -> Self {
        let affinity = job.settings.affinity.as_ref();
        let mut waits = waits(job);
        waits.extend(judges.waiting(inside, Instant::now()));
        Self {
            job: name.to_owned(),
            settings: TrainingSettings::of(&job.settings),
            lineage: job.lineage,
            version: job.version,
            digest: job.digest.as_deref().map(str::to_owned),
            next_batch: job.next_batch,
            checkpoint: job.checkpoint,
            queued: job.groups.len() - job.begun.len(),
            running: job.begun.len() - job.ready.len(),
            ready: job.ready.len(),
            held: job.held.values().map(BTreeMap::len).sum(),
            waits,
            profile: TrainingProfile::of(inside, affinity, programs),
            account: TrainingAccount::of(&job.account),
        }
    }
}

fn capture_text(capture: Capture) -> &'static str {
    match capture {
        Capture::None => "none",
        Capture::Tokens => "tokens",
    }
}

/// An end as clients name it.
pub(crate) fn end_text(end: End) -> &'static str {
    match end {
        End::Completed => "completed",
        End::Truncated => "truncated",
        End::Aborted => "aborted",
        End::EnvironmentFailed => "environment_failed",
        End::EngineFailed => "engine_failed",
        End::RewardFailed => "reward_failed",
        End::ClientFailed => "client_failed",
        End::CaptureFailed => "capture_failed",
        End::Cut => "cut",
        End::Curtailed => "curtailed",
        End::Postponed => "postponed",
        End::Unselected => "unselected",
    }
}

/// Training jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrainingJobs {
    /// By name.
    jobs: Vec<TrainingJob>,
}

pub(crate) async fn list(State(app): State<TrainingApp>, caller: Caller) -> Answer<TrainingJobs> {
    let tenant = caller.principal.tenant.tenant.clone();
    let judges = app.judges.clone();
    let jobs = app.read_both(move |state, programs| {
        let jobs = state.jobs.iter();
        let shown = jobs.filter_map(|(name, job)| {
            let own = tenant.outside(name)?;
            Some(TrainingJob::of(own, name, job, programs, &judges))
        });
        shown.collect()
    });
    Ok(Json(TrainingJobs { jobs: jobs.await? }))
}

pub(crate) async fn show(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
) -> Answer<TrainingJob> {
    shown(&app, &JobName::of(&caller, job)).await
}

async fn shown(app: &TrainingApp, job: &JobName) -> Answer<TrainingJob> {
    let (known, judges) = (job.clone(), app.judges.clone());
    let view = app.read_both(move |state, programs| {
        let found = state.jobs.get(&known.inside)?;
        let JobName { own, inside } = &known;
        Some(TrainingJob::of(own, inside, found, programs, &judges))
    });
    view.await?.map(Json).ok_or_else(|| job.unknown())
}

pub(crate) async fn declare(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Body(mut request): Body<Value>,
) -> Answer<TrainingJob> {
    let job = JobName::of(&caller, job);
    let mut judged_together = false;
    if let Some(template) = request.get_mut("reward") {
        judged_together = check_reward(&app, &job, template)?;
        *template = template.to_string().into();
    }
    if request.get("judged_together").is_some() {
        let message = "unknown field `judged_together`; set `of` in `reward`";
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let mut settings: JobSettings = serde_json::from_value(request.clone()).map_err(|error| {
        let message = format!("the settings can't be used: {error}; docs/training.md lists them");
        refuse(ErrorCode::InvalidField, message)
    })?;
    if let Some(problem) = settings.problem() {
        return Err(refuse(ErrorCode::InvalidField, problem));
    }
    settings.judged_together = judged_together;
    check_engines(&app, &settings).await?;
    let declaring = app.declaring.lock().await;
    put_on_record(&app, &caller, &job, settings, request).await?;
    drop(declaring);
    shown(&app, &job).await
}

/// Declares a job with defaults, unless it is declared already.
pub(crate) async fn declare_by_name(
    app: &TrainingApp,
    caller: &Caller,
    job: &JobName,
) -> Result<(), Response> {
    if is_declared(app, job).await? {
        return Ok(());
    }
    let _declaring = app.declaring.lock().await;
    if is_declared(app, job).await? {
        return Ok(());
    }
    put_on_record(app, caller, job, JobSettings::default(), json!({})).await
}

async fn is_declared(app: &TrainingApp, job: &JobName) -> Result<bool, Response> {
    let inside = job.inside.clone();
    let read = app.read(move |state| state.jobs.contains_key(&inside));
    read.await
}

async fn put_on_record(
    app: &TrainingApp,
    caller: &Caller,
    job: &JobName,
    settings: JobSettings,
    request: Value,
) -> Result<(), Response> {
    app.check_jobs(caller, job).await?;
    app.train(TrainingEvent::JobDeclared {
        job: job.inside.clone(),
        settings: Box::new(settings),
    })
    .await?;
    let change = Change {
        action: "job.declared",
        target: &job.own,
        before: Value::Null,
        after: request,
    };
    app.auth.audit.note(caller, change).await;
    Ok(())
}

/// Checks what computes rewards. Returns whether it judges members of a group together.
fn check_reward(app: &TrainingApp, job: &JobName, template: &Value) -> Result<bool, Response> {
    let size = template.to_string().len();
    let problem = match Judge::parse(template) {
        _ if size > REWARD_BYTES_MAX => {
            format!("it has {size} bytes, at most {REWARD_BYTES_MAX} are stored")
        }
        Err(problem) => problem,
        Ok((Judge::Action(_), _)) if !app.runs_actions => {
            let message = "this daemon runs no actions, which would compute the rewards; set \
                           `actions.enabled = true`, or report rewards";
            return Err(refuse(ErrorCode::ActionsDisabled, message));
        }
        Ok((judge, of_group)) => match judge.check(job, app.sandboxes_only) {
            Ok(()) => return Ok(of_group),
            Err(problem) => problem,
        },
    };
    let message = format!("`reward` can't be used: {problem}; docs/training.md has its form");
    let body = ErrorBody::new(ErrorCode::InvalidField, message);
    Err(error_response(&body.with_param("reward")))
}

/// Forgets a training job with everything that it stored. Returns whether there was one.
///
/// # Errors
/// It is not on record.
pub async fn forget(app: &TrainingApp, caller: &Caller, own: ClientName) -> Result<bool, Response> {
    let job = JobName::of(caller, own);
    let inside = job.inside.clone();
    // What is stored from now on is of another run of this name.
    let before_us = now_us();
    let batches = app.read(move |state| state.jobs.get(&*inside).map(|job| job.next_batch - 1));
    let batches = batches.await?;
    if batches.is_some() {
        let removed = TrainingEvent::JobRemoved {
            job: job.inside.clone(),
        };
        app.train(removed).await?;
        app.judges.forget(&job.inside);
        let change = Change {
            action: "job.forgotten",
            target: &job.own,
            before: json!({"batches": batches}),
            after: Value::Null,
        };
        app.auth.audit.note(caller, change).await;
    }
    loop {
        let names = app.store.payload_names(&job.inside, before_us, "").await;
        let names = names.map_err(|error| store_failed(&error))?;
        if names.is_empty() {
            app.removed(caller);
            return Ok(batches.is_some());
        }
        let removed = app
            .store
            .remove_payloads(&job.inside, &names, before_us)
            .await;
        removed.map_err(|error| store_failed(&error))?;
    }
}
