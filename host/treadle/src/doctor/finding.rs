//! Findings with their remedies.

use serde::Serialize;

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    /// Works.
    Ok,
    /// Works, but needs attention.
    Warn,
    /// Does not work.
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The area of the system.
    pub(crate) area: &'static str,
    /// What was checked.
    pub(crate) check: String,
    /// The severity.
    pub(crate) grade: Grade,
    /// What was found.
    #[serde(rename = "finding")]
    pub(crate) seen: String,
    /// The remedy; empty if none is needed.
    pub(crate) remedy: String,
}

impl Finding {
    /// A finding without a problem.
    pub(super) fn ok(
        area: &'static str,
        check: impl Into<String>,
        seen: impl Into<String>,
    ) -> Self {
        Self::of(area, check, Grade::Ok, seen, "")
    }

    /// A finding of any grade.
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
