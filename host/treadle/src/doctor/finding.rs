//! What was found, and what to do about it.

use serde::Serialize;

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    /// As it should be.
    Ok,
    /// Works, but should be looked at.
    Warn,
    /// Does not work.
    Fail,
}

/// What one look has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What part of the system it is about.
    pub(crate) area: &'static str,
    /// What was looked at.
    pub(crate) check: String,
    /// How good or bad it is.
    pub(crate) grade: Grade,
    /// What was found.
    #[serde(rename = "finding")]
    pub(crate) seen: String,
    /// What to do; empty if nothing.
    pub(crate) remedy: String,
}

impl Finding {
    /// All is well.
    pub(super) fn ok(
        area: &'static str,
        check: impl Into<String>,
        seen: impl Into<String>,
    ) -> Self {
        Self::of(area, check, Grade::Ok, seen, "")
    }

    /// Any grade.
    pub(super) fn of(
        area: &'static str,
        check: impl Into<String>,
        grade: Grade,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            area,
            check: check.into(),
            grade,
            seen: seen.into(),
            remedy: remedy.into(),
        }
    }
}
