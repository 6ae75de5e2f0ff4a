//! Whether an action may be submitted, checked before it is on record.

use crate::Actions;
use crate::pool::Pool;
use crate::spec::{ActionSpec, DEMANDS_MAX, Demand, OPTIONS_MAX};
use std::collections::BTreeSet;
use treadle_model::tenant::prefix_of;
use treadle_model::{ActionId, BYTES_MAX};

/// The result for an action that may be submitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// It is new, and this is its id.
    New(ActionId),
    /// It was submitted before, as this action.
    Known(ActionId),
}

/// Why an action is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ActionError {
    /// It names no resource.
    #[error("demands is empty: give at least one resource that the action uses")]
    NoDemands,
    /// It names too many resources.
    #[error("demands has {demands} entries: give at most {DEMANDS_MAX}")]
    TooManyDemands {
        /// Number of entries.
        demands: usize,
    },
    /// One resource is named twice.
    #[error("demands names {resource:?} twice: use one entry per resource")]
    ResourceTwice {
        /// The resource.
        resource: Box<str>,
    },
    /// A resource that does not exist.
    #[error(
        "demands names {resource:?}, which this daemon does not declare: use a declared resource"
    )]
    UnknownResource {
        /// The resource.
        resource: Box<str>,
    },
    /// A demand with no amount, or too many.
    #[error("options of {resource:?} has {options} amounts: give 1 to {OPTIONS_MAX}")]
    BadOptions {
        /// The resource.
        resource: Box<str>,
        /// Number of amounts.
        options: usize,
    },
    /// An amount of 0, or one not above the previous one.
    #[error("options of {resource:?} must be above 0 and in ascending order")]
    NotAscending {
        /// The resource.
        resource: Box<str>,
    },
    /// An amount that is too large to count.
    #[error("options of {resource:?} has {units} units: give at most {most}, or use larger units")]
    TooManyUnits {
        /// The resource.
        resource: Box<str>,
        /// The amount.
        units: u64,
        /// The largest countable amount.
        most: u64,
    },
    /// A number of devices that is not a chunk size.
    #[error("options of {resource:?} has {units} devices: give 1, 2, 4 or 8")]
    NoChunk {
        /// The resource.
        resource: Box<str>,
        /// The amount.
        units: u64,
    },
    /// A demand that can never be met.
    #[error(
        "demands needs at least {least} of {resource:?}: {most} is the most for one action; ask for less"
    )]
    NeverFits {
        /// The resource.
        resource: Box<str>,
        /// The least it needs.
        least: u64,
        /// The most that can be granted.
        most: u64,
    },
    /// A demand above its group's share.
    #[error(
        "demands needs at least {least} of {resource:?}: the share of its jobs is {most} of {total}; ask for less"
    )]
    BeyondShare {
        /// The resource.
        resource: Box<str>,
        /// The least it needs.
        least: u64,
        /// The most its group may hold.
        most: u64,
        /// The total amount.
        total: u64,
    },
    /// More than one demand has several amounts.
    #[error("demands has several options for {first:?} and {second:?}: only one may be elastic")]
    TwoElastic {
        /// The first elastic resource.
        first: Box<str>,
        /// The second one.
        second: Box<str>,
    },
    /// A number of durations other than one for each amount, or none.
    #[error(
        "durations has {durations} entries for {options} options of {resource:?}: give one per option, or none"
    )]
    DurationsMismatch {
        /// The resource.
        resource: Box<str>,
        /// Number of durations.
        durations: usize,
        /// Number of amounts.
        options: usize,
    },
    /// A service that was not declared.
    #[error("service {service:?} is not declared: declare it first, or leave it out")]
    UnknownService {
        /// The service.
        service: Box<str>,
    },
    /// A service without exactly one demand for devices.
    #[error("service {service:?} needs exactly one entry of demands with devices, not {devices}")]
    ServiceWithoutDevices {
        /// The service.
        service: Box<str>,
        /// Number of demands for devices.
        devices: usize,
    },
    /// A program that is not live.
    #[error("program {program:?} is not live: start it with a step, or leave it out")]
    UnknownProgram {
        /// The program.
        program: Box<str>,
    },
    /// An action that may not run at all.
    #[error("run_max is 0: give the maximum run time of the action")]
    NoRunTime,
    /// Too many actions wait.
    #[error("{waiting} actions wait, the limit for {whose}: submit it again later")]
    QueueFull {
        /// Whose limit it is.
        whose: &'static str,
        /// Number of waiting actions.
        waiting: u64,
    },
    /// An idempotency key of another action.
    #[error("idempotency_key {key:?} belongs to action {action}, which differs: use a new key")]
    KeyTaken {
        /// The key.
        key: Box<str>,
        /// The action that has the key.
        action: ActionId,
    },
}

impl Actions {
    /// Checks whether an action may be submitted.
    ///
    /// # Errors
    /// [`ActionError`], which names the field and the remedy.
    pub fn check(
        &self,
        spec: &ActionSpec,
        is_live: impl Fn(&str) -> bool,
    ) -> Result<Admission, ActionError> {
        if let Some(known) = self.known(spec)? {
            return Ok(Admission::Known(known));
        }
        self.check_demands(spec)?;
        self.check_service(spec)?;
        if let Some(program) = spec.program.as_ref().filter(|program| !is_live(program)) {
            return Err(ActionError::UnknownProgram {
                program: program.clone(),
            });
        }
        if spec.run_max.0 == 0 {
            return Err(ActionError::NoRunTime);
        }
        self.check_queue(&spec.job)?;
        Ok(Admission::New(ActionId(self.state.last_action + 1)))
    }

