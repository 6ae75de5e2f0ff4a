//! Queries of the scheduler's state, each answered between two events.

use super::{DriverHandle, View};
use crate::recording::DriverStopped;
use crate::scheduler::Profile;
use std::collections::BTreeMap;
use treadle_core::Mode;
use treadle_core::bindings::{Bindings, BoundPolicy};
use treadle_core::estimates::EngineClass;
use treadle_core::memory::{Account, TokenTime};
use treadle_core::programs::{CacheLocation, CacheTotals, RunningUse, Totals};
use treadle_core::programs::{Counters, Program, Step, Worker};
use treadle_model::{
    GatewayId, PolicyRef, ProgramId, Span, StepId, Tenant, Timestamp, WorkerId, World,
};
use treadle_policy::evaluator::{
    BindingView, PolicyStatistics, Scope, VersionRow, is_asked_in_place,
};

/// An overview of the scheduler.
#[derive(Clone, Debug)]
pub struct Overview {
    /// When the latest event was handled.
    pub at: Timestamp,
    /// Position of the latest event.
    pub seq: u64,
    /// Its scheduling mode.
    pub mode: Mode,
    /// Whether a policy decides about caches.
    pub retention: bool,
    /// Present totals.
    pub totals: Totals,
    /// Caches that are not at an engine.
    pub caches: CacheTotals,
    /// Counters since the state began.
    pub counters: Counters,
}

/// Live programs.
#[derive(Clone, Debug)]
pub struct LivePrograms {
    /// The programs, by id.
    pub programs: Vec<LiveProgram>,
    /// URLs of the workers.
    pub urls: BTreeMap<WorkerId, Box<str>>,
}

/// A live program.
#[derive(Clone, Debug)]
pub struct LiveProgram {
    /// Its state.
    pub program: Program,
    /// Where its cache is; `None` if it is to be computed again.
    pub cache: Option<CacheLocation>,
    /// Its timings, once a step of it has ended.
    pub profile: Option<Profile>,
}

/// A step that has not ended.
#[derive(Clone, Debug)]
pub struct OpenStep {
    /// Its number.
    pub id: StepId,
    /// Its state.
    pub step: Step,
    /// The job of its program.
    pub job: Box<str>,
    /// URL of its worker, if it is at one.
    pub worker: Option<Box<str>>,
    /// How long it waited before it first went to a worker, or has waited so far.
    pub waited: Span,
}

/// KV memory use until now.
#[derive(Clone, Debug)]
pub struct MemoryAccounts {
    /// The accounts of workers.
    pub workers: Vec<WorkerAccount>,
    /// The accounts of jobs.
    pub jobs: Vec<JobAccount>,
}

/// The account of one worker.
#[derive(Clone, Debug)]
pub struct WorkerAccount {
    /// The worker.
    pub worker: WorkerId,
    /// Its URL.
    pub url: Box<str>,
    /// Sums until now.
    pub sums: TokenTime,
    /// The account at its last change.
    pub account: Account,
}

/// The account of one job.
#[derive(Clone, Debug)]
pub struct JobAccount {
    /// The job's name in the core, tenant included.
    pub job: Box<str>,
    /// Sums until now.
    pub sums: TokenTime,
    /// The account at its last change.
    pub account: Account,
}

impl DriverHandle {
    /// An overview of the scheduler.
    pub async fn overview(&self) -> Result<Overview, DriverStopped> {
        self.read(|view| {
            let (config, state) = (view.core.config(), view.core.programs());
            Overview {
                at: view.core.now(),
                seq: view.seq,
                mode: config.mode,
                retention: config.kv.retention,
                totals: state.totals(),
                caches: state.cache_totals(),
                counters: state.counters,
            }
        })
        .await
    }

    /// The registered workers, including those that are leaving.
    pub async fn workers(&self) -> Result<Vec<Worker>, DriverStopped> {
        self.read(|view| view.core.programs().workers.values().cloned().collect())
            .await
    }

    /// The last data of engines that have left, the latest first.
    pub async fn engine_classes(&self) -> Result<Vec<EngineClass>, DriverStopped> {
        self.read(|view| {
            view.core
                .programs()
                .estimates
                .classes()
                .iter()
                .cloned()
                .collect()
        })
        .await
    }

    /// One worker.
    pub async fn worker(&self, worker: WorkerId) -> Result<Option<Worker>, DriverStopped> {
        self.read(move |view| view.core.programs().workers.get(&worker).cloned())
            .await
    }

    /// Ledger totals of a worker's running steps; `None` in modes without a ledger.
    pub async fn running_use(&self, worker: WorkerId) -> Result<Option<RunningUse>, DriverStopped> {
        self.read(move |view| view.core.running_use(worker)).await
    }

    /// A live program by its key.
    pub async fn program(&self, key: &str) -> Result<Option<Program>, DriverStopped> {
        let key = key.to_owned();
        self.read(move |view| view.core.programs().program(&key).cloned())
            .await
    }

    /// Steps of a program that wait or run, by number.
    pub async fn open_steps(&self, key: &str) -> Result<Vec<OpenStep>, DriverStopped> {
        let key = key.to_owned();
        self.read(move |view| open_steps(view, &key)).await
    }

