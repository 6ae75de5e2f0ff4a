//! Bindings: one row for each role of a job and world, replaced together; and the state that their
//! policies have stored.

use super::table::{bytes, number, text};
use super::{Cells, Engine, Record, Statement, TENANT, Table, Values, Work, within};
use crate::{
    BindingRow, BindingSet, PAGE_ROWS_MAX, POLICY_STATE_BYTES_MAX, PolicyStateRow, StoreError,
};

const BINDINGS: Table<BindingRow> = Table {
    name: "bindings",
    columns: &[
        text("tenant"),
        text("job"),
        text("world"),
        text("role"),
        text("digest"),
        text("config"),
        number("share_ppm"),
        number("since_us"),
    ],
    key: &["tenant", "job", "world", "role"],
    bind,
};

const STATES: Table<PolicyStateRow> = Table {
    name: "policy_states",
    columns: &[
        text("tenant"),
        text("job"),
        text("world"),
        bytes("entries"),
        bytes("snapshot"),
        number("saved_at_us"),
    ],
    key: &["tenant", "job", "world"],
    bind: bind_state,
};

const ALL: &str = "SELECT job, world, role, digest, config, share_ppm, since_us FROM bindings \
     WHERE tenant = $1 ORDER BY job, world, role LIMIT $2";

const CLEAR: &str = "DELETE FROM bindings WHERE tenant = $1 AND job = $2 AND world = $3";

const FORGET: &str = "DELETE FROM policy_states WHERE tenant = $1 AND job = $2 AND world = $3";

const ALL_STATES: &str = "SELECT job, world, entries, snapshot, saved_at_us FROM policy_states \
     WHERE tenant = $1 ORDER BY job, world LIMIT $2";

/// Most rows that are read; the core holds no more.
const ROWS_MAX: u64 = 24_000;

/// Replaces all roles of a job in a world.
pub(super) async fn put(work: &mut impl Work, set: &BindingSet) -> Result<(), StoreError> {
    let this = |sql| {
        Statement::new(sql)
            .text(TENANT)
            .text(&set.job)
            .text(&set.world)
    };
    work.execute(this(CLEAR)).await?;
    work.insert(&BINDINGS, &set.roles).await?;
    if set.roles.is_empty() {
        work.execute(this(FORGET)).await?;
    }
    Ok(())
}

fn bind<'r>(binding: &'r BindingRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(TENANT)?;
    values.text(&binding.job)?;
    values.text(&binding.world)?;
    values.text(&binding.role)?;
    values.text(&binding.digest)?;
    values.text(&binding.config)?;
    values.number("share_ppm", u64::from(binding.share_ppm))?;
    values.number("since_us", binding.since_us)
}

/// All bindings.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<BindingRow>, StoreError> {
    let rows = engine
        .read(Statement::new(ALL).text(TENANT).number(ROWS_MAX))
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &impl Record) -> Result<BindingRow, StoreError> {
    let cells = Cells {
        table: "bindings",
        key: &["job", "world", "role"],
        row,
    };
    Ok(BindingRow {
        job: cells.text("job")?,
        world: cells.text("world")?,
        role: cells.text("role")?,
        digest: cells.text("digest")?,
        config: cells.text("config")?,
        share_ppm: cells.number("share_ppm")?.min(1_000_000) as u32,
        since_us: cells.number("since_us")?,
    })
}

/// Adds or replaces the state stored by the policy of a binding.
pub(super) async fn put_state(
    work: &mut impl Work,
    state: &PolicyStateRow,
) -> Result<(), StoreError> {
    let size = state.entries.len() + state.snapshot.len();
    within(
        "the state of a policy, in bytes,",
        size,
        POLICY_STATE_BYTES_MAX,
    )?;
    work.insert(&STATES, std::slice::from_ref(state)).await
}

fn bind_state<'r>(
    state: &'r PolicyStateRow,
    values: &mut dyn Values<'r>,
) -> Result<(), StoreError> {
    values.text(TENANT)?;
    values.text(&state.job)?;
    values.text(&state.world)?;
    values.bytes(&state.entries)?;
    values.bytes(&state.snapshot)?;
    values.number("saved_at_us", state.saved_at_us)
}

/// The states stored by the policies of all bindings.
pub(super) async fn states(engine: &impl Engine) -> Result<Vec<PolicyStateRow>, StoreError> {
    let all = Statement::new(ALL_STATES)
        .text(TENANT)
        .number(PAGE_ROWS_MAX.into());
    let rows = engine.read(all).await?;
    rows.iter().map(read_state).collect()
}

fn read_state(row: &impl Record) -> Result<PolicyStateRow, StoreError> {
    let cells = Cells {
        table: "policy_states",
        key: &["job", "world"],
        row,
    };
    Ok(PolicyStateRow {
        job: cells.text("job")?,
        world: cells.text("world")?,
        entries: cells.bytes("entries")?,
        snapshot: cells.bytes("snapshot")?,
        saved_at_us: cells.number("saved_at_us")?,
    })
}