    /// An action that was submitted before under the same key.
    fn known(&self, spec: &ActionSpec) -> Result<Option<ActionId>, ActionError> {
        let Some(key) = &spec.idempotency_key else {
            return Ok(None);
        };
        let of_job = self.index.keys.get(&spec.job);
        let Some(action) = of_job.and_then(|of_job| of_job.get(key)).copied() else {
            return Ok(None);
        };
        let known = self.state.action(action);
        if known.is_some_and(|known| known.spec.body == spec.body) {
            return Ok(Some(action));
        }
        Err(ActionError::KeyTaken {
            key: key.clone(),
            action,
        })
    }

    fn check_demands(&self, spec: &ActionSpec) -> Result<(), ActionError> {
        let demands = &spec.demands;
        if demands.is_empty() {
            return Err(ActionError::NoDemands);
        }
        if demands.len() > DEMANDS_MAX {
            return Err(ActionError::TooManyDemands {
                demands: demands.len(),
            });
        }
        let mut named = BTreeSet::new();
        for demand in demands {
            let resource = demand.resource.clone();
            if !named.insert(&demand.resource) {
                return Err(ActionError::ResourceTwice { resource });
            }
            let pool = self.state.pool_of(&resource);
            let pool = pool.and_then(|pool| self.state.pools.get(pool as usize));
            let pool = pool.ok_or(ActionError::UnknownResource { resource })?;
            check_options(demand, pool)?;
            self.check_share(prefix_of(&spec.job), demand, pool)?;
        }
        let mut elastic = demands.iter().filter(|d| d.options.len() > 1);
        if let (Some(first), Some(second)) = (elastic.next(), elastic.next()) {
            return Err(ActionError::TwoElastic {
                first: first.resource.clone(),
                second: second.resource.clone(),
            });
        }
        let (key, durations) = (&demands[spec.key_demand()], spec.durations.len());
        if durations != 0 && durations != key.options.len() {
            return Err(ActionError::DurationsMismatch {
                resource: key.resource.clone(),
                durations,
                options: key.options.len(),
            });
        }
        Ok(())
    }

    fn check_service(&self, spec: &ActionSpec) -> Result<(), ActionError> {
        let Some(service) = spec.service.clone() else {
            return Ok(());
        };
        if !self.state.services.contains_key(&service) {
            return Err(ActionError::UnknownService { service });
        }
        let is_devices = |demand: &&Demand| {
            let pool = self.state.pool_of(&demand.resource);
            let pool = pool.and_then(|pool| self.state.pools.get(pool as usize));
            pool.is_some_and(|pool| pool.devices.is_some())
        };
        match spec.demands.iter().filter(is_devices).count() {
            1 => Ok(()),
            devices => Err(ActionError::ServiceWithoutDevices { service, devices }),
        }
    }

    fn check_share(&self, group: &str, demand: &Demand, pool: &Pool) -> Result<(), ActionError> {
        let (least, total) = (demand.options[0], pool.total());
        let most = self.most_of(group, total);
        if least <= most {
            return Ok(());
        }
        Err(ActionError::BeyondShare {
            resource: demand.resource.clone(),
            least,
            most,
            total,
        })
    }

    fn check_queue(&self, job: &str) -> Result<(), ActionError> {
        let of = |counts: &std::collections::BTreeMap<Box<str>, u64>, name: &str| {
            counts.get(name).copied().unwrap_or(0)
        };
        let (index, bounds) = (&self.index, &self.config);
        let of_tenant = of(&index.by_tenant, prefix_of(job));
        let tenant_max = self.most_of(prefix_of(job), bounds.waiting_max);
        let tenant_max = tenant_max.min(bounds.tenant_waiting_max);
        let queues = [
            ("the daemon", index.waiting, bounds.waiting_max),
            ("a tenant", of_tenant, tenant_max),
            ("a job", of(&index.by_job, job), bounds.job_waiting_max),
        ];
        let full = queues.iter().find(|(_, waiting, most)| waiting >= most);
        full.map_or(Ok(()), |(whose, waiting, _)| {
            Err(ActionError::QueueFull {
                whose,
                waiting: *waiting,
            })
        })
    }
}

fn check_options(demand: &Demand, pool: &Pool) -> Result<(), ActionError> {
    let resource = || demand.resource.clone();
    let options = &demand.options;
    if options.is_empty() || options.len() > OPTIONS_MAX {
        return Err(ActionError::BadOptions {
            resource: resource(),
            options: options.len(),
        });
    }
    if options[0] == 0 || options.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(ActionError::NotAscending {
            resource: resource(),
        });
    }
    // Policies get amounts in 32 bits.
    let elastic = options.len() > 1;
    let most = if elastic {
        u64::from(u32::MAX)
    } else {
        BYTES_MAX
    };
    if let Some(units) = options.iter().find(|units| **units > most) {
        return Err(ActionError::TooManyUnits {
            resource: resource(),
            units: *units,
            most,
        });
    }
    if let Some(units) = options.iter().find(|units| !pool.has_amount(**units)) {
        return Err(ActionError::NoChunk {
            resource: resource(),
            units: *units,
        });
    }
    let (least, most) = (options[0], pool.most());
    if least > most {
        return Err(ActionError::NeverFits {
            resource: resource(),
            least,
            most,
        });
    }
    Ok(())
}
