//! A tenant as requests are checked against it.

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
    /// What it may use.
    pub limits: TenantLimits,
    /// How many requests it may send.
    pub rate: Rate,
    /// Steps that it has under way here.
    pub steps: Arc<Tally>,
    /// Bytes of its requests' bodies that are held here.
    pub bodies_bytes: Arc<Tally>,
}
