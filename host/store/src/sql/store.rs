//! [`Store`] for any [`Engine`].

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::append::{self, Appended, Doubts};
use super::{
    Engine, Work, actions, audit, bindings, bodies, commands, gateways, head, journal, keys,
    lengths, plugins, programs, retention, samples, services, sinks, snapshots, steps, tenants,
    tokens, workers,
};
use crate::bodies::BlobBackend;
use crate::condition::JOURNAL;
use crate::leadership::Term;
use crate::{
    About, ActionPage, ActionRow, Answer, AuditPage, AuditRow, Batch, BindingRow, BodyRow,
    Candidate, CommandRow, Condition, DecisionPage, DecisionRow, EventPage, EventRow, LeaderRow,
    Leadership, LengthRow, ListedPage, ListedStep, Names, Placeholder, PluginHead, PluginRow,
    PolicyStateRow, ProgramPage, ProgramRow, Pruned, RefusedRow, Retention, SamplePage, SampleRow,
    SeqPage, ServiceRow, SinkRow, Snapshot, StepPage, StepRow, Store, StoreError, TenantRow,
    TokenRow, WorkerRow,
};

/// Most commands for which it is unknown whether they were stored.
const UNSURE_MAX: usize = 256;

/// A store handle.
pub(crate) struct SqlStore<E> {
    engine: Arc<E>,
    term: Term,
    doubts: Doubts,
    unsure: Mutex<VecDeque<String>>,
    blobs: BlobBackend,
}

/// Runs a transaction of a handle that may write; `$name` is the name of the operation.
macro_rules! writing {
    ($store:ident, $name:literal, $work:ident => $what:expr) => {
        $store.watched($name, async move {
            let mut $work = $store.begin().await?;
            let answer = $what.await?;
            $work.commit().await?;
            Ok(answer)
        })
    };
}

impl<E: Engine> SqlStore<E> {
    /// A store handle that does not hold leadership.
    pub(crate) fn new(engine: E, blobs: BlobBackend) -> Self {
        Self {
            engine: Arc::new(engine),
            term: Term::new(),
            doubts: Doubts::default(),
            unsure: Mutex::default(),
            blobs,
        }
    }

    /// Runs a write, and records whether it succeeded.
    fn watched<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move { self.engine.conditions().watch(what, work).await })
    }

    /// Begins a transaction, unless another handle leads.
    async fn begin(&self) -> Result<E::Work, StoreError> {
        let mut work = self.engine.begin().await?;
        let epoch = head::epoch::<E>(&mut work).await?;
        self.term.admit(epoch)?;
        Ok(work)
    }

    /// Begins a transaction for data that daemons without leadership write: allowed if this handle
    /// never led, refused if it led and was superseded.
    async fn begin_beside(&self) -> Result<E::Work, StoreError> {
        if self.term.held() > 0 {
            return self.begin().await;
        }
        self.engine.begin().await
    }

    /// Begins a transaction that changes the journal or depends on its end, unless another handle
    /// leads.
    async fn begin_at_head(&self) -> Result<(E::Work, head::Head), StoreError> {
        let mut work = self.engine.begin().await?;
        let head = head::hold::<E>(&mut work).await?;
        self.term.admit(head.epoch)?;
        Ok((work, head))
    }

    async fn put(
        &self,
        batch: &Batch,
        placeholder: Option<Placeholder>,
    ) -> Result<Appended, StoreError> {
        let append = append::append(&*self.engine, &self.term, &self.doubts, batch, placeholder);
        self.engine.conditions().watch(JOURNAL, append).await
    }

    fn doubted(&self, id: &str) -> bool {
        let unsure = self.unsure.lock().unwrap_or_else(PoisonError::into_inner);
        unsure.iter().any(|known| known == id)
    }

    fn set_doubted(&self, id: &str, doubted: bool) {
        let mut unsure = self.unsure.lock().unwrap_or_else(PoisonError::into_inner);
        unsure.retain(|known| known != id);
        if doubted {
            unsure.push_back(id.to_owned());
            if unsure.len() > UNSURE_MAX {
                unsure.pop_front();
            }
        }
    }

    async fn note(&self, command: &CommandRow) -> Result<bool, StoreError> {
        let mut work = self.begin().await?;
        let new = commands::note(&mut work, command).await?;
        if !new {
            // The command is new if this handle's own commit got no answer but succeeded.
            let stored = commands::get_within(&mut work, &command.id).await?;
            let ours = self.doubted(&command.id) && stored.as_ref() == Some(command);
            self.set_doubted(&command.id, false);
            return Ok(ours);
        }
        self.set_doubted(&command.id, true);
        work.commit().await?;
        self.set_doubted(&command.id, false);
        Ok(true)
    }
}

