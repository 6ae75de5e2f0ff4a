//! Changing bindings, and bringing them back after a restart.

use super::roles::{BoundUpload, DIGEST_SHORT, RoleTable, Roles, rows};
use super::{
    NATIVE, PluginRegistry, RegistryError, Upload, eviction_by_default, is_asked_in_place, unix_us,
};
use std::sync::atomic::Ordering;
use treadle_model::tenant::WHOLE_DAEMON;
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{
    BindingView, BoundPolicy, Change, Changed, EVERYONE, Notice, NoticeKind, Role, Scope,
};
use treadle_policy_runtime::{BindingState, InstanceOptions, LoadError};
use treadle_store::{PluginHead, PolicyStateRow};
use xxhash_rust::xxh3::xxh3_64;

/// A policy that is to get a role.
#[derive(Clone, Debug)]
pub struct BindRequest {
    /// Of which world.
    pub world: World,
    /// For which job; `*` for all without their own.
    pub job: String,
    /// A name, name@version, digest, or `native`.
    pub policy: String,
    /// Its configuration, a JSON object.
    pub config: String,
    /// What it is to do.
    pub role: Role,
    /// A canary's share of the programs, in millionths.
    pub share_ppm: u32,
}

impl PluginRegistry {
    /// Binds what was bound before the restart; where nothing was, the bundled eviction policy.
    pub async fn restore(&self) -> Result<PolicyRef, RegistryError> {
        let retention = self.driver.read(|view| view.core.config().kv.retention);
        let module = eviction_by_default(retention.await?);
        let digest = self.bring(module).await?.digest;
        let mut stored = RoleTable::of(self.store.bindings().await?);
        let mut eviction = stored.roles(World::Eviction, EVERYONE);
        if eviction.get(Role::Active).is_none() && eviction.get(Role::Previous).is_none() {
            eviction.give(Role::Active, BoundUpload::new(digest, "{}".into(), 0));
            stored.set(World::Eviction, EVERYONE, eviction);
        }
        let states = self.store.policy_states().await?;
        for (world, job, roles) in stored.iter() {
            let state = states
                .iter()
                .find(|s| s.job == job && s.world == world.as_str());
            self.restore_roles(world, job, roles, state).await?;
        }
        self.want_forecasts(&stored);
        *self.roles.lock().await = stored;
        self.active(World::Eviction, EVERYONE).await
    }

    /// Stores a bundled policy, which belongs to all tenants.
    pub(super) async fn bring(&self, module: &[u8]) -> Result<PluginHead, RegistryError> {
        let upload = Upload {
            bytes: module.to_vec(),
            ..Upload::default()
        };
        let head = self.push_trusted(upload).await?;
        self.store
            .claim_plugin(WHOLE_DAEMON, &head.digest, unix_us())
            .await?;
        Ok(head)
    }

    async fn restore_roles(
        &self,
        world: World,
        job: &str,
        roles: &Roles,
        state: Option<&PolicyStateRow>,
    ) -> Result<(), RegistryError> {
        for role in [Role::Previous, Role::Active, Role::Canary, Role::Shadow] {
            let Some(bound) = roles.get(role) else {
                continue;
            };
            let kept = state.filter(|_| role == Role::Active);
            let loaded = match self.load(world, job, bound, kept).await {
                Ok(loaded) => loaded,
                // A policy that no longer loads must not keep the daemon from starting.
                Err(error) => {
                    let digest = &bound.digest;
                    tracing::error!(%world, job, role = role.as_str(), digest, %error,
                        "a bound policy could not be brought back");
                    continue;
                }
            };
            let change = match (role, loaded) {
                (Role::Previous | Role::Active, policy) => Change::Activate(policy),
                (Role::Canary, Some(policy)) => Change::StartCanary(policy, bound.share_ppm),
                (Role::Shadow, Some(policy)) => Change::StartShadow(policy),
                (Role::Canary | Role::Shadow, None) => continue,
            };
            self.carry_out(world, job, change).await?;
        }
        Ok(())
    }

