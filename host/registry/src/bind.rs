//! Changing bindings, and restoring them after a restart.

use super::{NATIVE, PluginRegistry, RegistryError, Upload, eviction_by_default, unix_us};
use std::sync::atomic::Ordering;
use treadle_core::Event;
use treadle_core::bindings::{BindingEvent, Roles};
use treadle_model::tenant::WHOLE_DAEMON;
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{
    BindingView, BoundPolicy, Change, Changed, EVERYONE, Notice, Role, Scope, is_asked_in_place,
    native_policy,
};
use treadle_policy_runtime::{BindingState, InstanceOptions, LoadError};
use treadle_store::{PluginHead, PolicyStateRow};
use xxhash_rust::xxh3::xxh3_64;

/// Length of the digest in a policy's name.
const DIGEST_SHORT: usize = 12;

/// A request to give a policy a role.
#[derive(Clone, Debug)]
pub struct BindRequest {
    /// The world.
    pub world: World,
    /// The job; `*` for all jobs without their own.
    pub job: String,
    /// A name, name@version, digest, or `native`.
    pub policy: String,
    /// Its configuration, a JSON object.
    pub config: String,
    /// The role.
    pub role: Role,
    /// A canary's share of the programs, in millionths.
    pub share_ppm: u32,
}

impl PluginRegistry {
    /// Restores the bindings from before the restart; if eviction was never bound, binds the
    /// bundled policy.
    pub async fn restore(&self) -> Result<PolicyRef, RegistryError> {
        let bindings = self.driver.bindings().await?;
        let states = self.store.policy_states().await?;
        for (world, job, roles) in bindings.iter() {
            let state = states
                .iter()
                .find(|s| s.job == job && s.world == world.as_str());
            self.restore_roles(world, job, roles, state).await?;
        }
        self.bind_default(bindings.roles(World::Eviction, EVERYONE))
            .await?;
        self.want_forecasts().await?;
        self.active(World::Eviction, EVERYONE).await
    }

    /// Binds the bundled eviction policy unless another was bound on request. It follows the
    /// settings.
    async fn bind_default(&self, bound: Option<&Roles>) -> Result<(), RegistryError> {
        let digest = self.default_digest().await?;
        let is_vacant = match bound.and_then(|roles| roles.get(&Role::Active)) {
            Some(active) => active.by_default && *active.digest != digest,
            None => bound.is_none_or(|roles| !roles.contains_key(&Role::Previous)),
        };
        if is_vacant {
            self.give_default(digest).await?;
        }
        Ok(())
    }

    async fn default_digest(&self) -> Result<String, RegistryError> {
        let retention = self.driver.overview().await?.retention;
        Ok(self.bring(eviction_by_default(retention)).await?.digest)
    }

