//! A store that is opened for each call and closed after it, so that only durable data remains.

#![allow(
    clippy::elidable_lifetime_names,
    reason = "one macro writes methods with borrowed arguments and without"
)]

use std::sync::Arc;

use tokio::sync::watch;
use treadle_store::{
    About, ActionPage, ActionRow, Answer, AuditPage, AuditRow, Batch, BindingRow, BodyRow,
    Candidate, CommandRow, Condition, DecisionPage, DecisionRow, EventPage, EventRow, LeaderRow,
    Leadership, LengthRow, ListedPage, ListedStep, Location, Names, Placeholder, PluginHead,
    PluginRow, PolicyStateRow, ProgramPage, ProgramRow, Pruned, RefusedRow, Retention, SamplePage,
    SampleRow, ServiceRow, SinkRow, Snapshot, StepPage, StepRow, Store, TenantRow, TokenRow,
    WorkerRow, open,
};

pub(crate) struct Restarted(pub(crate) Location);

macro_rules! each_call {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(fn $name<'a>(&'a self $(, $argument: $kind)*) -> Answer<'a, $answer> {
            Box::pin(async move {
                let store = open(&self.0).await?;
                let answer = store.$name($($argument),*).await;
                store.close().await?;
                answer
            })
        })+
    };
}

impl Store for Restarted {
    each_call!(
        append(batch: &'a Batch) -> u64;
        append_what_fits(batch: &'a Batch, placeholder: Placeholder) -> Vec<RefusedRow>;
        last_seq() -> u64;
        events_after(seq: u64, limit: u32) -> Vec<EventRow>;
        events_page(page: &'a EventPage) -> Vec<EventRow>;
        decisions(page: &'a DecisionPage) -> Vec<DecisionRow>;
        program(program: &'a str) -> Option<ProgramRow>;
        programs(page: &'a ProgramPage) -> Vec<ProgramRow>;
        lengths(job: &'a str, limit: u32) -> Vec<LengthRow>;
        add_sample(row: &'a SampleRow) -> ();
        samples(page: &'a SamplePage) -> Vec<SampleRow>;
        prune_samples(before_us: u64) -> u64;
        steps(program: &'a str, page: &'a StepPage) -> Vec<StepRow>;
        listed_steps(page: &'a ListedPage) -> Vec<ListedStep>;
        steps_reach(page: &'a ListedPage, rows: u32) -> Option<u64>;
        decisions_reach(page: &'a DecisionPage, rows: u32) -> Option<u64>;
        action(action: u64) -> Option<ActionRow>;
        actions(page: &'a ActionPage) -> Vec<ActionRow>;
        workers() -> Vec<WorkerRow>;
        put_plugin(plugin: &'a PluginRow) -> bool;
        plugin(digest: &'a str) -> Option<PluginRow>;
        plugins() -> Vec<PluginHead>;
        bindings() -> Vec<BindingRow>;
        put_policy_state(state: &'a PolicyStateRow) -> ();
        policy_states() -> Vec<PolicyStateRow>;
        put_service(service: &'a ServiceRow) -> ();
        services() -> Vec<ServiceRow>;
        put_tenant(tenant: &'a TenantRow) -> ();
        tenants() -> Vec<TenantRow>;
        put_token(token: &'a TokenRow) -> ();
        tokens() -> Vec<TokenRow>;
        touch_tokens(uses: &'a [(String, u64)]) -> ();
        prune_tokens(ended_before_us: u64) -> u64;
        claim_plugin(tenant: &'a str, digest: &'a str, at_us: u64) -> bool;
        claimed_plugins(tenant: &'a str) -> Vec<String>;
        add_audit(rows: &'a [AuditRow]) -> ();
        audit(page: &'a AuditPage) -> Vec<AuditRow>;
        prune_audit(keep: u64) -> u64;
        save_snapshot(snapshot: &'a Snapshot) -> ();
        latest_snapshot() -> Option<Snapshot>;
        prune(retention: &'a Retention) -> Pruned;
        sink_cursor(sink: &'a str) -> u64;
        advance_sink(sink: &'a str, seq: u64) -> ();
        sinks() -> Vec<SinkRow>;
        drop_sink(sink: &'a str) -> bool;
        note_command(command: &'a CommandRow) -> bool;
        command(id: &'a str) -> Option<CommandRow>;
        settle_command(id: &'a str, outcome: &'a str) -> bool;
        prune_commands(before_us: u64) -> u64;
        gateway_id(name: &'a str) -> u32;
        key(name: &'a str, fresh: u64) -> u64;
        put_bodies(bodies: &'a [BodyRow]) -> ();
        bodies(program: &'a str, step: u64) -> Vec<BodyRow>;
        prune_bodies(before_us: u64) -> u64;
        body_bytes(programs: &'a Names) -> u64;
        shed_bodies(programs: &'a Names, bytes: u64) -> u64;
        campaign(candidate: &'a Candidate) -> Option<u64>;
        leader() -> Option<LeaderRow>;
        resign() -> ();
        about() -> About;
        close() -> ();
    );

    /// Each call uses a new handle without memory of earlier ones.
    fn condition(&self) -> Condition {
        Condition::default()
    }

    fn lost(&self) -> watch::Receiver<Option<Arc<str>>> {
        watch::Sender::new(None).subscribe()
    }

    /// Each call uses a new handle, which does not lead.
    fn leadership(&self) -> watch::Receiver<Leadership> {
        watch::Sender::new(Leadership::Follower).subscribe()
    }
}
