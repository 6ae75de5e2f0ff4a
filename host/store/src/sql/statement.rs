//! A statement and its arguments.

use std::borrow::Cow;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::signed;

/// An argument of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    /// A number.
    Number(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A statement; its arguments are `$1`, `$2`, and so on, which both databases understand.
#[derive(Debug)]
pub(crate) struct Statement {
    sql: Cow<'static, str>,
    arguments: Vec<Argument>,
}

impl Statement {
    /// A statement without arguments.
    pub(crate) fn new(sql: &'static str) -> Self {
        Self {
            sql: Cow::Borrowed(sql),
            arguments: Vec::new(),
        }
    }

    /// A statement whose text is assembled from constants.
    pub(crate) fn made(sql: String) -> Self {
        Self {
            sql: Cow::Owned(sql),
            arguments: Vec::new(),
        }
    }

    /// Binds the next argument, an unsigned number.
    pub(crate) fn number(self, value: u64) -> Self {
        self.signed(signed(value))
    }

    /// Binds the next argument, a signed number.
    pub(crate) fn signed(mut self, value: i64) -> Self {
        self.arguments.push(Argument::Number(value));
        self
    }

    /// Binds the next argument, a text.
    pub(crate) fn text(mut self, value: &str) -> Self {
        self.arguments.push(Argument::Text(value.to_owned()));
        self
    }

    /// Binds the next argument, bytes.
    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self.arguments.push(Argument::Bytes(value.to_owned()));
        self
    }

    /// Appends to the text; never with untrusted input.
    pub(crate) fn push(&mut self, sql: &str) {
        self.sql.to_mut().push_str(sql);
    }

    /// Appends an unsigned number as an argument.
    pub(crate) fn push_number(&mut self, value: u64) {
        self.push_argument(Argument::Number(signed(value)));
    }

    /// Appends a signed number as an argument.
    pub(crate) fn push_signed(&mut self, value: i64) {
        self.push_argument(Argument::Number(value));
    }

    /// Appends a text as an argument.
    pub(crate) fn push_text(&mut self, value: &str) {
        self.push_argument(Argument::Text(value.to_owned()));
    }

    fn push_argument(&mut self, argument: Argument) {
        self.arguments.push(argument);
        let place = format!("${}", self.arguments.len());
        self.push(&place);
    }

    /// Appends a condition that the column equals the value, if there is one.
    pub(crate) fn push_equal(&mut self, column: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(" AND ");
            self.push(column);
            self.push(" = ");
            self.push_text(value);
        }
    }

    /// Appends a condition with a column and a comparison, if there is a value.
    pub(crate) fn push_compared(&mut self, relation: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.push(" AND ");
            self.push(relation);
            self.push_number(value);
        }
    }

    /// This statement behind `how`, such as `EXPLAIN`.
    #[cfg(test)]
    pub(crate) fn explained(mut self, how: &str) -> Self {
        self.sql.to_mut().insert_str(0, how);
        self
    }

    /// Its text and its arguments.
    pub(crate) fn parts(self) -> (SqlStr, Vec<Argument>) {
        let text = match self.sql {
            Cow::Borrowed(sql) => sql.into_sql_str(),
            // The text consists only of constants and argument positions.
            Cow::Owned(sql) => AssertSqlSafe(sql).into_sql_str(),
        };
        (text, self.arguments)
    }
}

/// The SQL keyword of an order.
pub(crate) const fn direction(ascending: bool) -> &'static str {
    if ascending { "ASC" } else { "DESC" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_numbered_as_they_come() {
        let mut statement = Statement::new("SELECT 1 WHERE a = $1").text("x");
        statement.push_equal("b", Some("y"));
        statement.push_equal("c", None);
        statement.push(" LIMIT ");
        statement.push_number(u64::MAX);
        let (text, arguments) = statement.parts();
        assert_eq!(text.as_str(), "SELECT 1 WHERE a = $1 AND b = $2 LIMIT $3");
        assert_eq!(arguments.len(), 3);
    }
}
