//! Conditions on names by their prefix.

use super::Statement;
use crate::Names;

/// Adds the condition that a column holds one of these names.
pub(super) fn push(query: &mut Statement, column: &str, names: &Names) {
    let (start, relation) = match names {
        Names::Any => return,
        Names::With(start) => (start, "="),
        Names::Without(start) => (start, "<>"),
    };
    query.push(" AND substr(");
    query.push(column);
    query.push(", 1, CAST(");
    query.push_number(start.chars().count() as u64);
    query.push(" AS INTEGER)) ");
    query.push(relation);
    query.push(" ");
    query.push_text(start);
}
