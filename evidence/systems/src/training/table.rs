//! The table: what a paper has, what comes out here, and why they differ.

use serde::Serialize;
use treadle_report::table::{number, table};

/// A figure beside that of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The paper's figure, for people; empty if it has none.
    pub paper: &'static str,
    /// The median over seeds.
    pub here: f64,
    /// The least over seeds.
    pub least: f64,
    /// The most over seeds.
    pub most: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Why it is not the paper's.
    pub why: &'static str,
}

impl Row {
    /// A row of values by seed.
    pub(super) fn of(name: impl Into<String>, unit: &'static str, values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        Self {
            name: name.into(),
            paper: "",
            here: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            least: at(0),
            most: at(last),
            unit,
            why: "",
        }
    }

    /// Beside the paper's figure.
    pub(super) fn beside(self, paper: &'static str, why: &'static str) -> Self {
        Self { paper, why, ..self }
    }
}

/// All rows, for people.
pub fn text(rows: &[Row]) -> String {
    let heads = [
        "figure",
        "paper",
        "here",
        "of seeds",
        "unit",
        "why it differs",
    ];
    let cells = rows.iter().map(|row| {
        let spread = if row.least < row.most {
            format!("[{}, {}]", number(row.least), number(row.most))
        } else {
            String::new()
        };
        vec![
            row.name.clone(),
            row.paper.to_owned(),
            number(row.here),
            spread,
            row.unit.to_owned(),
            row.why.to_owned(),
        ]
    });
    table(&heads, &cells.collect::<Vec<_>>())
}
