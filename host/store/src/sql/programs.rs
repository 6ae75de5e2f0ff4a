//! Programs.

use super::table::{number, text};
use super::{
    Cells, Engine, Record, Statement, TENANT, Table, Values, Work, check_text, direction, names,
};
use crate::page::no_reward;
use crate::{Names, PAGE_ROWS_MAX, ProgramColumn, ProgramPage, ProgramRow, RewardRow, StoreError};

/// Programs.
pub(super) const PROGRAMS: Table<ProgramRow> = Table {
    name: "programs",
    columns: &[
        text("tenant"),
        text("program"),
        text("job"),
        text("parent"),
        text("status"),
        text("phase"),
        text("worker"),
        number("context_tokens"),
        number("steps"),
        number("tokens_total"),
        number("output_tokens"),
        number("created_at_us"),
        number("updated_at_us"),
        text("ended"),
        number("reward_millionths"),
        number("blocked_us"),
    ],
    key: &["tenant", "program"],
    bind,
};

const SELECT: &str = "SELECT program, job, parent, status, phase, worker, context_tokens, steps, \
     tokens_total, output_tokens, created_at_us, updated_at_us, ended, reward_millionths, \
     blocked_us";

/// Ended programs only: a live program with the name is another one.
const REWARD: &str = "UPDATE programs SET reward_millionths = $3 \
     WHERE tenant = $1 AND program = $2 AND ended IS NOT NULL";

/// Adds or replaces programs.
pub(super) async fn put(work: &mut impl Work, programs: &[ProgramRow]) -> Result<(), StoreError> {
    work.insert(&PROGRAMS, programs).await
}

fn bind<'r>(program: &'r ProgramRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(TENANT)?;
    values.text(&program.program)?;
    values.text(&program.job)?;
    values.maybe_text(program.parent.as_deref())?;
    values.text(&program.status)?;
    values.text(&program.phase)?;
    values.maybe_text(program.worker.as_deref())?;
    values.number("context_tokens", program.context_tokens)?;
    values.number("steps", program.steps)?;
    values.number("tokens_total", program.tokens_total)?;
    values.maybe_number("output_tokens", program.output_tokens)?;
    values.number("created_at_us", program.created_at_us)?;
    values.number("updated_at_us", program.updated_at_us)?;
    values.maybe_text(program.ended.as_deref())?;
    values.signed(program.reward_millionths)?;
    values.maybe_number("blocked_us", program.blocked_us)
}

/// Stores the reward of an ended program.
pub(super) async fn reward(work: &mut impl Work, row: &RewardRow) -> Result<(), StoreError> {
    check_text(Some(&row.program))?;
    let reward = Statement::new(REWARD)
        .text(TENANT)
        .text(&row.program)
        .signed(row.reward_millionths);
    work.execute(reward).await?;
    Ok(())
}

/// One program.
pub(super) async fn get(
    engine: &impl Engine,
    program: &str,
) -> Result<Option<ProgramRow>, StoreError> {
    let mut query = Statement::new(SELECT);
    query.push(" FROM programs WHERE tenant = ");
    query.push_text(TENANT);
    query.push(" AND program = ");
    query.push_text(program);
    let rows = engine.read(query).await?;
    rows.first().map(read).transpose()
}

/// Programs that match.
pub(super) async fn page(
    engine: &impl Engine,
    page: &ProgramPage,
) -> Result<Vec<ProgramRow>, StoreError> {
    let query = statement(page);
    let rows = engine.read(query).await?;
    rows.iter().map(read).collect()
}

/// The statement that reads a page.
pub(super) fn statement(page: &ProgramPage) -> Statement {
    match page.column {
        ProgramColumn::CreatedAtUs => part(page, Which::All),
        _ => merged(page),
    }
}

/// The programs in a part of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    Ended,
    Live,
}

/// The statement that reads a part of a page.
pub(super) fn part(page: &ProgramPage, which: Which) -> Statement {
    let mut query = Statement::new("");
    push_part(&mut query, page, which);
    query
}

/// The first rows of ended programs, by a partial index, merged with those of live programs, which
/// are few. An index over live programs would cost a write for each of their steps, and could not
/// contain their duration, which grows.
fn merged(page: &ProgramPage) -> Statement {
    let direction = direction(page.ascending);
    let mut query = Statement::new("SELECT * FROM (");
    push_part(&mut query, page, Which::Ended);
    query.push(") AS ended_ones UNION ALL SELECT * FROM (");
    push_part(&mut query, page, Which::Live);
    query.push(&format!(
        ") AS live_ones ORDER BY place {direction}, program {direction} LIMIT "
    ));
    query.push_number(page.limit.min(PAGE_ROWS_MAX).into());
    query
}