    /// Keys of the live programs of a job.
    pub async fn programs_of(&self, job: &str) -> Result<Vec<Box<str>>, DriverStopped> {
        let job = job.to_owned();
        self.read(move |view| {
            let programs = view.core.programs().live.values();
            let own = programs.filter(|program| *program.job == *job);
            own.map(|program| program.key.clone()).collect()
        })
        .await
    }

    /// The live programs of a tenant.
    pub async fn live_programs(&self, tenant: Tenant) -> Result<LivePrograms, DriverStopped> {
        self.read(move |view| live_programs(view, &tenant)).await
    }

    /// A live program's timings, once a step of it has ended.
    pub async fn profile(&self, key: &str) -> Result<Option<Profile>, DriverStopped> {
        let key = key.to_owned();
        self.read(move |view| view.profiles.get(&key)).await
    }

    /// KV memory use.
    pub async fn memory_accounts(&self) -> Result<MemoryAccounts, DriverStopped> {
        self.read(memory_accounts).await
    }

    /// Copies of caches in host memory, with their programs.
    pub async fn held_copies(&self) -> Result<Vec<(ProgramId, Box<str>)>, DriverStopped> {
        self.read(|view| {
            let held = view.core.programs().memory.offloads().held().iter();
            held.map(|(program, held)| (*program, held.copy.clone()))
                .collect()
        })
        .await
    }

    /// Gateways in other processes that have open steps.
    pub async fn gateways(&self) -> Result<Vec<GatewayId>, DriverStopped> {
        self.read(|view| {
            let steps = view.core.programs().steps.keys();
            let mut gateways: Vec<_> = steps.map(|step| step.gateway()).collect();
            gateways.dedup();
            gateways.retain(|gateway| *gateway != GatewayId::LOCAL);
            gateways
        })
        .await
    }

    /// All bindings on record.
    pub async fn bindings(&self) -> Result<Bindings, DriverStopped> {
        self.read(|view| view.core.bindings().clone()).await
    }

    /// The active policy for a job, and the scope of its binding.
    pub async fn bound_for(
        &self,
        world: World,
        job: &str,
    ) -> Result<Option<(Box<str>, BoundPolicy)>, DriverStopped> {
        let job = job.to_owned();
        self.read(move |view| {
            let active = view.core.bindings().active_of(world, &job);
            active.map(|(scope, bound)| (scope.into(), bound.clone()))
        })
        .await
    }

    /// The bindings of the worlds that the driver asks, and the statistics of their policies.
    pub async fn binding_views(&self) -> Result<Vec<BindingView>, DriverStopped> {
        self.read(|view| {
            let worlds = World::ALL.iter().filter(|world| is_asked_in_place(**world));
            worlds
                .flat_map(|world| view.policies.views(*world))
                .collect()
        })
        .await
    }

    /// The active policy of a scope's own binding.
    pub async fn active_policy(
        &self,
        world: World,
        scope: Scope,
    ) -> Result<PolicyRef, DriverStopped> {
        self.read(move |view| view.policies.active(world, &scope))
            .await
    }

    /// Statistics of the questions to policies.
    pub async fn policy_statistics(&self) -> Result<PolicyStatistics, DriverStopped> {
        self.read(|view| view.policies.statistics().clone()).await
    }

    /// The same statistics by version.
    pub async fn policy_versions(&self) -> Result<Vec<VersionRow>, DriverStopped> {
        self.read(|view| view.policies.version_rows()).await
    }
}

fn open_steps(view: &View<'_>, key: &str) -> Vec<OpenStep> {
    let state = view.core.programs();
    let Some(program) = state.program(key) else {
        return Vec::new();
    };
    let mut ids: Vec<StepId> = [&program.running[..], &program.waiting].concat();
    ids.sort_unstable();
    let open = |id: StepId| {
        let step = state.steps.get(&id)?.clone();
        let worker = step.state.worker().and_then(|id| state.workers.get(&id));
        let sent = step.dispatched_at.unwrap_or(view.now);
        Some(OpenStep {
            id,
            job: program.job.clone(),
            worker: worker.map(|worker| worker.url.clone()),
            waited: sent.since(step.arrived_at),
            step,
        })
    };
    ids.into_iter().filter_map(open).collect()
}

fn live_programs(view: &View<'_>, tenant: &Tenant) -> LivePrograms {
    let state = view.core.programs();
    let programs = state.live.values();
    let own = programs.filter(|program| tenant.outside(&program.key).is_some());
    let live = |program: &Program| LiveProgram {
        program: program.clone(),
        cache: state.cache_of(program),
        profile: view.profiles.get(&program.key),
    };
    let workers = state.workers.values();
    LivePrograms {
        programs: own.map(live).collect(),
        urls: workers.map(|w| (w.id, w.url.clone())).collect(),
    }
}

fn memory_accounts(view: &View<'_>) -> MemoryAccounts {
    let state = view.core.programs();
    let worker = |w: &Worker| WorkerAccount {
        worker: w.id,
        url: w.url.clone(),
        sums: w.ledger.account().at(view.now),
        account: *w.ledger.account(),
    };
    let jobs = state
        .memory
        .accounts()
        .iter()
        .map(|(job, account)| JobAccount {
            job: job.into(),
            sums: account.at(view.now),
            account: *account,
        });
    MemoryAccounts {
        workers: state.workers.values().map(worker).collect(),
        jobs: jobs.collect(),
    }
}
