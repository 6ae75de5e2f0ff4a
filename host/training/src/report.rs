//! Where a member is that a client reports of.

use crate::app::{JobName, TrainingApp};
use crate::refusal::{not_recorded, refused};
use axum::response::Response;
use treadle_auth::Caller;
use treadle_core::training::{Job, Member, MemberRef, TrainingError, TrainingEvent};
use treadle_http::refuse;
use treadle_model::ClientName;
use treadle_wire::ErrorCode;

/// Batches that are searched for a member, newest first: a report that comes again is not older.
const SEARCHED_BATCHES: usize = 4;

/// A member on record.
pub(crate) struct Located {
    /// Where it is.
    pub at: MemberRef,
    /// Its state.
    pub member: Member,
    /// It is in a batch: it does not change any more.
    pub served: bool,
    /// The version that engines have.
    pub version: Option<u64>,
}

/// What a program of a job is.
pub(crate) enum Membership {
    /// A member of a group or of one of the newest batches.
    Member(Box<Located>),
    /// It was a member, and was cut or replaced.
    Dropped,
    /// It never was, or its batch was cut long ago.
    Unknown,
}

impl TrainingApp {
    /// Finds a member of a job: in this batch, or in no batch and the newest ones.
    pub(crate) async fn locate(
        &self,
        caller: &Caller,
        job: &JobName,
        own: &ClientName,
        batch: Option<u64>,
    ) -> Result<Membership, Response> {
        let inside = job.inside.clone();
        let program: Box<str> = caller.principal.inside(own).into();
        let found = self.read(move |state| {
            let known = state.members.get(&program);
            let key = known.filter(|(of, _)| *of == inside).map(|(_, key)| &**key);
            let job = state.jobs.get(&inside)?;
            Some(found(&inside, job, &program, key, batch))
        });
        found.await?.ok_or_else(|| job.unknown())
    }

    /// Handles an event of a member that was found. If its group was put into a batch since, or the
    /// member was dropped, the answer is that of a member which is found so: `is_done` says whether
    /// one is already as the event makes it.
    pub(crate) async fn train_member(
        &self,
        caller: &Caller,
        job: &JobName,
        own: &ClientName,
        event: TrainingEvent,
        is_done: impl Fn(&Member) -> bool,
    ) -> Result<(), Response> {
        let handled = self.driver.train(event).await.map_err(not_recorded)?;
        let Err(error) = handled else { return Ok(()) };
        if !matches!(
            error,
            TrainingError::UnknownGroup { .. } | TrainingError::UnknownMember { .. }
        ) {
            return Err(refused(&error));
        }
        let found = self.locate(caller, job, own, None).await?;
        match found.member(job, own)? {
            located if is_done(&located.member) => Ok(()),
            located if located.served => Err(served()),
            _ => Err(refused(&error)),
        }
    }
}

pub(crate) fn served() -> Response {
    let message = "the member is in a batch and does not change any more";
    refuse(ErrorCode::MemberConflict, message)
}

fn found(
    name: &str,
    job: &Job,
    program: &str,
    key: Option<&str>,
    batch: Option<u64>,
) -> Membership {
    let open = key.and_then(|key| {
        let member = job.groups.get(key)?.members.get(program)?;
        Some((key, member, false))
    });
    let served = || {
        let named = batch
            .into_iter()
            .filter_map(|number| job.batches.get(&number));
        let newest = job.batches.values().rev().take(SEARCHED_BATCHES);
        let batches = named.chain(newest);
        let mut groups = batches.flat_map(|batch| &batch.groups);
        groups.find_map(|(key, group)| Some((&**key, group.members.get(program)?, true)))
    };
    let is_served = job.served.contains(program);
    let located = open.or_else(|| is_served.then(served).flatten());
    let Some((key, member, served)) = located else {
        return if job.dropped.contains(program) {
            Membership::Dropped
        } else {
            Membership::Unknown
        };
    };
    Membership::Member(Box::new(Located {
        at: MemberRef {
            job: name.into(),
            group: key.into(),
            program: program.into(),
        },
        member: member.clone(),
        served,
        version: job.version,
    }))
}

impl Membership {
    /// The member.
    ///
    /// # Errors
    /// It is not a member.
    pub(crate) fn member(self, job: &JobName, program: &ClientName) -> Result<Located, Response> {
        let why = match self {
            Self::Member(located) => return Ok(*located),
            Self::Dropped => "it was cut or replaced; begin another one",
            Self::Unknown => "it never was, or its batch was cut long ago",
        };
        let message = format!(
            "program `{program}` is no member of job `{}`: {why}",
            job.own
        );
        Err(refuse(ErrorCode::MemberUnknown, message))
    }
}
