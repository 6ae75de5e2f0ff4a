//! The operations on a failing store: every method, with rows unique to each run.

use std::future::Future;
use std::pin::Pin;

use treadle_store::{
    ActionPage, ActionRow, AuditPage, AuditRow, Batch, BodyRow, Candidate, CommandRow, EventRow,
    ListedPage, Location, Names, Order, Placeholder, PolicyStateRow, ProgramPage, Retention,
    RewardRow, SamplePage, SampleRow, ServiceRow, StepPage, StepRow, Store, StoreError, TenantRow,
    TokenRow, TrainingPayload, open,
};

use super::rows;

/// One run of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// Its unique number.
    pub k: u64,
    /// The end of the journal before it.
    pub last_seq: u64,
    /// The location of the store.
    pub at: Location,
}

/// A result as text.
pub(crate) type Outcome<'a> = Pin<Box<dyn Future<Output = Result<String, StoreError>> + 'a>>;

/// A method of a store.
pub(crate) struct Operation {
    /// Its name.
    pub name: &'static str,
    /// Runs it; the text is the same each time.
    pub run: Step,
    /// Describes the stored data after it; the text is the same each time.
    pub check: Step,
}

/// A function that describes a store as text.
type Step = for<'a> fn(&'a dyn Store, &'a Turn) -> Outcome<'a>;

macro_rules! step {
    ($store:ident, $turn:ident, $what:expr) => {{
        let step: Step = |$store, $turn| {
            Box::pin(async move {
                let _ = ($store, $turn);
                Ok(format!("{:?}", $what))
            })
        };
        step
    }};
    ($store:ident, $turn:ident) => {
        step!($store, $turn, ())
    };
}

macro_rules! operations {
    ($(($name:literal, $store:ident, $turn:ident, $run:expr $(, $check:expr)?);)+) => {
        vec![$(Operation {
            name: $name,
            run: step!($store, $turn, $run),
            check: step!($store, $turn $(, $check)?),
        }),+]
    };
}

/// Rows of all kinds.
pub(crate) fn batch(turn: &Turn) -> Batch {
    let (k, first) = (turn.k, turn.last_seq + 1);
    let program = format!("p-{k}");
    let mut batch = rows::events(first..=first + 2);
    batch.decisions = vec![rows::decision(first, Some(&program), "pause")];
    batch.programs = vec![rows::program(&program, k)];
    batch.steps = vec![rows::step(&program, 1)];
    batch.workers = vec![rows::worker("w-1")];
    batch.bindings = vec![rows::bindings(
        "math",
        vec![rows::binding("math", "native")],
    )];
    batch.actions = vec![ActionRow {
        action: k,
        job: "math".into(),
        status: "ended".into(),
        ..ActionRow::default()
    }];
    batch.rewards = vec![RewardRow {
        program,
        reward_millionths: 5,
    }];
    batch
}

/// The stored rows of a batch in the journal and the projections.
async fn stored(store: &dyn Store, turn: &Turn) -> Result<[usize; 4], StoreError> {
    let events = store.events_after(turn.last_seq, 9).await?;
    let range = rows::range(Some(turn.last_seq), None, Order::OldestFirst, 9);
    let decisions = store.decisions(&rows::decisions(&range)).await?;
    let program = format!("p-{}", turn.k);
    let page = StepPage {
        after: None,
        limit: 9,
    };
    let steps = store.steps(&program, &page).await?;
    let known = store.program(&program).await?;
    Ok([
        events.len(),
        decisions.len(),
        steps.len(),
        usize::from(known.is_some_and(|row| row.reward_millionths == Some(5))),
    ])
}

/// A batch with an event that no store can hold.
fn misfit(turn: &Turn) -> Batch {
    let mut batch = batch(turn);
    batch.events[1].at_us = u64::MAX;
    batch
}

const PLACEHOLDER: Placeholder = |event, _| EventRow {
    at_us: 0,
    kind: "record_refused".into(),
    body: "{}".into(),
    ..event.clone()
};

fn token(k: u64) -> TokenRow {
    TokenRow {
        token: format!("t-{k}"),
        tenant: "acme".into(),
        name: "ci".into(),
        scope: "job".into(),
        hash: k.to_be_bytes().repeat(4),
        previous_hash: None,
        previous_until_us: None,
        created_at_us: 1,
        expires_at_us: None,
        revoked_at_us: None,
        last_used_at_us: None,
    }
}

