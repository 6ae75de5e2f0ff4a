//! Bindings: one row for each role of a job and world, replaced together; and the state that their
//! policies have stored.

use std::slice;

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Engine, SqlStore, Statement, TENANT, TableRow as _, Work, within};
use crate::{BindingSet, Bindings, PAGE_ROWS_MAX, POLICY_STATE_BYTES_MAX, StoreError};

table! {
    /// The policy that a job uses for a world.
    pub struct BindingRow in "bindings" with tenant = TENANT, upsert (job, world, role) {
        /// The job.
        job: String,
        /// The world.
        world: String,
        /// The role of the policy: `active`, `previous`, `canary` or `shadow`.
        role: String,
        /// Digest of the plugin, or the name of a built-in policy.
        digest: String,
        /// Configuration of the policy, as JSON.
        config: String,
        /// A canary's share of the programs, in millionths.
        share_ppm: u32,
        /// When it was bound.
        since_us: u64,
    }
}

table! {
    /// The state stored by the policy of a binding.
    pub struct PolicyStateRow in "policy_states" with tenant = TENANT, upsert (job, world) {
        /// The job.
        job: String,
        /// The world.
        world: String,
        /// Its keys and values, in the plugin runtime's form.
        entries: Vec<u8>,
        /// The policy's snapshot, in its own format.
        snapshot: Vec<u8>,
        /// When it was saved.
        saved_at_us: u64,
    }
}

const CLEAR: &str = "DELETE FROM bindings WHERE tenant = $1 AND job = $2 AND world = $3";

const FORGET: &str = "DELETE FROM policy_states WHERE tenant = $1 AND job = $2 AND world = $3";

/// Most rows that are read; the core holds no more.
const ROWS_MAX: u64 = 24_000;

#[async_trait]
impl<E: Engine> Bindings for SqlStore<E> {
    async fn bindings(&self) -> Result<Vec<BindingRow>, StoreError> {
        let all = BindingRow::select("WHERE tenant = $1 ORDER BY job, world, role LIMIT $2");
        let all = all.text(TENANT).number(ROWS_MAX);
        self.engine.read_rows(all).await
    }

    async fn put_policy_state(&self, state: &PolicyStateRow) -> Result<(), StoreError> {
        writing!(self, "states of policies", |work| {
            let size = state.entries.len() + state.snapshot.len();
            within(
                "the state of a policy, in bytes,",
                size,
                POLICY_STATE_BYTES_MAX,
            )?;
            work.insert(slice::from_ref(state)).await?;
        })
    }

    async fn policy_states(&self) -> Result<Vec<PolicyStateRow>, StoreError> {
        let all = PolicyStateRow::select("WHERE tenant = $1 ORDER BY job, world LIMIT $2");
        let all = all.text(TENANT).number(PAGE_ROWS_MAX.into());
        self.engine.read_rows(all).await
    }
}

/// Replaces all roles of a job in a world.
pub(super) async fn put(work: &mut impl Work, set: &BindingSet) -> Result<(), StoreError> {
    let this = |sql| {
        Statement::new(sql)
            .text(TENANT)
            .text(&set.job)
            .text(&set.world)
    };
    work.execute(this(CLEAR)).await?;
    work.insert(&set.roles).await?;
    if set.roles.is_empty() {
        work.execute(this(FORGET)).await?;
    }
    Ok(())
}
