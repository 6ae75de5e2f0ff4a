//! A store that is opened for each call and closed after it, so that only durable data remains.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use treadle_store::{
    Access, ActionPage, ActionRow, Actions, Audit, AuditPage, AuditRow, Batch, BindingRow,
    Bindings, Bodies, BodyRow, Candidate, Cluster, CommandRow, Commands, Condition, DecisionPage,
    DecisionRow, EventPage, EventRow, Journal, LeaderRow, Leadership, LengthRow, ListedPage,
    ListedStep, Location, MetricHistory, Names, Placeholder, PluginHead, PluginRow, Plugins,
    PolicyStateRow, ProgramPage, ProgramRow, Programs, Pruned, RefusedRow, Retention, SamplePage,
    SampleRow, ServiceRow, SinkRow, Sinks, Snapshot, StepPage, StepRow, Store, StoreError,
    StoreInfo, TenantRow, TokenRow, Training, TrainingPayload, WorkerRow, open,
};

pub(crate) struct Restarted(pub(crate) Location);

/// Implements a trait of the store: each method opens the store, calls it and closes it.
macro_rules! each_call {
    (
        $kind:ident { $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+ }
        $(and { $($other:tt)* })?
    ) => {
        #[async_trait]
        impl $kind for Restarted {
            $(async fn $name(&self $(, $argument: $type)*) -> Result<$answer, StoreError> {
                let store = open(&self.0).await?;
                let answer = store.$name($($argument),*).await;
                store.close().await?;
                answer
            })+
            $($($other)*)?
        }
    };
}

each_call!(Journal {
    append(batch: &Batch) -> u64;
    append_what_fits(batch: &Batch, placeholder: Placeholder) -> Vec<RefusedRow>;
    last_seq() -> u64;
    events_after(seq: u64, limit: u32) -> Vec<EventRow>;
    events_page(page: &EventPage) -> Vec<EventRow>;
    decisions(page: &DecisionPage) -> Vec<DecisionRow>;
    decisions_reach(page: &DecisionPage, rows: u32) -> Option<u64>;
    save_snapshot(snapshot: &Snapshot) -> ();
    latest_snapshot() -> Option<Snapshot>;
    prune(retention: &Retention) -> Pruned;
});

each_call!(Programs {
    program(program: &str) -> Option<ProgramRow>;
    programs(page: &ProgramPage) -> Vec<ProgramRow>;
    lengths(job: &str, limit: u32) -> Vec<LengthRow>;
    steps(program: &str, page: &StepPage) -> Vec<StepRow>;
    listed_steps(page: &ListedPage) -> Vec<ListedStep>;
    steps_reach(page: &ListedPage, rows: u32) -> Option<u64>;
    workers() -> Vec<WorkerRow>;
});

each_call!(Actions {
    action(action: u64) -> Option<ActionRow>;
    actions(page: &ActionPage) -> Vec<ActionRow>;
    put_service(service: &ServiceRow) -> ();
    services() -> Vec<ServiceRow>;
});

each_call!(Plugins {
    put_plugin(plugin: &PluginRow) -> bool;
    plugin(digest: &str) -> Option<PluginRow>;
    plugins() -> Vec<PluginHead>;
    claim_plugin(tenant: &str, digest: &str, at_us: u64) -> bool;
    claimed_plugins(tenant: &str) -> Vec<String>;
});

each_call!(Bindings {
    bindings() -> Vec<BindingRow>;
    put_policy_state(state: &PolicyStateRow) -> ();
    policy_states() -> Vec<PolicyStateRow>;
});

each_call!(Access {
    put_tenant(tenant: &TenantRow) -> ();
    tenants() -> Vec<TenantRow>;
    put_token(token: &TokenRow) -> ();
    tokens() -> Vec<TokenRow>;
    touch_tokens(uses: &[(String, u64)]) -> ();
    prune_tokens(ended_before_us: u64) -> u64;
});

each_call!(Audit {
    add_audit(rows: &[AuditRow]) -> ();
    audit(page: &AuditPage) -> Vec<AuditRow>;
    prune_audit(keep: u64) -> u64;
});

each_call!(MetricHistory {
    add_sample(row: &SampleRow) -> ();
    samples(page: &SamplePage) -> Vec<SampleRow>;
    prune_samples(before_us: u64) -> u64;
});

each_call!(Sinks {
    sink_cursor(sink: &str) -> u64;
    advance_sink(sink: &str, seq: u64) -> ();
    sinks() -> Vec<SinkRow>;
    drop_sink(sink: &str) -> bool;
});

each_call!(Commands {
    note_command(command: &CommandRow) -> bool;
    command(id: &str) -> Option<CommandRow>;
    settle_command(id: &str, outcome: &str) -> bool;
    prune_commands(before_us: u64) -> u64;
});

each_call!(Bodies {
    put_bodies(bodies: &[BodyRow]) -> ();
    bodies(program: &str, step: u64) -> Vec<BodyRow>;
    prune_bodies(before_us: u64) -> u64;
    body_bytes(programs: &Names) -> u64;
    shed_bodies(programs: &Names, bytes: u64) -> u64;
});

each_call!(Training {
    put_payloads(payloads: &[TrainingPayload]) -> ();
    payloads(job: &str, names: &[String]) -> Vec<TrainingPayload>;
    payload_bodies(job: &str, names: &[String]) -> Vec<(String, Bytes)>;
    payload_sizes(job: &str, names: &[String]) -> Vec<(String, u64)>;
    payload_names(job: &str, before_us: u64, after: &str) -> Vec<String>;
    payload_bytes(jobs: &Names) -> u64;
    remove_payloads(job: &str, names: &[String], before_us: u64) -> u64;
});

each_call!(Cluster {
    campaign(candidate: &Candidate) -> Option<u64>;
    leader() -> Option<LeaderRow>;
    resign() -> ();
    gateway_id(name: &str) -> u32;
    key(name: &str, fresh: u64) -> u64;
} and {
    /// Each call uses a new handle, which does not lead.
    fn leadership(&self) -> watch::Receiver<Leadership> {
        watch::Sender::new(Leadership::Follower).subscribe()
    }
});

each_call!(Store {
    info() -> StoreInfo;
    close() -> ();
} and {
    /// Each call uses a new handle without memory of earlier ones.
    fn condition(&self) -> Condition {
        Condition::default()
    }

    fn lost(&self) -> watch::Receiver<Option<Arc<str>>> {
        watch::Sender::new(None).subscribe()
    }
});
