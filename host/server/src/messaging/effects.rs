//! Effects of commands: checked first, then applied, then awaited until they are on disk.

use super::commands::{Command, Failure};
use crate::app::App;
use crate::commands::{forget_run, register, reward_of, rewarded, workers_named};
use serde_json::{Value, json};
use std::sync::Arc;
use treadle_auth::{Auth, Caller, Change, Principal, PrincipalKind, Scope, TenantState};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::Worker;
use treadle_engines::Declared;
use treadle_model::ClientName;
use treadle_model::Tenant;
use treadle_model::tenant::DEFAULT_TENANT;
use treadle_wire::{ErrorBody, ErrorCode};

/// A checked command.
pub(super) enum Effect {
    /// Ends a program.
    Release {
        tenant: Tenant,
        /// The program's name in the core.
        key: String,
        /// Its name as its client uses it.
        program: ClientName,
        reward: Option<Event>,
    },
    /// Reports a reward.
    Reward {
        tenant: Tenant,
        /// The program's name in the core.
        key: String,
        program: ClientName,
        reward: Event,
    },
    /// Ends all programs of a job.
    ReleaseJob {
        tenant: Tenant,
        /// The job's name in the core.
        inside: String,
        job: ClientName,
        /// Its training run goes too.
        forget: bool,
    },
    /// Registers an engine.
    Add { url: String, declared: Declared },
    /// Removes an engine.
    Remove { worker: String },
}

fn refused<T>(reason: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Refused(reason.into()))
}

/// Checks the names in a command.
pub(super) async fn check(app: &App, command: &Command) -> Result<Effect, Failure> {
    match command {
        Command::ReleaseProgram {
            tenant,
            job,
            program,
            reward,
        } => {
            let tenant = tenant_of(app, tenant.as_deref())?;
            let program = name("program", program)?;
            let key = tenant.inside(&program).into_owned();
            if let Some(job) = job {
                let wanted = tenant.inside(&name("job", job)?).into_owned();
                check_job(app, &key, wanted, &program, job).await?;
            }
            let reward = reward.map(|reward| event_of(&key, reward)).transpose()?;
            Ok(Effect::Release {
                tenant,
                key,
                program,
                reward,
            })
        }
        Command::RewardProgram {
            tenant,
            program,
            reward,
        } => {
            let tenant = tenant_of(app, tenant.as_deref())?;
            let program = name("program", program)?;
            let key = tenant.inside(&program).into_owned();
            let reward = event_of(&key, *reward)?;
            Ok(Effect::Reward {
                tenant,
                key,
                program,
                reward,
            })
        }
        Command::ReleaseJob {
            tenant,
            job,
            forget,
        } => {
            let tenant = tenant_of(app, tenant.as_deref())?;
            let job = name("job", job)?;
            Ok(Effect::ReleaseJob {
                inside: tenant.inside(&job).into_owned(),
                tenant,
                job,
                forget: *forget,
            })
        }
        Command::AddWorker {
            url,
            kind,
            capacity_tokens,
            class,
            role,
        } => {
            let declared = Declared::new(kind.as_deref(), *capacity_tokens)
                .and_then(|declared| declared.of_class(class.as_deref()))
                .and_then(|declared| declared.with_role(role.as_deref()));
            added(url, declared)
        }
        Command::RemoveWorker { worker } => Ok(Effect::Remove {
            worker: worker.clone(),
        }),
    }
}

fn added(url: &str, declared: Result<Declared, ErrorBody>) -> Result<Effect, Failure> {
    let declared = declared.map_err(|error| Failure::Refused(error.message))?;
    let url = url.into();
    Ok(Effect::Add { url, declared })
}

/// The tenant, which must exist.
pub(super) fn tenant_of(app: &App, name: Option<&str>) -> Result<Tenant, Failure> {
    tenant_state(&app.auth, name).map(|state| state.tenant.clone())
}

/// The state of a tenant, which must exist.
fn tenant_state(auth: &Auth, name: Option<&str>) -> Result<Arc<TenantState>, Failure> {
    let name = name.unwrap_or(DEFAULT_TENANT);
    match auth.directory().tenants.get(name) {
        Some(state) => Ok(state.clone()),
        None => refused(format!(
            "no tenant `{name}`; `treadle access tenants list` lists all"
        )),
    }
}

/// A client of the broker, which acts as an operator of the tenant that it names.
pub(super) fn caller(auth: &Auth, tenant: Option<&str>, id: &str) -> Result<Caller, Failure> {
    let principal = Principal {
        tenant: tenant_state(auth, tenant)?,
        scope: Some(Scope::Operator),
        global: false,
        root: false,
        whole: false,
        tenants: auth.directory().tenants.len(),
        who: PrincipalKind::Broker,
    };
    Ok(Caller {
        principal: Arc::new(principal),
        address: None,
        request_id: id.to_owned(),
    })
}

/// A name in a command.
pub(super) fn name(field: &str, text: &str) -> Result<ClientName, Failure> {
    ClientName::parse(field, text).map_err(|error| Failure::Refused(error.to_string()))
}

fn event_of(key: &str, reward: f64) -> Result<Event, Failure> {
    rewarded(key, reward).map_err(|error| Failure::Refused(error.message))
}

/// Checks that a live program belongs to the job that a command names.
pub(super) async fn check_job(
    app: &App,
    key: &str,
    wanted: String,
    program: &str,
    job: &str,
) -> Result<(), Failure> {
    let live = app.driver.program(key).await.map_err(|_| Failure::Over)?;
    match live {
        Some(live) if *live.job != *wanted => refused(format!(
            "program `{program}` does not belong to job `{job}`"
        )),
        _ => Ok(()),
    }
}

