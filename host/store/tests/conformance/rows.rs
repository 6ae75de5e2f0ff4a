//! Rows to store, made from a few numbers.

use std::ops::RangeInclusive;

use treadle_store::{
    Batch, BindingRow, BindingSet, DecisionPage, DecisionRow, EventRow, Order, PluginHead,
    PluginRow, ProgramRow, SeqPage, Snapshot, StepRow, WorkerRow,
};

/// The maximum number of rows of a page.
pub(crate) const ALL: u32 = treadle_store::PAGE_ROWS_MAX;

pub(crate) fn range(after: Option<u64>, before: Option<u64>, order: Order, limit: u32) -> SeqPage {
    SeqPage {
        after,
        before,
        order,
        limit,
        ..SeqPage::default()
    }
}

/// A range of all decisions.
pub(crate) fn decisions(range: &SeqPage) -> DecisionPage {
    DecisionPage {
        range: range.clone(),
        ..DecisionPage::default()
    }
}

pub(crate) fn snapshot(seq: u64) -> Snapshot {
    Snapshot {
        seq,
        saved_at_us: seq,
        state: vec![seq as u8; 3],
    }
}

pub(crate) fn event(seq: u64) -> EventRow {
    EventRow {
        seq,
        at_us: seq * 10,
        kind: if seq.is_multiple_of(2) {
            "step-arrived"
        } else {
            "step-finished"
        }
        .into(),
        job: "math".into(),
        program: (!seq.is_multiple_of(5)).then(|| format!("p-{}", seq % 3)),
        body: format!("{{\"n\":{seq},\"text\":\"ä'\\\"\"}}"),
    }
}

pub(crate) fn events(seqs: RangeInclusive<u64>) -> Batch {
    Batch {
        events: seqs.map(event).collect(),
        ..Batch::default()
    }
}

pub(crate) fn program(name: &str, created_at_us: u64) -> ProgramRow {
    ProgramRow {
        program: name.into(),
        job: if created_at_us.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        }
        .into(),
        parent: created_at_us.is_multiple_of(3).then(|| "parent".into()),
        status: "active".into(),
        phase: "reasoning".into(),
        worker: Some("w-1".into()),
        context_tokens: 8_000,
        steps: 3,
        tokens_total: 20_000,
        output_tokens: Some(5_000),
        created_at_us,
        updated_at_us: created_at_us,
        ended: None,
        reward_millionths: None,
        blocked_us: created_at_us.is_multiple_of(5).then_some(created_at_us),
    }
}

pub(crate) fn ended(name: &str, at_us: u64) -> ProgramRow {
    ProgramRow {
        status: "finished".into(),
        worker: None,
        ended: Some("finished".into()),
        ..program(name, at_us)
    }
}

pub(crate) fn step(program: &str, step: u64) -> StepRow {
    StepRow {
        step,
        program: program.into(),
        worker: Some("w-1".into()),
        arrived_at_us: step,
        dispatched_at_us: Some(step + 1),
        first_token_at_us: None,
        finished_at_us: None,
        prompt_tokens: 100,
        output_tokens: 0,
        cached_tokens: step.is_multiple_of(2).then_some(50),
        outcome: "running".into(),
        waited_us: 1,
        cause: None,
        output_tokens_total: Some(10 * step),
        predicted_tokens: step.is_multiple_of(3).then_some(70),
        predicted_tokens_p90: step.is_multiple_of(3).then_some(90),
        weight_version: step.is_multiple_of(5).then(|| "v1".into()),
    }
}

pub(crate) fn worker(name: &str) -> WorkerRow {
    WorkerRow {
        worker: name.into(),
        url: format!("http://{name}:8000"),
        kind: "vllm".into(),
        status: "ready".into(),
        capacity_tokens: Some(400_000),
        used_tokens: 0,
        added_at_us: 5,
        updated_at_us: 6,
    }
}

pub(crate) fn decision(seq: u64, program: Option<&str>, kind: &str) -> DecisionRow {
    DecisionRow {
        seq,
        at_us: seq * 10,
        kind: kind.into(),
        program: program.map(Into::into),
        worker: Some("w-1".into()),
        policy: "thunderagent-eviction 0.1.0".into(),
        why: "{\"share\":0.93}".into(),
    }
}

pub(crate) fn plugin(digest: &str, uploaded_at_us: u64) -> PluginRow {
    let component = vec![0, 97, 115, 109, digest.len() as u8];
    PluginRow {
        head: PluginHead {
            digest: digest.into(),
            world: "eviction".into(),
            name: "shortest-first".into(),
            version: "1.2.3".into(),
            summary: "Evicts the shortest context first".into(),
            size_bytes: component.len() as u64,
            uploaded_at_us,
            signed_by: Some("a team".into()),
        },
        component,
    }
}

/// The policy that a job uses for eviction.
pub(crate) fn bindings(job: &str, roles: Vec<BindingRow>) -> BindingSet {
    BindingSet {
        job: job.into(),
        world: "eviction".into(),
        roles,
    }
}

pub(crate) fn binding(job: &str, digest: &str) -> BindingRow {
    BindingRow {
        job: job.into(),
        world: "eviction".into(),
        role: "active".into(),
        digest: digest.into(),
        config: "{}".into(),
        share_ppm: 0,
        since_us: 9,
    }
}