fn command(k: u64) -> CommandRow {
    CommandRow {
        command: format!("c-{k}"),
        kind: "job.pause".into(),
        at_us: k,
        outcome: String::new(),
    }
}

fn audit(k: u64) -> AuditRow {
    AuditRow {
        id: 0,
        at_us: k,
        tenant: "acme".into(),
        who: "ann".into(),
        action: "token.created".into(),
        target: format!("t-{k}"),
        before: String::new(),
        after: "{}".into(),
        request_id: "r".into(),
        address: None,
    }
}

fn of_target(k: u64) -> AuditPage {
    AuditPage {
        target: Some(format!("t-{k}")),
        limit: 9,
        ..AuditPage::default()
    }
}

fn body(k: u64) -> BodyRow {
    BodyRow {
        program: format!("p-{k}"),
        step: 1,
        kind: "output".into(),
        at_us: 1_000_000 + k,
        body: b"text".repeat(3_000),
    }
}

fn payload(k: u64) -> TrainingPayload {
    TrainingPayload {
        job: "math".into(),
        name: format!("group/{k}"),
        at_us: 1_000_000 + k,
        size_bytes: 2,
        body: b"{}".to_vec(),
    }
}

fn sample(k: u64) -> SampleRow {
    SampleRow {
        at_us: k,
        values_json: "{}".into(),
    }
}

fn samples(k: u64) -> SamplePage {
    SamplePage {
        since_us: k,
        until_us: k,
        each_us: 1,
        limit: 9,
    }
}

/// Removes nothing: only the operation itself is tested.
const KEEP: Retention = Retention {
    keep_events: u64::MAX,
    ended_before_us: 0,
    sink_lag_events_max: 0,
};

/// All operations, reading ones first.
pub(crate) fn all() -> Vec<Operation> {
    let mut all = reading();
    all.extend(writing_batches());
    all.extend(writing_access());
    all.extend(writing_others());
    all
}

fn reading() -> Vec<Operation> {
    operations![
        ("last_seq", store, turn, store.last_seq().await?);
        ("events_after", store, turn, store.events_after(0, 5).await?);
        ("decisions", store, turn, store.decisions(&rows::decisions(&newest())).await?);
        ("decisions_reach", store, turn, store.decisions_reach(&of_worker(), 3).await?);
        ("program", store, turn, store.program("p-1").await?);
        ("programs", store, turn, store.programs(&ProgramPage { limit: 5, ..ProgramPage::default() }).await?);
        ("lengths", store, turn, store.lengths("math", 5).await?);
        ("steps", store, turn, store.steps("p-1", &StepPage { after: None, limit: 5 }).await?);
        ("listed_steps", store, turn, store.listed_steps(&listed()).await?);
        ("steps_reach", store, turn, store.steps_reach(&listed(), 3).await?);
        ("workers", store, turn, store.workers().await?);
        ("action", store, turn, store.action(1).await?);
        ("actions", store, turn, store.actions(&ActionPage { limit: 5, ..ActionPage::default() }).await?);
        ("services", store, turn, store.services().await?);
        ("samples", store, turn, store.samples(&samples(1)).await?);
        ("plugin", store, turn, store.plugin("sha256:1").await?);
        ("plugins", store, turn, store.plugins().await?);
        ("bindings", store, turn, store.bindings().await?);
        ("policy_states", store, turn, store.policy_states().await?);
        ("tenants", store, turn, store.tenants().await?);
        ("tokens", store, turn, store.tokens().await?);
        ("claimed_plugins", store, turn, store.claimed_plugins("acme").await?);
        ("audit", store, turn, store.audit(&of_target(1)).await?);
        ("latest_snapshot", store, turn, store.latest_snapshot().await?);
        ("sink_cursor", store, turn, store.sink_cursor("amqp").await?);
        ("sinks", store, turn, store.sinks().await?);
        ("command", store, turn, store.command("c-1").await?);
        ("bodies", store, turn, store.bodies("p-1", 1).await?);
        ("payloads", store, turn, store.payloads("math", &["group/1".into()]).await?);
        ("payload_bodies", store, turn, store.payload_bodies("math", &["group/1".into()]).await?);
        ("payload_sizes", store, turn, store.payload_sizes("math", &["group/1".into()]).await?);
        ("payload_names", store, turn, store.payload_names("math", 9_000_000, "").await?);
        ("payload_bytes", store, turn, store.payload_bytes(&Names::Any).await? > 0);
        ("leader", store, turn, store.leader().await?.is_some());
        ("about", store, turn, store.info().await?.schema_version);
        ("open", store, turn, reopened(turn).await?);
    ]
}