/// Applies a command; returns its result as text.
pub(super) async fn carry_out(app: &App, id: &str, effect: Effect) -> Result<String, Failure> {
    match effect {
        Effect::Release {
            tenant,
            key,
            program,
            reward,
        } => release(app, id, &tenant, &key, &program, reward).await,
        Effect::Reward {
            tenant,
            key,
            program,
            reward,
        } => self::reward(app, id, &tenant, &key, &program, reward).await,
        Effect::ReleaseJob {
            tenant,
            inside,
            job,
            forget,
        } => {
            let released = release_job(app, id, &tenant, inside, &job).await?;
            if forget {
                let caller = caller(&app.auth, Some(tenant.name()), id)?;
                let forgotten = forget_run(app, &caller, &job).await;
                forgotten.map_err(|response| match response.status().as_u16() {
                    503 => Failure::Over,
                    _ => Failure::Unable("the training run could not be removed".to_owned()),
                })?;
            }
            Ok(released)
        }
        Effect::Add { url, declared } => add(app, id, &url, declared).await,
        Effect::Remove { worker } => remove(app, id, worker).await,
    }
}

/// Writes a change to the audit log.
async fn note(app: &App, id: &str, tenant: &str, change: Change<'_>) {
    app.auth.audit.note_as(tenant, "broker", id, change).await;
}

async fn release(
    app: &App,
    id: &str,
    tenant: &Tenant,
    key: &str,
    program: &str,
    reward: Option<Event>,
) -> Result<String, Failure> {
    let live = app.driver.program(key).await.map_err(|_| Failure::Over)?;
    let after = reward.as_ref().map_or(Value::Null, said);
    if let Some(event) = reward {
        committed(app, event).await?;
    }
    let Some(steps) = live.map(|program| program.steps_finished) else {
        return Ok("not live".to_owned());
    };
    let event = Event::Program(ProgramEvent::ProgramReleased {
        program: key.into(),
        aborted: false,
    });
    committed(app, event).await?;
    let change = Change {
        action: "program.released",
        target: program,
        before: json!({"steps": steps}),
        after,
    };
    note(app, id, tenant.name(), change).await;
    Ok("released".to_owned())
}

async fn reward(
    app: &App,
    id: &str,
    tenant: &Tenant,
    key: &str,
    program: &str,
    reward: Event,
) -> Result<String, Failure> {
    let live = app.driver.program(key).await.map_err(|_| Failure::Over)?;
    if live.is_none() && app.store.program(key).await?.is_none() {
        return Ok("not on record".to_owned());
    }
    let after = said(&reward);
    committed(app, reward).await?;
    let change = Change {
        action: "program.rewarded",
        target: program,
        before: Value::Null,
        after,
    };
    note(app, id, tenant.name(), change).await;
    Ok("rewarded".to_owned())
}

/// A reward for the audit log.
fn said(reward: &Event) -> Value {
    match reward {
        Event::Program(ProgramEvent::ProgramRewarded {
            reward_millionths, ..
        }) => json!({"reward": reward_of(*reward_millionths)}),
        _ => Value::Null,
    }
}

async fn release_job(
    app: &App,
    id: &str,
    tenant: &Tenant,
    inside: String,
    job: &str,
) -> Result<String, Failure> {
    let keys = app.driver.programs_of(&inside).await;
    let mut keys = keys.map_err(|_| Failure::Over)?;
    let count = keys.len();
    // Events are committed in their order, so the last one on disk means that all are.
    let last = keys.pop();
    for program in keys {
        app.driver
            .event(Event::Program(ProgramEvent::ProgramReleased {
                program,
                aborted: true,
            }));
    }
    if let Some(program) = last {
        committed(
            app,
            Event::Program(ProgramEvent::ProgramReleased {
                program,
                aborted: true,
            }),
        )
        .await?;
    }
    let change = Change {
        action: "job.released",
        target: job,
        before: json!({"live_programs": count}),
        after: Value::Null,
    };
    note(app, id, tenant.name(), change).await;
    Ok(format!("released {count}"))
}

async fn committed(app: &App, event: Event) -> Result<(), Failure> {
    Ok(app.driver.event_committed(event).await?)
}

async fn add(app: &App, id: &str, url: &str, declared: Declared) -> Result<String, Failure> {
    let registered = register(app, url, declared).await;
    let (worker, added) = registered.map_err(|error| match error.code {
        ErrorCode::Overloaded => Failure::Over,
        _ => Failure::Refused(error.message),
    })?;
    let change = Change {
        action: if added {
            "worker.added"
        } else {
            "worker.registered_again"
        },
        target: url,
        before: Value::Null,
        after: json!({"id": worker.0.to_string(), "url": url}),
    };
    note(app, id, DEFAULT_TENANT, change).await;
    Ok(format!("worker {}", worker.0))
}

async fn remove(app: &App, id: &str, reference: String) -> Result<String, Failure> {
    let workers = app.driver.workers().await.map_err(|_| Failure::Over)?;
    let mut any = false;
    for Worker {
        id: worker, url, ..
    } in workers_named(&workers, &reference)
    {
        any = true;
        let worker = *worker;
        app.engines.forget(worker);
        committed(app, Event::Program(ProgramEvent::WorkerRemoved { worker })).await?;
        let change = Change {
            action: "worker.removed",
            target: url,
            before: json!({"id": worker.0.to_string(), "url": url}),
            after: Value::Null,
        };
        note(app, id, DEFAULT_TENANT, change).await;
    }
    let done = if any { "removed" } else { "not registered" };
    Ok(done.to_owned())
}