fn push_part(query: &mut Statement, page: &ProgramPage, which: Which) {
    query.push(SELECT);
    query.push(", ");
    push_place(query, page, which);
    query.push(" AS place FROM programs WHERE ");
    query.push(match which {
        // Not by tenant, which is the same in all rows: SQLite would choose an index by it that
        // does not help with sorting.
        Which::All => "TRUE",
        Which::Ended => "ended IS NOT NULL",
        Which::Live => "ended IS NULL",
    });
    push_filters(query, page);
    if let Some(cursor) = &page.after {
        query.push(" AND (");
        push_place(query, page, which);
        let relation = if page.ascending { ">" } else { "<" };
        query.push(&format!(", program) {relation} ("));
        query.push_signed(cursor.value);
        query.push(", ");
        query.push_text(&cursor.program);
        query.push(")");
    }
    let direction = direction(page.ascending);
    query.push(&format!(
        " ORDER BY place {direction}, program {direction} LIMIT "
    ));
    query.push_number(page.limit.min(PAGE_ROWS_MAX).into());
}

/// What the rows are sorted by, as [`ProgramPage::value_of`] counts it. Indexes have the same text.
fn push_place(query: &mut Statement, page: &ProgramPage, which: Which) {
    match page.column {
        ProgramColumn::Reward => {
            let none = no_reward(page.ascending);
            query.push(&format!("COALESCE(reward_millionths, {none})"));
        }
        ProgramColumn::Lasted if which == Which::Live => {
            query.push("(");
            query.push_number(page.now_us);
            query.push(" - created_at_us)");
        }
        ProgramColumn::Lasted => query.push("(updated_at_us - created_at_us)"),
        column => query.push(column.as_str()),
    }
}

fn push_filters(query: &mut Statement, page: &ProgramPage) {
    for (column, value) in [
        ("job", &page.job),
        ("parent", &page.parent),
        ("status", &page.status),
        ("worker", &page.worker),
    ] {
        query.push_equal(column, value.as_deref());
    }
    if let Some(text) = &page.search {
        query.push(" AND lower(program) LIKE ");
        query.push_text(&containing(text, &page.names));
        query.push(" ESCAPE '\\'");
    }
    query.push_compared("updated_at_us >= ", page.since_us);
    names::push(query, "program", &page.names);
}

/// A pattern for names with this in them, behind what all of them begin with.
fn containing(text: &str, names: &Names) -> String {
    let mut pattern = String::new();
    if let Names::With(start) = names {
        literally(&mut pattern, start);
    }
    pattern.push('%');
    literally(&mut pattern, text);
    pattern.push('%');
    pattern
}

/// Adds text whose letters mean nothing but themselves.
fn literally(pattern: &mut String, text: &str) {
    for letter in text.to_ascii_lowercase().chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
}

fn read(row: &impl Record) -> Result<ProgramRow, StoreError> {
    let cells = Cells {
        table: "programs",
        key: &["program"],
        row,
    };
    Ok(ProgramRow {
        program: cells.text("program")?,
        job: cells.text("job")?,
        parent: cells.maybe_text("parent")?,
        status: cells.text("status")?,
        phase: cells.text("phase")?,
        worker: cells.maybe_text("worker")?,
        context_tokens: cells.number("context_tokens")?,
        steps: cells.number("steps")?,
        tokens_total: cells.number("tokens_total")?,
        output_tokens: cells.maybe_number("output_tokens")?,
        created_at_us: cells.number("created_at_us")?,
        updated_at_us: cells.number("updated_at_us")?,
        ended: cells.maybe_text("ended")?,
        reward_millionths: cells.maybe_signed("reward_millionths")?,
        blocked_us: cells.maybe_number("blocked_us")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_patterns_mean_is_searched_for_as_it_is() {
        assert_eq!(containing("A_b%\\", &Names::Any), "%a\\_b\\%\\\\%");
        let of_tenant = Names::With("t_1~".into());
        assert_eq!(containing("1", &of_tenant), "t\\_1~%1%");
    }
}