impl<E: Engine> Store for SqlStore<E> {
    fn append<'a>(&'a self, batch: &'a Batch) -> Answer<'a, u64> {
        Box::pin(async move { Ok(self.put(batch, None).await?.last_seq) })
    }

    fn append_what_fits<'a>(
        &'a self,
        batch: &'a Batch,
        placeholder: Placeholder,
    ) -> Answer<'a, Vec<RefusedRow>> {
        Box::pin(async move { Ok(self.put(batch, Some(placeholder)).await?.refused) })
    }

    fn last_seq(&self) -> Answer<'_, u64> {
        Box::pin(journal::last_seq(&*self.engine))
    }

    fn events_after(&self, seq: u64, limit: u32) -> Answer<'_, Vec<EventRow>> {
        let page = EventPage {
            range: SeqPage {
                after: Some(seq),
                limit,
                ..SeqPage::default()
            },
            ..EventPage::default()
        };
        Box::pin(async move { journal::events(&*self.engine, &page).await })
    }

    fn events_page<'a>(&'a self, page: &'a EventPage) -> Answer<'a, Vec<EventRow>> {
        Box::pin(journal::events(&*self.engine, page))
    }

    fn decisions_reach<'a>(&'a self, page: &'a DecisionPage, rows: u32) -> Answer<'a, Option<u64>> {
        Box::pin(journal::decisions_reach(&*self.engine, page, rows))
    }

    fn decisions<'a>(&'a self, page: &'a DecisionPage) -> Answer<'a, Vec<DecisionRow>> {
        Box::pin(journal::decisions(&*self.engine, page))
    }

    fn program<'a>(&'a self, program: &'a str) -> Answer<'a, Option<ProgramRow>> {
        Box::pin(programs::get(&*self.engine, program))
    }

    fn programs<'a>(&'a self, page: &'a ProgramPage) -> Answer<'a, Vec<ProgramRow>> {
        Box::pin(programs::page(&*self.engine, page))
    }

    fn action(&self, action: u64) -> Answer<'_, Option<ActionRow>> {
        Box::pin(actions::get(&*self.engine, action))
    }

    fn actions<'a>(&'a self, page: &'a ActionPage) -> Answer<'a, Vec<ActionRow>> {
        Box::pin(actions::page(&*self.engine, page))
    }

    fn lengths<'a>(&'a self, job: &'a str, limit: u32) -> Answer<'a, Vec<LengthRow>> {
        Box::pin(lengths::of_job(&*self.engine, job, limit))
    }

    fn add_sample<'a>(&'a self, row: &'a SampleRow) -> Answer<'a, ()> {
        writing!(self, "samples", work => samples::add(&mut work, row))
    }

    fn samples<'a>(&'a self, page: &'a SamplePage) -> Answer<'a, Vec<SampleRow>> {
        Box::pin(samples::page(&*self.engine, page))
    }

    fn prune_samples(&self, before_us: u64) -> Answer<'_, u64> {
        writing!(self, "samples", work => samples::prune(&mut work, before_us))
    }

    fn steps<'a>(&'a self, program: &'a str, page: &'a StepPage) -> Answer<'a, Vec<StepRow>> {
        Box::pin(steps::page(&*self.engine, program, page))
    }

    fn steps_reach<'a>(&'a self, page: &'a ListedPage, rows: u32) -> Answer<'a, Option<u64>> {
        Box::pin(steps::reach(&*self.engine, page, rows))
    }

    fn listed_steps<'a>(&'a self, page: &'a ListedPage) -> Answer<'a, Vec<ListedStep>> {
        Box::pin(steps::listed(&*self.engine, page))
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerRow>> {
        Box::pin(workers::all(&*self.engine))
    }

    fn put_plugin<'a>(&'a self, plugin: &'a PluginRow) -> Answer<'a, bool> {
        writing!(self, "plugins", work => plugins::put(&mut work, plugin))
    }

    fn plugin<'a>(&'a self, digest: &'a str) -> Answer<'a, Option<PluginRow>> {
        Box::pin(plugins::get(&*self.engine, digest))
    }

    fn plugins(&self) -> Answer<'_, Vec<PluginHead>> {
        Box::pin(plugins::all(&*self.engine))
    }

    fn bindings(&self) -> Answer<'_, Vec<BindingRow>> {
        Box::pin(bindings::all(&*self.engine))
    }

    fn put_policy_state<'a>(&'a self, state: &'a PolicyStateRow) -> Answer<'a, ()> {
        writing!(self, "states of policies", work => bindings::put_state(&mut work, state))
    }

    fn policy_states(&self) -> Answer<'_, Vec<PolicyStateRow>> {
        Box::pin(bindings::states(&*self.engine))
    }

    fn put_service<'a>(&'a self, service: &'a ServiceRow) -> Answer<'a, ()> {
        writing!(self, "services", work => services::put(&mut work, service))
    }

    fn services(&self) -> Answer<'_, Vec<ServiceRow>> {
        Box::pin(services::all(&*self.engine))
    }

    fn put_tenant<'a>(&'a self, tenant: &'a TenantRow) -> Answer<'a, ()> {
        writing!(self, "tenants", work => tenants::put(&mut work, tenant))
    }

    fn tenants(&self) -> Answer<'_, Vec<TenantRow>> {
        Box::pin(tenants::all(&*self.engine))
    }

    fn put_token<'a>(&'a self, token: &'a TokenRow) -> Answer<'a, ()> {
        writing!(self, "tokens", work => tokens::put(&mut work, token))
    }

    fn tokens(&self) -> Answer<'_, Vec<TokenRow>> {
        Box::pin(tokens::all(&*self.engine))
    }

    fn touch_tokens<'a>(&'a self, uses: &'a [(String, u64)]) -> Answer<'a, ()> {
        self.watched("tokens", async move {
            let mut work = self.begin_beside().await?;
            tokens::touch(&mut work, uses).await?;
            work.commit().await
        })
    }

    fn prune_tokens(&self, ended_before_us: u64) -> Answer<'_, u64> {
        writing!(self, "tokens", work => tokens::prune(&mut work, ended_before_us))
    }

    fn claim_plugin<'a>(
        &'a self,
        tenant: &'a str,
        digest: &'a str,
        at_us: u64,
    ) -> Answer<'a, bool> {
        writing!(self, "plugins", work => tenants::claim_plugin(&mut work, tenant, digest, at_us))
    }

    fn claimed_plugins<'a>(&'a self, tenant: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(tenants::claimed_plugins(&*self.engine, tenant))
    }

    fn add_audit<'a>(&'a self, rows: &'a [AuditRow]) -> Answer<'a, ()> {
        self.watched("audit", async move {
            let mut work = self.begin_beside().await?;
            audit::add(&mut work, rows).await?;
            work.commit().await
        })
    }

    fn audit<'a>(&'a self, page: &'a AuditPage) -> Answer<'a, Vec<AuditRow>> {
        Box::pin(audit::page(&*self.engine, page))
    }

    fn prune_audit(&self, keep: u64) -> Answer<'_, u64> {
        writing!(self, "audit", work => audit::prune(&mut work, keep))
    }

    fn save_snapshot<'a>(&'a self, snapshot: &'a Snapshot) -> Answer<'a, ()> {
        self.watched("snapshots", async move {
            let packed = snapshots::pack(snapshot).await?;
            let (mut work, head) = self.begin_at_head().await?;
            snapshots::save(&mut work, head.last_seq, &packed).await?;
            work.commit().await
        })
    }

    fn latest_snapshot(&self) -> Answer<'_, Option<Snapshot>> {
        Box::pin(snapshots::latest(&*self.engine))
    }

    fn prune<'a>(&'a self, retention: &'a Retention) -> Answer<'a, Pruned> {
        self.watched("old rows", async move {
            let (mut work, head) = self.begin_at_head().await?;
            let pruned = retention::prune(&*self.engine, &mut work, &head, retention).await?;
            work.commit().await?;
            Ok(pruned)
        })
    }

    fn sink_cursor<'a>(&'a self, sink: &'a str) -> Answer<'a, u64> {
        Box::pin(sinks::cursor(&*self.engine, sink))
    }

    fn advance_sink<'a>(&'a self, sink: &'a str, seq: u64) -> Answer<'a, ()> {
        self.watched("sinks", async move {
            let last_seq = journal::last_seq(&*self.engine).await?;
            let mut work = self.begin().await?;
            sinks::advance(&mut work, last_seq, sink, seq).await?;
            work.commit().await
        })
    }

    fn sinks(&self) -> Answer<'_, Vec<SinkRow>> {
        Box::pin(sinks::all(&*self.engine))
    }

    fn drop_sink<'a>(&'a self, sink: &'a str) -> Answer<'a, bool> {
        writing!(self, "sinks", work => sinks::forget(&mut work, sink))
    }

    fn note_command<'a>(&'a self, command: &'a CommandRow) -> Answer<'a, bool> {
        self.watched("commands", self.note(command))
    }

    fn command<'a>(&'a self, id: &'a str) -> Answer<'a, Option<CommandRow>> {
        Box::pin(commands::get(&*self.engine, id))
    }

    fn settle_command<'a>(&'a self, id: &'a str, outcome: &'a str) -> Answer<'a, bool> {
        writing!(self, "commands", work => commands::settle(&mut work, id, outcome))
    }

    fn prune_commands(&self, before_us: u64) -> Answer<'_, u64> {
        writing!(self, "commands", work => commands::prune(&mut work, before_us))
    }

    fn gateway_id<'a>(&'a self, name: &'a str) -> Answer<'a, u32> {
        self.watched("gateways", gateways::id(&*self.engine, name))
    }

    fn key<'a>(&'a self, name: &'a str, fresh: u64) -> Answer<'a, u64> {
        writing!(self, "keys", work => keys::get(&mut work, name, fresh))
    }

    fn put_bodies<'a>(&'a self, rows: &'a [BodyRow]) -> Answer<'a, ()> {
        self.watched("bodies", async move {
            let packed = self.blobs.pack(rows).await?;
            let mut work = self.begin_beside().await?;
            bodies::put(&mut work, &packed).await?;
            work.commit().await
        })
    }

    fn bodies<'a>(&'a self, program: &'a str, step: u64) -> Answer<'a, Vec<BodyRow>> {
        Box::pin(async move {
            let packed = bodies::of_step(&*self.engine, program, step).await?;
            self.blobs.unpack(packed).await
        })
    }

    fn prune_bodies(&self, before_us: u64) -> Answer<'_, u64> {
        self.watched("bodies", async move {
            let mut work = self.begin().await?;
            let limit = crate::PRUNE_BODIES_MAX;
            let held = bodies::oldest_objects(&mut work, before_us, limit).await?;
            // The objects are removed first: a row without its object is found again later, but an
            // object without its row is not.
            self.blobs.remove(held).await?;
            let gone = bodies::prune(&mut work, before_us, limit).await?;
            work.commit().await?;
            Ok(gone)
        })
    }

    fn body_bytes<'a>(&'a self, programs: &'a Names) -> Answer<'a, u64> {
        Box::pin(bodies::bytes_of(&*self.engine, programs))
    }

    fn shed_bodies<'a>(&'a self, programs: &'a Names, bytes: u64) -> Answer<'a, u64> {
        self.watched("bodies", async move {
            let mut work = self.begin().await?;
            let oldest = bodies::oldest_of(&mut work, programs, crate::PRUNE_BODIES_MAX).await?;
            let gone = bodies::first_of(oldest, bytes);
            let count = gone.len() as u64;
            bodies::remove(&mut work, &gone).await?;
            // The objects are removed first: a row without its object is found again later, but an
            // object without its row is not.
            let held = gone.into_iter().filter(|body| body.object.is_some());
            self.blobs.remove(held.collect()).await?;
            work.commit().await?;
            Ok(count)
        })
    }

    fn campaign<'a>(&'a self, candidate: &'a Candidate) -> Answer<'a, Option<u64>> {
        self.watched("leadership", async move {
            if candidate.name.is_empty() {
                return Err(StoreError::Nameless);
            }
            self.engine.campaign(candidate, &self.term).await
        })
    }

    fn leader(&self) -> Answer<'_, Option<LeaderRow>> {
        Box::pin(head::leader(&*self.engine))
    }

    fn resign(&self) -> Answer<'_, ()> {
        self.watched("leadership", self.engine.resign(&self.term))
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.term.watch()
    }

    fn condition(&self) -> Condition {
        self.engine.conditions().now()
    }

    fn lost(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.engine.conditions().lost()
    }

    fn about(&self) -> Answer<'_, About> {
        Box::pin(self.engine.about())
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            if self.term.leading().is_some() {
                // If this fails, its missing heartbeats are noticed.
                let _ = self.engine.resign(&self.term).await;
            }
            self.engine.close().await;
            Ok(())
        })
    }
}
