//! Groups that are in no batch, with their members.

use crate::app::{JobName, TrainingApp, on_record};
use crate::jobs::end_text;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_core::programs;
use treadle_core::training::{Group, Job, Lost, Member, Reward};
use treadle_endpoints::arguments::{InPath, Query, optional, page_limit};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, get};
use treadle_model::tenant::split;
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// Members on a page, unless its first group has more.
const MEMBERS_MAX: usize = 4_096;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    vec![
        get("/api/v1/jobs/{job}/groups", VIEW, list)
            .summary("Groups of a training job that are in no batch, with their members, by key")
            .fails(&[ErrorCode::JobUnknown]),
    ]
}

/// Paging of groups.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupQuery {
    /// Only the group of this key.
    group: Option<String>,
    /// Only groups with members, and without those that are too old to be trained.
    #[serde(default)]
    #[param(required = false)]
    begun: bool,
    /// Only those with a greater key: `next` of the previous page.
    after: Option<String>,
    /// Maximum number of groups; default 100. A page has fewer if they have more than 4,096
    /// members.
    limit: Option<u32>,
}

impl GroupQuery {
    fn range(&self) -> (Bound<&str>, Bound<&str>) {
        if let Some(group) = self.group.as_deref() {
            return (Bound::Included(group), Bound::Included(group));
        }
        let after = self.after.as_deref();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        (from, Bound::Unbounded)
    }
}

/// A page of groups.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct OpenGroups {
    /// By key.
    groups: Vec<OpenGroup>,
    /// The `after` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A group that is in no batch.
#[derive(Serialize, ToSchema)]
struct OpenGroup {
    /// Its key.
    group: String,
    /// What its prompt is from; absent if that was not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// queued, running, ready, or stale: it is too old to be trained and runs on.
    state: &'static str,
    /// Number of its members once it has all.
    size: u16,
    /// Members that have begun and were not lost.
    begun: usize,
    /// Members that came to an end of their own.
    ended: usize,
    /// Members with a reward.
    rewarded: usize,
    /// Version at the oldest first token of its members.
    version: Option<u64>,
    /// Members that it has lost since it was last queued.
    failures: u32,
    /// How often it became too old.
    returned: u32,
    /// Programs that named it when it had all its members; they are not trained.
    surplus: usize,
    /// Its members, by program.
    members: Vec<GroupMember>,
    /// Members that it lost, the latest last. Those of the job's latest 1,024 are remembered.
    lost: Vec<LostMember>,
}

/// A member of a group that is in no batch.
#[derive(Serialize, ToSchema)]
struct GroupMember {
    /// Its program.
    program: String,
    /// When it began, in microseconds since 1970.
    begun_at_us: u64,
    /// How it ended: completed or truncated; null while it runs.
    end: Option<&'static str>,
    /// Its reward; null if it has none yet.
    reward: Option<f64>,
    /// Version at its first token; until then, the one in service when it began.
    version: u64,
    /// Tokens that it sampled, so far if treadle forwards its requests; else 0 until it ended.
    tokens: u64,
    /// Its steps, counted like `tokens`.
    turns: u32,
    /// Digest of its sample; null before it is on record.
    sample: Option<String>,
    /// Why the tokens of a step could not be captured; absent if those of none were missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
}

/// A member that was lost.
#[derive(Serialize, ToSchema)]
struct LostMember {
    /// Its program.
    program: String,
    /// How it was lost: cut, or how it failed.
    end: &'static str,
    /// A short cause, if one was reported.
    cause: Option<String>,
}

impl GroupMember {
    fn of(key: &str, member: &Member, programs: &programs::State) -> Self {
        let live = programs.program(key).filter(|_| member.end.is_none());
        let so_far = live.map(|live| (live.output_tokens_total, live.steps_finished));
        let (tokens, turns) = so_far.unwrap_or((member.tokens, member.turns));
        Self {
            program: split(key).1.to_owned(),
            begun_at_us: member.begun.0,
            end: member.end.map(end_text),
            reward: member.reward.map(Reward::get),
            version: member.version,
            tokens,
            turns,
            sample: member.sample.as_deref().map(str::to_owned),
            incomplete: member.incomplete.as_deref().map(str::to_owned),
        }
    }
}

impl LostMember {
    fn of(lost: &Lost) -> Self {
        Self {
            program: split(&lost.program).1.to_owned(),
            end: end_text(lost.end),
            cause: lost.cause.as_deref().map(str::to_owned),
        }
    }
}

impl OpenGroup {
    fn of(key: &str, group: &Group, job: &Job, programs: &programs::State) -> Self {
        let state = match group {
            _ if group.stale => "stale",
            _ if group.members.is_empty() => "queued",
            _ if job.is_ready(group) => "ready",
            _ => "running",
        };
        let members = group.members.iter();
        let members = members.map(|(key, member)| GroupMember::of(key, member, programs));
        let members: Vec<GroupMember> = members.collect();
        let count = |has: fn(&GroupMember) -> bool| members.iter().filter(|m| has(m)).count();
        Self {
            group: key.to_owned(),
            domain: group.domain.as_deref().map(str::to_owned),
            state,
            size: group.size,
            begun: members.len(),
            ended: count(|member| member.end.is_some()),
            rewarded: count(|member| member.reward.is_some()),
            version: group.version(),
            failures: group.failures,
            returned: group.returned,
            surplus: group.surplus.len(),
            members,
            lost: Vec::new(),
        }
    }
}

/// The groups that a query is for, by key.
fn matching<'a>(
    query: &'a GroupQuery,
    job: &'a Job,
) -> Box<dyn Iterator<Item = (&'a str, &'a Group)> + 'a> {
    if !query.begun {
        let groups = job.groups.range::<str, _>(query.range());
        return Box::new(groups.map(|(key, group)| (&**key, group)));
    }
    // Few of a job's groups have begun.
    let begun: BTreeSet<&str> = job.begun.iter().map(|(_, key)| &**key).collect();
    let keys: Vec<&str> = begun.range::<str, _>(query.range()).copied().collect();
    let groups = keys.into_iter();
    Box::new(groups.filter_map(|key| Some((key, job.groups.get(key)?))))
}

fn page(query: &GroupQuery, job: &Job, programs: &programs::State) -> OpenGroups {
    let limit = page_limit(query.limit) as usize;
    let mut page = OpenGroups::default();
    let mut members = 0;
    for (key, group) in matching(query, job) {
        members += group.members.len();
        if page.groups.len() == limit || (members > MEMBERS_MAX && !page.groups.is_empty()) {
            page.next = page.groups.last().map(|last| last.group.clone());
            break;
        }
        page.groups.push(OpenGroup::of(key, group, job, programs));
    }
    let mut lost: BTreeMap<&str, Vec<LostMember>> = BTreeMap::new();
    for member in &job.lost {
        let of_group = lost.entry(&member.group).or_default();
        of_group.push(LostMember::of(member));
    }
    for group in &mut page.groups {
        group.lost = lost.remove(&*group.group).unwrap_or_default();
    }
    page
}

pub(crate) async fn list(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Query(mut query): Query<GroupQuery>,
) -> Answer<OpenGroups> {
    let job = JobName::of(&caller, job);
    query.group = optional("group", query.group)?.map(|group| group.to_string());
    let inside = job.inside.clone();
    let read = app.driver.training_and_programs(move |state, programs| {
        let job = state.jobs.get(&inside)?;
        Some(page(&query, job, programs))
    });
    let page = on_record(read).await?;
    Ok(axum::Json(page.ok_or_else(|| job.unknown())?))
}
