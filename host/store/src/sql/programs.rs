//! Programs.

use async_trait::async_trait;

use super::table::table;
use super::{
    Engine, SqlStore, Statement, TENANT, TableRow as _, Work, check_text, direction, lengths,
    names, steps, workers,
};
use crate::page::no_reward;
use crate::{
    LengthRow, ListedPage, ListedStep, Names, PAGE_ROWS_MAX, ProgramColumn, ProgramPage, Programs,
    RewardRow, StepPage, StepRow, StoreError, WorkerRow,
};

table! {
    /// A program in its last known state.
    #[derive(Default)]
    pub struct ProgramRow in "programs" with tenant = TENANT, upsert (program) {
        /// Its id.
        program: String,
        /// Job that it belongs to.
        job: String,
        /// The program that started it.
        parent: Option<String>,
        /// `queued`, `active`, `paused`, `finished` or `aborted`.
        status: String,
        /// `reasoning` or `acting`.
        phase: String,
        /// Worker that it is placed on.
        worker: Option<String>,
        /// Length of its context, in tokens.
        context_tokens: u64,
        /// Steps so far.
        steps: u64,
        /// Tokens of prompt and output of all its steps.
        tokens_total: u64,
        /// Tokens that it has generated; unknown for programs that ended before this column
        /// existed.
        output_tokens: Option<u64>,
        /// When it was first seen.
        created_at_us: u64,
        /// When it last changed.
        updated_at_us: u64,
        /// How it ended, if it did.
        ended: Option<String>,
        /// Its reward in millionths, if one was reported.
        reward_millionths: Option<i64>,
        /// Time that it waited for programs that it had started; unknown for programs that ended
        /// before this column existed.
        blocked_us: Option<u64>,
    }
}

/// Ended programs only: a live program with the name is another one.
const REWARD: &str = "UPDATE programs SET reward_millionths = $3 \
     WHERE tenant = $1 AND program = $2 AND ended IS NOT NULL";

#[async_trait]
impl<E: Engine> Programs for SqlStore<E> {
    async fn program(&self, program: &str) -> Result<Option<ProgramRow>, StoreError> {
        let one = ProgramRow::select("WHERE tenant = $1 AND program = $2");
        self.engine.read_row(one.text(TENANT).text(program)).await
    }

    async fn programs(&self, page: &ProgramPage) -> Result<Vec<ProgramRow>, StoreError> {
        self.engine.read_rows(statement(page)).await
    }

    async fn lengths(&self, job: &str, limit: u32) -> Result<Vec<LengthRow>, StoreError> {
        lengths::of_job(&*self.engine, job, limit).await
    }

    async fn steps(&self, program: &str, page: &StepPage) -> Result<Vec<StepRow>, StoreError> {
        steps::page(&*self.engine, program, page).await
    }

    async fn listed_steps(&self, page: &ListedPage) -> Result<Vec<ListedStep>, StoreError> {
        steps::listed(&*self.engine, page).await
    }

    async fn steps_reach(&self, page: &ListedPage, rows: u32) -> Result<Option<u64>, StoreError> {
        steps::reach(&*self.engine, page, rows).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        workers::all(&*self.engine).await
    }
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
    query.push("SELECT ");
    query.push(&ProgramRow::list(""));
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
