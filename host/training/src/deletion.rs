//! Deleting what is stored of a member: its captured steps, its sample, and what its client said.

use crate::app::{JobName, TrainingApp, store_failed};
use crate::payloads::{folder, of_info, of_sample};
use crate::refusal::{REFUSALS, not_recorded};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use treadle_auth::permissions::RUN;
use treadle_auth::{Caller, Change, now_us};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::training::{MemberRef, State as Runs, TrainingEvent};
use treadle_endpoints::arguments::{InPath, LastInPath};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, delete};
use treadle_model::ClientName;
use treadle_model::tenant::split;
use treadle_samples::calls_of;
use utoipa::ToSchema;

pub(crate) fn endpoint() -> Endpoint<TrainingApp> {
    delete("/api/v1/jobs/{job}/members/{program}", RUN, delete_member)
        .summary("Deletes what is stored of a member: its tokens, its sample and its `info`")
        .details(
            "It ends if it runs. A member that is in no batch is replaced by another one; in a batch \
             it stays, marked `deleted` and without a sample. The request can be sent again.",
        )
        .fails(REFUSALS)
}

/// What was stored of a member is deleted.
#[derive(Serialize, ToSchema)]
struct MemberDeleted {
    /// The program.
    program: String,
    /// Payloads that this request removed.
    payloads: u64,
    /// Batches since the last checkpoint that have the member, now without its sample.
    batches: Vec<u64>,
}

async fn delete_member(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(program): LastInPath<ClientName>,
) -> Answer<MemberDeleted> {
    let job = JobName::of(&caller, job);
    let inside: Box<str> = caller.principal.inside(&program).into();
    for place in &app.places(&job, &inside).await? {
        if place.batch.is_none() {
            let released = ProgramEvent::ProgramReleased {
                program: inside.clone(),
                aborted: true,
            };
            let ended = app.driver.event_committed(Event::Program(released)).await;
            ended.map_err(not_recorded)?;
        }
        let member = place.member.clone();
        app.train(TrainingEvent::MemberDeleted { member }).await?;
    }
    // It may have been put into a batch meanwhile.
    let places = app.places(&job, &inside).await?;
    let payloads = app.delete_payloads(&job, &inside).await?;
    app.removed(&caller);
    let change = Change {
        action: "member.deleted",
        target: &program,
        before: json!({"job": &*job.own, "payloads": payloads}),
        after: Value::Null,
    };
    app.auth.audit.note(&caller, change).await;
    Ok(Json(MemberDeleted {
        program: program.to_string(),
        payloads,
        batches: places.iter().filter_map(|place| place.batch).collect(),
    }))
}

/// A group that a program is a member of.
struct Place {
    member: MemberRef,
    /// The batch that the group is in, if it is in one.
    batch: Option<u64>,
}

fn places_of(state: &Runs, name: &str, program: &str) -> Option<Vec<Place>> {
    let job = state.jobs.get(name)?;
    let known = state.members.get(program).filter(|(of, _)| &**of == name);
    let open = known.map(|(_, key)| (None, key));
    // Once a program is in a batch, it is in no other.
    let served = job.served.contains(program).then(|| {
        job.batches.iter().find_map(|(number, batch)| {
            let mut groups = batch.groups.iter();
            let (key, _) = groups.find(|(_, group)| group.members.contains_key(program))?;
            Some((Some(*number), key))
        })
    });
    let places = open.into_iter().chain(served.flatten());
    let places = places.map(|(batch, key)| Place {
        member: MemberRef {
            job: name.into(),
            group: key.clone(),
            program: program.into(),
        },
        batch,
    });
    Some(places.collect())
}

impl TrainingApp {
    async fn places(&self, job: &JobName, program: &str) -> Result<Vec<Place>, Response> {
        let (name, program) = (job.inside.clone(), program.to_owned());
        let places = self.read(move |state| places_of(state, &name, &program));
        places.await?.ok_or_else(|| job.unknown())
    }

    /// Removes all payloads of a program. Returns how many there were.
    async fn delete_payloads(&self, job: &JobName, program: &str) -> Result<u64, Response> {
        let before_us = now_us();
        let mut removed = 0;
        for stored in [
            of_sample(program, ""),
            of_info(program, ""),
            calls_of(split(program).1),
        ] {
            let mut after = stored.clone();
            loop {
                let page = self.store.payload_names(&job.inside, before_us, &after);
                let mut page = page.await.map_err(|error| store_failed(&error))?;
                page.retain(|name| folder(name) == stored);
                let Some(last) = page.last() else { break };
                after.clone_from(last);
                let count = self.store.remove_payloads(&job.inside, &page, before_us);
                removed += count.await.map_err(|error| store_failed(&error))?;
            }
        }
        Ok(removed)
    }
}
