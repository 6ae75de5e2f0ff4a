//! Tenants' shares of the resources of actions, as sent to the core: with several tenants, an equal
//! part each, or their limit.

use std::sync::{Arc, Mutex, PoisonError};
use treadle_auth::{Auth, Directory};
use treadle_core::actions::{ActionEvent, Shares};
use treadle_model::Tenant;
use treadle_scheduler::DriverHandle;

/// Sends the tenants' shares to the core whenever they have changed.
pub(super) struct ShareSender {
    auth: Arc<Auth>,
    /// Version of the tenants that was last sent to the core.
    sent: Mutex<Option<u64>>,
}

impl ShareSender {
    /// Nothing has been sent yet.
    pub(super) fn new(auth: Arc<Auth>) -> Self {
        Self {
            auth,
            sent: Mutex::default(),
        }
    }

    /// Sends the shares, before any later input to the core.
    pub(super) fn tell(&self, driver: &DriverHandle) {
        let directory = self.auth.directory();
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.replace(directory.generation) != Some(directory.generation) {
            let shares = shares(&directory);
            driver.event(ActionEvent::SharesSet { shares }.into());
        }
    }

    /// How many tenants there are.
    pub(super) fn tenants(&self) -> usize {
        self.auth.directory().tenants.len()
    }

    /// A tenant's share of the waiting clients.
    pub(super) fn waiters(&self, tenant: &Tenant, all: usize) -> usize {
        let most = self
            .auth
            .directory()
            .most(tenant.name(), |_| None, all as u64);
        usize::try_from(most).unwrap_or(usize::MAX)
    }
}

fn shares(directory: &Directory) -> Option<Shares> {
    let percent = directory.tenants.values().filter_map(|state| {
        let percent = state.limits.action_percent?;
        Some((state.tenant.prefix().into(), percent))
    });
    let shares = Shares {
        parts: directory.tenants.len() as u64,
        percent: percent.collect(),
    };
    (shares.parts > 1 || !shares.percent.is_empty()).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_store::TenantRow;

    #[test]
    fn one_tenant_has_all_and_several_have_parts() {
        let of = |rows: &[(&str, &str)]| {
            let row = |(tenant, limits): &(&str, &str)| TenantRow {
                tenant: (*tenant).to_owned(),
                created_at_us: 0,
                limits: (*limits).to_owned(),
            };
            let rows = rows.iter().map(row).collect();
            shares(&Directory::new(rows, Vec::new(), None, None))
        };
        assert_eq!(of(&[("default", "{}")]), None);
        let three = of(&[("red", "{}"), ("blue", r#"{"action_percent": 60}"#)]).expect("shares");
        assert_eq!(three.parts, 3, "the default tenant is one of them");
        let [red, blue] = ["red", "blue"].map(|name| Tenant::new(name).prefix().to_owned());
        assert_eq!([three.most(&red, 12), three.most(&blue, 10)], [4, 6]);
        let alone = of(&[("default", r#"{"action_percent": 50}"#)]).expect("its limit holds");
        assert_eq!(alone.most("", 8), 4);
    }
}
