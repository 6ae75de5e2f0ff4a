//! Figures: measurements with their targets and references, as one JSON object or as text.

use super::machine::Machine;
use super::table::{number, table};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::io::Write;

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

impl Target {
    fn bound(self) -> f64 {
        match self {
            Self::AtMost(bound) | Self::AtLeast(bound) => bound,
        }
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }

    fn describe(self) -> String {
        let sign = match self {
            Self::AtMost(_) => "<=",
            Self::AtLeast(_) => ">=",
        };
        format!("{sign} {}", number(self.bound()))
    }
}

/// One number that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    target: Option<Target>,
    reference: Option<Cow<'static, str>>,
    absence: Option<String>,
}

impl Figure {
    /// A figure without a target.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            target: None,
            reference: None,
            absence: None,
        }
    }

    /// A figure that could not be measured, with the reason.
    pub fn absent(name: impl Into<String>, unit: &'static str, reason: impl Into<String>) -> Self {
        Self {
            absence: Some(reason.into()),
            ..Self::new(name, f64::NAN, unit)
        }
    }

    /// Sets the target.
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Sets what other software reaches, as text.
    pub fn reference(mut self, reference: impl Into<Cow<'static, str>>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    fn to_json(&self) -> Value {
        let met = self.target.map(|target| target.is_met(self.value));
        let mut json = json!({
            "value": significant(self.value),
            "unit": self.unit,
            "target": self.target.map(Target::bound),
            "target_met": met.filter(|_| self.absence.is_none()),
            "reference": self.reference,
        });
        if let Some(reason) = &self.absence {
            json["reason"] = json!(reason);
        }
        json
    }

    fn row(&self) -> Vec<String> {
        let target = self.target.map(|target| {
            let mark = if self.absence.is_some() {
                "not measured"
            } else if target.is_met(self.value) {
                "met"
            } else {
                "MISSED"
            };
            format!("{} {mark}", target.describe())
        });
        vec![
            self.name.clone(),
            number(self.value),
            self.unit.to_owned(),
            target.unwrap_or_default(),
            self.reference.as_deref().unwrap_or_default().to_owned(),
        ]
    }
}

/// Rounds to six digits, which are more than any measurement justifies.
fn significant(value: f64) -> Value {
    let rounded = format!("{value:.5e}").parse::<f64>();
    rounded.map_or(Value::Null, |rounded| json!(rounded))
}

/// The figures of a benchmark, with the notes needed to interpret them.
#[derive(Clone, Debug)]
pub struct Report {
    bench: &'static str,
    settings: Map<String, Value>,
    figures: Vec<Figure>,
    /// The data behind figures, for programs.
    details: Map<String, Value>,
    notes: Vec<String>,
}

impl Report {
    /// A report without figures.
    pub fn new(bench: &'static str) -> Self {
        Self {
            bench,
            settings: Map::new(),
            figures: Vec::new(),
            details: Map::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a setting.
    pub fn setting(&mut self, name: &str, value: impl Into<Value>) {
        self.settings.insert(name.to_owned(), value.into());
    }

    /// Adds data behind figures; only in the JSON.
    pub fn detail(&mut self, name: &str, value: Value) {
        self.details.insert(name.to_owned(), value);
    }

    /// Adds a figure; the reason for an absent one becomes a note.
    pub fn push(&mut self, figure: Figure) {
        if let Some(reason) = &figure.absence {
            self.notes.push(format!("{}: {reason}.", figure.name));
        }
        self.figures.push(figure);
    }

    /// Adds a sentence below the figures.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds another report; its settings are listed under its name.
    pub fn absorb(&mut self, other: Self) {
        self.settings
            .insert(other.bench.to_owned(), Value::Object(other.settings));
        self.figures.extend(other.figures);
        self.details.extend(other.details);
        self.notes.extend(other.notes);
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> Value {
        let figures = self.figures.iter();
        let figures: Map<String, Value> = figures.map(|f| (f.name.clone(), f.to_json())).collect();
        let mut json = json!({
            "bench": self.bench,
            "machine": Machine::this(),
            "settings": self.settings,
            "figures": figures,
            "notes": self.notes,
        });
        if !self.details.is_empty() {
            json["details"] = Value::Object(self.details.clone());
        }
        json
    }

    /// The figures as a table, with the notes.
    pub fn to_text(&self) -> String {
        let heads = ["figure", "value", "unit", "target", "reference"];
        let rows: Vec<Vec<String>> = self.figures.iter().map(Figure::row).collect();
        let machine = Machine::this().describe();
        format!("{}\n{machine}\n{}", table(&heads, &rows), self.notes_text())
    }

    /// The notes only, one per line.
    pub fn notes_text(&self) -> String {
        let lines = self.notes.iter().flat_map(|note| [note, "\n"]);
        lines.collect()
    }
}

/// Writes to standard output. A closed reader is an error, not a panic.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("x");
        report.setting("programs", 64);
        report.push(
            Figure::new("cpu", 0.123_456_78, "s")
                .target(Target::AtMost(0.2))
                .reference("other 0.3"),
        );
        report.push(Figure::new("rate", 90.0, "1/s").target(Target::AtLeast(100.0)));
        report.push(Figure::new("nothing", f64::NAN, "s"));
        report.note("simulated");
        report
    }

    #[test]
    fn json_has_value_unit_target_and_reference() {
        let json = report().to_json();
        let cpu = json!({
            "value": 0.123_457, "unit": "s", "target": 0.2, "target_met": true,
            "reference": "other 0.3",
        });
        assert_eq!(json["figures"]["cpu"], cpu);
        assert_eq!(json["figures"]["rate"]["target_met"], false);
        assert!(json["figures"]["nothing"]["value"].is_null());
        assert_eq!(
            (&json["bench"], &json["settings"]["programs"]),
            (&json!("x"), &json!(64))
        );
        assert!(json["machine"]["cores"].as_u64() > Some(0));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed_and_has_a_reason() {
        let mut report = report();
        let target = Target::AtMost(1.0);
        report.push(Figure::absent("gone", "s", "it is not there").target(target));
        let gone = &report.to_json()["figures"]["gone"];
        assert!(gone["value"].is_null() && gone["target_met"].is_null());
        assert_eq!(gone["reason"], "it is not there");
        let text = report.to_text();
        assert!(text.contains("<= 1.00 not measured"), "{text}");
        assert!(text.ends_with("gone: it is not there.\n"), "{text}");
    }

    #[test]
    fn text_names_the_missed_targets() {
        let text = report().to_text();
        assert!(
            text.contains("<= 0.200 met") && text.contains(">= 100 MISSED"),
            "{text}"
        );
        assert!(text.ends_with("simulated\n"), "{text}");
    }

    #[test]
    fn absorbed_settings_are_listed_under_their_name() {
        let mut whole = Report::new("all");
        whole.absorb(report());
        let json = whole.to_json();
        assert_eq!(json["settings"]["x"]["programs"], 64);
        assert_eq!(json["figures"]["rate"]["value"], 90.0);
    }
}
