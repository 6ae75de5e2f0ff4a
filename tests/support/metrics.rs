//! Values from `GET /metrics`.

use std::collections::BTreeMap;

/// One reading of Prometheus' text format.
#[derive(Debug)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Reads the text; lines without a figure are left out.
    pub fn parse(text: &str) -> Self {
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = rows.filter_map(|line| {
            let (key, figure) = line.rsplit_once(' ')?;
            Some((key.to_owned(), figure.parse().ok()?))
        });
        Self(pairs.collect())
    }

    /// A figure by its name, and summed over its labels.
    pub fn value(&self, name: &str) -> f64 {
        let with_labels = format!("{name}{{");
        let mut rows = self
            .0
            .iter()
            .filter(|(key, _)| *key == name || key.starts_with(&with_labels))
            .peekable();
        assert!(rows.peek().is_some(), "there is no metric {name}");
        rows.map(|(_, figure)| figure).sum()
    }

    /// A figure as a whole number.
    pub fn count(&self, name: &str) -> u64 {
        self.value(name) as u64
    }

    /// The sum over the rows that have this label; 0 without any.
    pub fn count_with(&self, name: &str, label: &str) -> u64 {
        let rows = self.0.iter().filter(|(key, _)| {
            let labels = key.strip_prefix(name).and_then(|key| key.strip_prefix('{'));
            labels.is_some_and(|labels| labels.contains(label))
        });
        rows.map(|(_, figure)| figure).sum::<f64>() as u64
    }

    /// A label's value in the first row of a metric.
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        let with_labels = format!("{name}{{");
        let (key, _) = self
            .0
            .iter()
            .find(|(key, _)| key.starts_with(&with_labels))?;
        ['{', ','].into_iter().find_map(|before| {
            let (_, value) = key.split_once(&format!("{before}{label}=\""))?;
            value.split('"').next()
        })
    }

    /// True if a metric of this name is shown at all.
    pub fn has(&self, name: &str) -> bool {
        let with_labels = format!("{name}{{");
        self.0
            .keys()
            .any(|key| key == name || key.starts_with(&with_labels))
    }
}
