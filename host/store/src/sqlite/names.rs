//! Names by how they begin, as a condition of a query.

use sqlx::{QueryBuilder, Sqlite};

use crate::Names;

/// Adds the condition that a column holds one of these names.
pub(super) fn push(query: &mut QueryBuilder<Sqlite>, column: &str, names: &Names) {
    let (start, relation) = match names {
        Names::Any => return,
        Names::With(start) => (start, "="),
        Names::Without(start) => (start, "<>"),
    };
    query.push(format_args!(" AND substr({column}, 1, "));
    query.push_bind(i64::try_from(start.chars().count()).unwrap_or(i64::MAX));
    query.push(format_args!(") {relation} "));
    query.push_bind(start.clone());
}
