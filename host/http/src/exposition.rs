//! Prometheus' text format.

use std::fmt::{Display, Write};

/// A whole counter metric.
pub fn counter(name: &str, help: &str, value: u64) -> String {
    let mut text = Exposition::default();
    text.counter(name, help, value);
    text.0
}

/// A whole gauge metric.
pub fn gauge(name: &str, help: &str, value: u64) -> String {
    let mut text = Exposition::default();
    text.gauge(name, help, value);
    text.0
}

/// Escapes a label's value.
pub fn escape(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Builds a page of metrics.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a metric: its help text and its type.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One value of the metric that was begun, under its labels.
    pub fn row(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    /// A metric of one value that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.row(name, "", value);
    }

    /// A metric of one value that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.row(name, "", value);
    }

    /// The page.
    pub fn into_string(self) -> String {
        self.0
    }
}