    /// Gives a policy a role, from the next decision on.
    pub async fn bind(
        &self,
        request: &BindRequest,
        is_visible: impl Fn(&PluginHead) -> bool,
    ) -> Result<Changed, RegistryError> {
        let (world, job) = (request.world, request.job.as_str());
        let digest = if Self::is_native(&request.policy) {
            if request.role != Role::Active {
                return Err(RegistryError::NativeRole);
            }
            NATIVE.to_owned()
        } else {
            let head = self.obtain(&request.policy, is_visible).await?;
            if head.world != world.as_str() {
                return Err(RegistryError::World {
                    policy: request.policy.clone(),
                    found: head.world,
                    wanted: world.as_str().into(),
                });
            }
            head.digest
        };
        let bound = BoundUpload::new(digest, request.config.clone(), request.share_ppm);
        let loaded = self.load(world, job, &bound, None).await?;
        let mut table = self.roles.lock().await;
        let mut roles = table.roles(world, job);
        roles.give(request.role, bound);
        let change = match (request.role, loaded) {
            (Role::Canary, Some(policy)) => Change::StartCanary(policy, request.share_ppm),
            (Role::Shadow, Some(policy)) => Change::StartShadow(policy),
            (_, policy) => Change::Activate(policy),
        };
        self.commit(&mut table, world, job, roles, change).await
    }

    /// Lets the policy before the present one answer again, or ends a canary.
    pub async fn roll_back(&self, world: World, job: &str) -> Result<Changed, RegistryError> {
        let mut table = self.roles.lock().await;
        let mut roles = table.roles(world, job);
        roles.roll_back()?;
        self.commit(&mut table, world, job, roles, Change::RollBack)
            .await
    }

    /// Takes a policy out of its role.
    pub async fn withdraw(
        &self,
        world: World,
        job: &str,
        role: Role,
    ) -> Result<Changed, RegistryError> {
        let mut table = self.roles.lock().await;
        let mut roles = table.roles(world, job);
        roles.withdraw(role)?;
        self.commit(&mut table, world, job, roles, Change::Withdraw(role))
            .await
    }

    async fn commit(
        &self,
        table: &mut RoleTable,
        world: World,
        job: &str,
        roles: Roles,
        change: Change,
    ) -> Result<Changed, RegistryError> {
        let stored = rows(world, job, &roles);
        self.store
            .put_bindings(job, world.as_str(), &stored)
            .await?;
        table.set(world, job, roles);
        self.want_forecasts(table);
        self.carry_out(world, job, change).await
    }

    /// Predictions are made while any policy predicts or decides by them.
    fn want_forecasts(&self, table: &RoleTable) {
        let uses = |world| {
            matches!(
                world,
                World::Prediction | World::Priority | World::Placement
            )
        };
        let wanted = table.iter().any(|(world, _, _)| uses(world));
        self.forecasts_wanted.store(wanted, Ordering::Relaxed);
    }

    async fn carry_out(
        &self,
        world: World,
        job: &str,
        change: Change,
    ) -> Result<Changed, RegistryError> {
        let scope = Scope::of(job);
        if is_asked_in_place(world) {
            return Ok(self.driver.change(world, scope, change).await??);
        }
        Ok(self.background.change(world, &scope, change)?)
    }

    /// Writes down what the desks changed by themselves.
    pub async fn note(&self, notice: &Notice) -> Result<(), RegistryError> {
        let (world, job) = (notice.world, notice.scope.as_str());
        let mut table = self.roles.lock().await;
        let mut roles = table.roles(world, job);
        match notice.kind {
            NoticeKind::RolledBack => roles.fail(&notice.policy),
            NoticeKind::CanaryEnded => roles.fail_canary(&notice.policy),
        }
        let stored = rows(world, job, &roles);
        self.store
            .put_bindings(job, world.as_str(), &stored)
            .await?;
        table.set(world, job, roles);
        self.want_forecasts(&table);
        Ok(())
    }