fn writing_batches() -> Vec<Operation> {
    operations![
        ("append", store, turn, store.append(&batch(turn)).await? - turn.last_seq, stored(store, turn).await?);
        (
            "append_what_fits", store, turn,
            store.append_what_fits(&misfit(turn), PLACEHOLDER).await?.len(),
            stored(store, turn).await?
        );
        (
            "save_snapshot", store, turn,
            store.save_snapshot(&rows::snapshot(turn.last_seq)).await?,
            store.latest_snapshot().await?.map(|found| found.seq == turn.last_seq)
        );
        ("prune", store, turn, store.prune(&KEEP).await?, store.program("p-1").await?.is_some());
        (
            "advance_sink", store, turn, store.advance_sink("amqp", turn.last_seq).await?,
            store.sink_cursor("amqp").await? == turn.last_seq
        );
        (
            "drop_sink", store, turn,
            { store.advance_sink("file", 1).await?; store.drop_sink("file").await?; },
            store.sink_cursor("file").await?
        );
    ]
}

fn writing_access() -> Vec<Operation> {
    operations![
        ("put_tenant", store, turn, store.put_tenant(&tenant(turn.k)).await?, store.tenants().await?.contains(&tenant(turn.k)));
        ("put_token", store, turn, store.put_token(&token(turn.k)).await?, store.tokens().await?.contains(&token(turn.k)));
        (
            "touch_tokens", store, turn, store.touch_tokens(&[("t-1".into(), turn.k)]).await?,
            store.tokens().await?.iter().any(|row| row.last_used_at_us == Some(turn.k))
        );
        (
            "prune_tokens", store, turn,
            {
                let revoked = TokenRow { revoked_at_us: Some(turn.k), ..token(turn.k) };
                store.put_token(&revoked).await?;
                store.prune_tokens(turn.k + 1).await?;
            },
            store.tokens().await?.iter().any(|row| row.revoked_at_us.is_some())
        );
        (
            "claim_plugin", store, turn, store.claim_plugin(&format!("x-{}", turn.k), "sha256:1", 1).await?,
            store.claimed_plugins(&format!("x-{}", turn.k)).await?
        );
        ("add_audit", store, turn, store.add_audit(&[audit(turn.k)]).await?, !store.audit(&of_target(turn.k)).await?.is_empty());
        ("prune_audit", store, turn, store.prune_audit(1_000_000).await?, !store.audit(&of_target(1)).await?.is_empty());
    ]
}

fn writing_others() -> Vec<Operation> {
    operations![
        (
            "put_plugin", store, turn, store.put_plugin(&plugin(turn.k)).await?,
            store.plugin(&format!("sha256:{}", turn.k)).await?.is_some()
        );
        (
            "put_policy_state", store, turn, store.put_policy_state(&state(turn.k)).await?,
            store.policy_states().await?.contains(&state(turn.k))
        );
        ("put_service", store, turn, store.put_service(&service(turn.k)).await?, store.services().await?.contains(&service(turn.k)));
        ("add_sample", store, turn, store.add_sample(&sample(turn.k)).await?, store.samples(&samples(turn.k)).await?.len());
        (
            "prune_samples", store, turn, store.prune_samples(1).await?,
            store.samples(&samples(1)).await?.len()
        );
        ("note_command", store, turn, store.note_command(&command(turn.k)).await?, store.command(&format!("c-{}", turn.k)).await?.is_some());
        (
            "settle_command", store, turn, store.settle_command("c-1", &format!("done {}", turn.k)).await?,
            store.command("c-1").await?.is_some_and(|row| row.outcome == format!("done {}", turn.k))
        );
        ("prune_commands", store, turn, store.prune_commands(1).await?, store.command("c-1").await?.is_some());
        ("gateway_id", store, turn, store.gateway_id(&format!("g-{}", turn.k)).await? > 0, store.gateway_id(&format!("g-{}", turn.k)).await? > 0);
        ("key", store, turn, store.key(&format!("key-{}", turn.k), 7).await?, store.key(&format!("key-{}", turn.k), 8).await?);
        ("put_bodies", store, turn, store.put_bodies(&[body(turn.k)]).await?, store.bodies(&format!("p-{}", turn.k), 1).await?.len());
        ("prune_bodies", store, turn, store.prune_bodies(1).await?, store.bodies("p-1", 1).await?.len());
        ("put_payloads", store, turn, store.put_payloads(&[payload(turn.k)]).await?, store.payloads("math", &[format!("group/{}", turn.k)]).await?.len());
        (
            "remove_payloads", store, turn, store.remove_payloads("math", &["group/none".into()], 1).await?,
            store.payloads("math", &["group/1".into()]).await?.len()
        );
    ]
}

