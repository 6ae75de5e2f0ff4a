//! What a client says of a member that ended, checked against what is on record.

use crate::app::{JobName, TrainingApp};
use crate::jobs::end_text;
use axum::response::Response;
use treadle_auth::Caller;
use treadle_core::training::{End, Job, Member, MemberRef, Reward};
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

impl TrainingApp {
    /// Finds a member of a job.
    pub(crate) async fn locate(
        &self,
        caller: &Caller,
        job: &JobName,
        own: &ClientName,
    ) -> Result<Located, Response> {
        let inside = job.inside.clone();
        let program: Box<str> = caller.principal.inside(own).into();
        let found = self.read(move |state| {
            let known = state.members.get(&program);
            let key = known.filter(|(of, _)| *of == inside).map(|(_, key)| &**key);
            let job = state.jobs.get(&inside)?;
            Some(located(&inside, job, &program, key))
        });
        let found = found.await?.ok_or_else(|| job.unknown())?;
        found.ok_or_else(|| {
            let message = format!(
                "program `{own}` is not a member of a group of job `{}`: it never was, or it was cut \
                 or replaced; begin another one",
                job.own
            );
            refuse(ErrorCode::MemberUnknown, message)
        })
    }
}

fn located(name: &str, job: &Job, program: &str, key: Option<&str>) -> Option<Located> {
    let open = key.and_then(|key| {
        let member = job.groups.get(key)?.members.get(program)?;
        Some((key, member, false))
    });
    let served = || {
        let batches = job.batches.values().rev().take(SEARCHED_BATCHES);
        let mut groups = batches.flat_map(|batch| &batch.groups);
        groups.find_map(|(key, group)| Some((&**key, group.members.get(program)?, true)))
    };
    let (key, member, served) = open.or_else(served)?;
    Some(Located {
        at: MemberRef {
            job: name.into(),
            group: key.into(),
            program: program.into(),
        },
        member: member.clone(),
        served,
        version: job.version,
    })
}

/// What of a report is not on record yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Missing {
    pub end: bool,
    pub reward: bool,
    pub sample: bool,
}

impl Located {
    /// What of a report is not on record yet.
    ///
    /// # Errors
    /// Something else is, and it can't change any more.
    pub(crate) fn missing(
        &self,
        end: End,
        reward: Option<Reward>,
        sample: Option<&str>,
    ) -> Result<Missing, Response> {
        let member = &self.member;
        let missing = Missing {
            end: member.end.is_none(),
            reward: reward.is_some() && reward != member.reward,
            sample: sample.is_some() && sample != member.sample.as_deref(),
        };
        let other = if member.end.is_some_and(|recorded| recorded != end) {
            "end"
        } else if missing.sample && member.sample.is_some() && member.end.is_some() {
            "sample"
        } else if self.served && (missing.reward || missing.sample) {
            "report, and it is in a batch"
        } else {
            return Ok(missing);
        };
        let message = format!(
            "the member ended already ({}) with another {other}; a member ends once",
            member.end.map_or("", end_text)
        );
        Err(refuse(ErrorCode::MemberConflict, message))
    }
}