    async fn give_default(&self, digest: String) -> Result<Changed, RegistryError> {
        let request = BindRequest {
            world: World::Eviction,
            job: EVERYONE.to_owned(),
            policy: digest,
            config: "{}".to_owned(),
            role: Role::Active,
            share_ppm: 0,
        };
        self.bind_as(&request, |_| true, true).await
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
            let Some(bound) = roles.get(&role) else {
                continue;
            };
            let kept = state.filter(|_| role == Role::Active);
            let loaded = match self
                .load(world, job, &bound.digest, &bound.config, kept)
                .await
            {
                Ok(loaded) => loaded,
                // A policy that no longer loads must not keep the daemon from starting.
                Err(error) => {
                    let digest = &bound.digest;
                    tracing::error!(%world, job, role = role.as_str(), digest, %error,
                        "a policy bound before the restart could not be loaded");
                    continue;
                }
            };
            let loaded = loaded.map(|policy| BoundPolicy {
                id: bound.id,
                ..policy
            });
            let scope = Scope::of(job);
            match Change::to_give(role, loaded, bound.share_ppm) {
                Some(change) if is_asked_in_place(world) => {
                    self.driver.restore(world, scope, change)?;
                }
                Some(change) => self.background.restore(world, &scope, change),
                None => {}
            }
        }
        Ok(())
    }

    /// Gives a policy a role, from the next decision on. It is on record when this completes.
    pub async fn bind(
        &self,
        request: &BindRequest,
        is_visible: impl Fn(&PluginHead) -> bool,
    ) -> Result<Changed, RegistryError> {
        self.bind_as(request, is_visible, false).await
    }

    async fn bind_as(
        &self,
        request: &BindRequest,
        is_visible: impl Fn(&PluginHead) -> bool,
        by_default: bool,
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
        let loaded = self
            .load(world, job, &digest, &request.config, None)
            .await?;
        let policy = loaded
            .as_ref()
            .map_or_else(|| native_policy(world), |loaded| loaded.policy.clone());
        let event = BindingEvent::PolicyBound {
            world,
            scope: job.into(),
            role: request.role,
            policy,
            digest: digest.into(),
            config: request.config.as_str().into(),
            share_ppm: request.share_ppm,
            by_default,
        };
        self.commit(event, loaded).await
    }

    /// Makes the previous policy active again, or ends a canary.
    pub async fn roll_back(&self, world: World, job: &str) -> Result<Changed, RegistryError> {
        let scope = job.into();
        self.commit(BindingEvent::PolicyRolledBack { world, scope }, None)
            .await
    }

    /// The world of a stored policy; `None` for the built-in default, which every world has.
    pub async fn world_of(
        &self,
        policy: &str,
        is_visible: impl Fn(&PluginHead) -> bool,
    ) -> Result<Option<World>, RegistryError> {
        if Self::is_native(policy) {
            return Ok(None);
        }
        let head = self.obtain(policy, is_visible).await?;
        Ok(World::ALL
            .iter()
            .copied()
            .find(|world| *head.world == *world.as_str()))
    }

    /// Removes a policy from its role. If it decided on eviction for everyone, the default one
    /// takes over.
    pub async fn withdraw(
        &self,
        world: World,
        job: &str,
        role: Role,
    ) -> Result<Changed, RegistryError> {
        if (world, job, role) == (World::Eviction, EVERYONE, Role::Active) {
            let digest = self.default_digest().await?;
            return self.give_default(digest).await;
        }
        let scope = job.into();
        self.commit(BindingEvent::PolicyUnbound { world, scope, role }, None)
            .await
    }

    /// Changes a binding in the core and the evaluator, and waits until that is on record.
    async fn commit(
        &self,
        event: BindingEvent,
        loaded: Option<BoundPolicy>,
    ) -> Result<Changed, RegistryError> {
        // The background evaluator follows in the order of the journal.
        let _in_order = self.changing.lock().await;
        let changed = if is_asked_in_place(event.target().0) {
            self.driver.bind(event, loaded).await??.changed
        } else {
            let bound = self.driver.bind(event.clone(), None).await??;
            let loaded = loaded.map(|policy| BoundPolicy {
                id: bound.id,
                ..policy
            });
            Some(self.background.follow(&event, loaded))
        };
        self.want_forecasts().await?;
        self.driver.recorded().await?;
        changed.ok_or(RegistryError::EndedEarly("changing the binding"))
    }

    /// Enables predictions while any policy predicts or uses them.
    async fn want_forecasts(&self) -> Result<(), RegistryError> {
        let uses = |world| {
            matches!(
                world,
                World::Prediction | World::Priority | World::Placement
            )
        };
        let bindings = self.driver.bindings().await?;
        let wanted = bindings.iter().any(|(world, _, _)| uses(world));
        self.forecasts_wanted.store(wanted, Ordering::Relaxed);
        Ok(())
    }

    /// Records that a policy lost its role in the background evaluator. For the driver's own
    /// evaluator the scheduler does this.
    pub async fn record_failure(&self, notice: &Notice) -> Result<(), RegistryError> {
        if !is_asked_in_place(notice.world) {
            self.driver
                .event_committed(Event::Binding(notice.event()))
                .await?;
        }
        self.want_forecasts().await
    }

    /// An instance of a bound policy; `None` for the built-in default.
    pub(super) async fn load(
        &self,
        world: World,
        job: &str,
        digest: &str,
        config: &str,
        kept: Option<&PolicyStateRow>,
    ) -> Result<Option<BoundPolicy>, RegistryError> {
        if digest == NATIVE {
            return Ok(None);
        }
        let row = self.store.plugin(digest).await?;
        let row = row.ok_or_else(|| RegistryError::Unknown(digest.to_owned()))?;
        let limits = self.engine.limits();
        let state = kept.and_then(|k| BindingState::from_bytes(&k.entries, limits).ok());
        let options = InstanceOptions {
            config_json: config.to_owned(),
            seed: xxh3_64(format!("{world}/{job}").as_bytes()),
            state: state.unwrap_or_default(),
            snapshot: kept.map(|k| k.snapshot.clone()).unwrap_or_default(),
            log_sink: Some(self.logs.sink(&row.head, Scope::of(job).tenant_prefix())),
        };
        let (engine, component) = (self.engine.clone(), row.component);
        let known = self.modules.get(digest);
        let loaded = tokio::task::spawn_blocking(move || {
            let module = known.map_or_else(|| engine.compile(&component), Ok)?;
            let instance = module.instance(&options)?;
            Ok::<_, LoadError>((module, instance))
        });
        let loaded = loaded.await;
        let (module, instance) =
            loaded.map_err(|_| RegistryError::EndedEarly("loading the policy"))??;
        self.modules.keep(digest, module);
        Ok(Some(BoundPolicy {
            policy: policy_ref(&row.head),
            id: 0,
            instance,
        }))
    }

    /// The active policy of a scope's own binding.
    pub async fn active(&self, world: World, job: &str) -> Result<PolicyRef, RegistryError> {
        let scope = Scope::of(job);
        if !is_asked_in_place(world) {
            return Ok(self
                .background
                .read(|evaluator| evaluator.active(world, &scope)));
        }
        Ok(self.driver.active_policy(world, scope).await?)
    }

    /// All bindings of all worlds.
    pub async fn bindings(&self) -> Result<Vec<BindingView>, RegistryError> {
        let mut all = self.driver.binding_views().await?;
        let worlds = World::ALL
            .iter()
            .filter(|world| !is_asked_in_place(**world));
        for world in worlds {
            all.extend(self.background.read(|evaluator| evaluator.views(*world)));
        }
        all.sort_by(|a, b| (a.world, &a.job).cmp(&(b.world, &b.job)));
        Ok(all)
    }

    /// Saves the stored state of policies for the next start.
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

/// A version's name in the journal: name, version and digest.
pub(super) fn policy_ref(head: &PluginHead) -> PolicyRef {
    let short = head.digest.get(..DIGEST_SHORT).unwrap_or(&head.digest);
    PolicyRef(format!("{}@{}+{short}", head.name, head.version))
}
