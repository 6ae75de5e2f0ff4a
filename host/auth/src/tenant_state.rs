//! The state of a tenant against which requests are checked.

use super::limits::TenantLimits;
use super::rate::Rate;
use std::sync::Arc;
use treadle_http::Tally;
use treadle_model::Tenant;

/// A tenant.
#[derive(Debug)]
pub struct TenantState {
    /// Its name.
    pub tenant: Tenant,
    /// When it was created.
    pub created_at_us: u64,
    /// Its limits.
    pub limits: TenantLimits,
    /// Its request rate.
    pub rate: Rate,
    /// Its steps in progress at this daemon.
    pub steps: Arc<Tally>,
    /// Bytes of its request bodies in memory at this daemon.
    pub bodies_bytes: Arc<Tally>,
}
