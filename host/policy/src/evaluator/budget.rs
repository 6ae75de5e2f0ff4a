//! Time limits of policies per question, so that many slow ones do not stall the scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time limit of all policies of one tenant for one question; beyond it the tenant's other programs
/// are left to the built-in default.
const TENANT_MAX: Duration = Duration::from_millis(4);
/// Time limit of all policies for one question.
const QUESTION_MAX: Duration = Duration::from_millis(16);

/// The time used so far by the policies that share a question.
#[derive(Default)]
pub(super) struct Budget {
    spent: Duration,
    by_tenant: BTreeMap<Box<str>, Duration>,
}

impl Budget {
    /// Whether a policy of the tenant with this prefix may still be called.
    pub(super) fn allows(&self, tenant: &str) -> bool {
        let own = self.by_tenant.get(tenant).copied().unwrap_or_default();
        self.spent < QUESTION_MAX && own < TENANT_MAX
    }

    /// Records the time that a policy of the tenant took.
    pub(super) fn spend(&mut self, tenant: &str, took: Duration) {
        self.spent += took;
        *self.by_tenant.entry(tenant.into()).or_default() += took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_policies_of_one_tenant_leave_time_for_those_of_others() {
        let mut budget = Budget::default();
        for _ in 0..2 {
            assert!(budget.allows("a"));
            budget.spend("a", Duration::from_millis(2));
        }
        assert!(!budget.allows("a") && budget.allows("b"));
        for tenant in ["b", "c", "d"] {
            budget.spend(tenant, Duration::from_millis(4));
        }
        assert!(!budget.allows("e"), "the scheduler does not wait longer");
    }
}