    /// An instance of what is held; nothing for the built-in default.
    async fn load(
        &self,
        world: World,
        job: &str,
        bound: &BoundUpload,
        kept: Option<&PolicyStateRow>,
    ) -> Result<Option<BoundPolicy>, RegistryError> {
        if bound.digest == NATIVE {
            return Ok(None);
        }
        let row = self.store.plugin(&bound.digest).await?;
        let row = row.ok_or_else(|| RegistryError::Unknown(bound.digest.clone()))?;
        let limits = self.engine.limits();
        let state = kept.and_then(|k| BindingState::from_bytes(&k.entries, limits).ok());
        let options = InstanceOptions {
            config_json: bound.config.clone(),
            seed: xxh3_64(format!("{world}/{job}").as_bytes()),
            state: state.unwrap_or_default(),
            snapshot: kept.map(|k| k.snapshot.clone()).unwrap_or_default(),
            log_sink: Some(self.logs.sink(&row.head, Scope::of(job).tenant_prefix())),
        };
        let (engine, component) = (self.engine.clone(), row.component);
        let known = self.modules.get(&bound.digest);
        let loaded = tokio::task::spawn_blocking(move || {
            let module = known.map_or_else(|| engine.compile(&component), Ok)?;
            let instance = module.instance(&options)?;
            Ok::<_, LoadError>((module, instance))
        });
        let loaded = loaded.await;
        let (module, instance) =
            loaded.map_err(|_| RegistryError::EndedEarly("loading the policy"))??;
        self.modules.keep(&bound.digest, module);
        Ok(Some(BoundPolicy {
            policy: policy_ref(&row.head),
            instance,
        }))
    }

    /// The policy that answers for a scope at present, by its own binding.
    pub async fn active(&self, world: World, job: &str) -> Result<PolicyRef, RegistryError> {
        let scope = Scope::of(job);
        if !is_asked_in_place(world) {
            return Ok(self
                .background
                .read(|evaluator| evaluator.active(world, &scope)));
        }
        let active = self
            .driver
            .read(move |view| view.policies.active(world, &scope));
        Ok(active.await?)
    }

    /// All bindings of all worlds.
    pub async fn bindings(&self) -> Result<Vec<BindingView>, RegistryError> {
        let views = |evaluator: &treadle_policy::evaluator::PolicyEvaluator, in_place: bool| {
            let worlds = World::ALL.iter().copied();
            let of_evaluator = worlds.filter(|world| is_asked_in_place(*world) == in_place);
            of_evaluator
                .flat_map(|w| evaluator.views(w))
                .collect::<Vec<_>>()
        };
        let in_place = self.driver.read(move |view| views(view.policies, true));
        let mut all = in_place.await?;
        all.extend(self.background.read(|evaluator| views(evaluator, false)));
        all.sort_by(|a, b| (a.world, &a.job).cmp(&(b.world, &b.job)));
        Ok(all)
    }

    /// Saves what policies have stored, for the next start.
    pub async fn save_states(&self) -> Result<(), RegistryError> {
        let in_place = self.driver.states().await?;
        let background = self.background.states();
        for kept in in_place.into_iter().chain(background) {
            let row = PolicyStateRow {
                job: kept.scope.as_str().to_owned(),
                world: kept.world.as_str().to_owned(),
                entries: kept.entries,
                snapshot: kept.snapshot,
                saved_at_us: unix_us(),
            };
            self.store.put_policy_state(&row).await?;
        }
        Ok(())
    }

    /// A reference policy is part of the program and needs no signature.
    async fn push_trusted(&self, upload: Upload) -> Result<PluginHead, RegistryError> {
        let digest = treadle_policy_runtime::upload_digest(&upload.bytes);
        if let Some(known) = self.store.plugin(&digest).await? {
            return Ok(known.head);
        }
        Ok(self.push_unsigned(upload.bytes).await?.0)
    }
}

/// How a version is named in the journal: name, version and digest.
pub(super) fn policy_ref(head: &PluginHead) -> PolicyRef {
    let short = head.digest.get(..DIGEST_SHORT).unwrap_or(&head.digest);
    PolicyRef(format!("{}@{}+{short}", head.name, head.version))
}
