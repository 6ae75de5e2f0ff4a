//! Who waits for whom in a training run, and why.

use serde::Serialize;
use std::collections::BTreeMap;
use treadle_core::training::{Group, Job, Member, OpenAsk, ShapingPurpose, Wait};
use utoipa::ToSchema;

/// One side of a run that waits.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, ToSchema)]
pub(crate) struct Waiting {
    /// trainer or rollouts.
    pub who: &'static str,
    /// weights, trainer, members, groups, policy or judge.
    pub waits_for: &'static str,
    /// What has to happen.
    pub message: String,
}

/// Everything that waits in a job.
pub(crate) fn waits(job: &Job) -> Vec<Waiting> {
    let mut waits = Vec::new();
    if job.requested == job.next_batch {
        waits.push(trainer(job));
    }
    if let Some(Wait::Weights { version }) = job.waits_for_weights() {
        let current = job.version.map_or("none".to_owned(), |v| v.to_string());
        waits.push(Waiting {
            who: "rollouts",
            waits_for: "weights",
            message: format!(
                "no program begins before engines have version {version} (now {current}): what \
                 they sample would be too old for batch {}; publish it, or report it with POST versions",
                job.next_batch
            ),
        });
    } else if job.shaping.ask.as_ref().is_some_and(is_size) && !job.held.is_empty() {
        waits.push(Waiting {
            who: "rollouts",
            waits_for: "policy",
            message: "the shaping policy is asked how many members groups sample; without an \
                      answer within a second they sample what they train"
                .to_owned(),
        });
    } else if !job.held.is_empty() {
        waits.push(for_place(job));
    }
    waits
}

/// Programs wait until a further group may begin.
fn for_place(job: &Job) -> Waiting {
    let programs: usize = job.held.values().map(BTreeMap::len).sum();
    let begun = job.begun.len();
    let (waits_for, why) = match job.waits_for_place() {
        Some(Wait::Weights { version }) => (
            "weights",
            format!(
                "what others sample now would be too old for the batches after those; engines must \
                 have version {version} first"
            ),
        ),
        _ => (
            "trainer",
            format!(
                "the limit is {}; the trainer has to take batch {}",
                job.settings.begun_max(),
                job.next_batch
            ),
        ),
    };
    Waiting {
        who: "rollouts",
        waits_for,
        message: format!(
            "{programs} programs wait to begin: {begun} groups have begun and are in no batch, {why}"
        ),
    }
}

fn is_size(open: &OpenAsk) -> bool {
    open.purpose == ShapingPurpose::Size
}

fn trainer(job: &Job) -> Waiting {
    let (ready, size) = (job.ready.len(), job.settings.batch_groups as usize);
    let begun = job.begun.iter().filter_map(|(_, key)| job.groups.get(key));
    let is_open = |group: &&Group| {
        let members = group.members.values();
        group.missing() == 0 && members.clone().all(Member::has_ended_well) && !job.is_ready(group)
    };
    let open = begun.filter(is_open).count();
    let running = job.begun.len() - ready - open;
    let queued = job.groups.len() - job.begun.len();
    let missing = size.saturating_sub(ready);
    let short = missing > running + open + queued;
    let mut message = format!(
        "batch {} needs {size} groups: {ready} are ready, {running} run, {open} lack rewards or \
         samples, {queued} are queued",
        job.next_batch
    );
    if short {
        message.push_str("; submit more groups");
    } else if missing == 0 {
        message.push_str("; one that would be too old afterwards is waited for");
    }
    Waiting {
        who: "trainer",
        waits_for: if short { "groups" } else { "members" },
        message,
    }
}