/// Leadership operations, on separate stores: after a leader, handles that never led can't write.
pub(crate) fn leading() -> Vec<Operation> {
    operations![
        (
            "campaign", store, turn, store.campaign(&me()).await?.is_some(),
            store.leader().await?.map(|leader| leader.name)
        );
        (
            "resign", store, turn,
            { store.campaign(&me()).await?; store.resign().await?; },
            store.leader().await?.is_some()
        );
    ]
}

fn me() -> Candidate {
    Candidate {
        name: "one".into(),
        url: "http://one".into(),
    }
}

fn newest() -> treadle_store::SeqPage {
    rows::range(None, None, Order::NewestFirst, 5)
}

fn of_worker() -> treadle_store::DecisionPage {
    treadle_store::DecisionPage {
        worker: Some("w-1".into()),
        ..rows::decisions(&newest())
    }
}

fn listed() -> ListedPage {
    ListedPage {
        job: Some("math".into()),
        limit: 5,
        ..ListedPage::default()
    }
}

fn tenant(k: u64) -> TenantRow {
    TenantRow {
        tenant: format!("x-{k}"),
        created_at_us: 1,
        limits: "{}".into(),
    }
}

fn plugin(k: u64) -> treadle_store::PluginRow {
    rows::plugin(&format!("sha256:{k}"), k)
}

fn state(k: u64) -> PolicyStateRow {
    PolicyStateRow {
        job: format!("j-{k}"),
        world: "eviction".into(),
        entries: vec![1],
        snapshot: vec![2],
        saved_at_us: 3,
    }
}

fn service(k: u64) -> ServiceRow {
    ServiceRow {
        service: format!("s-{k}"),
        tenant: "acme".into(),
        spec: "{}".into(),
        load_us: 1,
        declared_at_us: 2,
    }
}

/// Opens the store again, as at the start of a daemon.
async fn reopened(turn: &Turn) -> Result<bool, StoreError> {
    let store = open(&turn.at).await?;
    let is_there = store.last_seq().await? >= turn.last_seq;
    store.close().await?;
    Ok(is_there)
}

/// Stores a first row of each kind.
pub(crate) async fn fill(store: &dyn Store, at: &Location) -> Result<(), StoreError> {
    let turn = Turn {
        k: 1,
        last_seq: 0,
        at: at.clone(),
    };
    for operation in writing_batches()
        .iter()
        .chain(&writing_access())
        .chain(&writing_others())
    {
        let last_seq = store.last_seq().await?;
        let k = if operation.name == "append_what_fits" {
            2
        } else {
            1
        };
        let turn = Turn {
            k,
            last_seq,
            ..turn.clone()
        };
        (operation.run)(store, &turn).await?;
    }
    let ended = StepRow {
        finished_at_us: Some(9),
        outcome: "stop".into(),
        ..rows::step("p-1", 2)
    };
    let batch = Batch {
        programs: vec![rows::ended("p-1", 1)],
        steps: vec![ended],
        ..Batch::default()
    };
    store.append(&batch).await?;
    store.put_token(&token(1)).await?;
    Ok(())
}
