//! Checks that links, paths, metrics and test names in the documentation exist.

use crate::none;
use crate::tree::{Source, packages, root, sources};
use serde_json::Value;
use std::path::Path;

/// Folders whose paths in the documentation are checked.
const FOLDERS: &[&str] = &["host/", "plugins/", "scripts/", "sdk/", "tests/", "wit/"];

fn pages() -> Vec<Source> {
    let mut pages = sources(&["docs"], ".md");
    for name in [
        "ARCHITECTURE",
        "CHANGELOG",
        "CONTRIBUTING",
        "README",
        "STYLE",
    ] {
        let path = format!("{name}.md");
        let text = crate::tree::read(&path);
        pages.push(Source { path, text });
    }
    assert!(pages.len() > 20, "{} pages", pages.len());
    pages
}

#[test]
fn links_lead_to_files() {
    let mut broken = Vec::new();
    for page in pages() {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (_, rest) in page
            .text
            .match_indices("](")
            .map(|(at, _)| page.text.split_at(at + 2))
        {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://");
            if is_file && !root().join(folder).join(target).exists() {
                broken.push(format!("{}: {target}", page.path));
            }
        }
    }
    none("links to files that are not there", &broken);
}

#[test]
fn paths_of_code_are_there() {
    let mut missing = Vec::new();
    for page in pages() {
        for path in page.text.split('`').skip(1).step_by(2) {
            let is_plain = path
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder));
            if is_plain && is_path && !root().join(path).exists() {
                missing.push(format!("{}: {path}", page.path));
            }
        }
    }
    none("paths in the documentation that are not there", &missing);
}

/// The names of metrics in a text.
fn metrics_of(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("treadle_");
    starts.map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        rest[..end.unwrap_or(rest.len())].trim_end_matches("_bucket")
    })
}

#[test]
fn dashboards_and_alerts_show_metrics_that_there_are() {
    let code = sources(&["host"], ".rs");
    let mut shown = std::collections::BTreeSet::new();
    let files = ["docs/grafana/dashboard.json", "docs/grafana/alerts.yaml"].map(crate::tree::read);
    shown.extend(files.iter().flat_map(|text| metrics_of(text)));
    assert!(shown.len() > 30, "{} metrics", shown.len());
    let is_there = |name: &&str| {
        let quoted = format!("\"{name}\"");
        code.iter().any(|source| source.text.contains(&quoted))
    };
    let missing: Vec<String> = shown
        .into_iter()
        .filter(|name| !is_there(name))
        .map(str::to_owned)
        .collect();
    none("metrics that no code has", &missing);
}

/// Each row of the table of shared resources names an existing test.
#[test]
fn each_share_of_tenants_is_tested() {
    let page = crate::tree::read("docs/security.md");
    let section = page.split("## Shares").nth(1).expect("it is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<_> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let code: Vec<_> = ["host", "tests"]
        .iter()
        .flat_map(|top| sources(&[top], ".rs"))
        .collect();
    let mut missing = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let test = cells
            .last()
            .map_or("", |cell| cell.trim().trim_matches('`'));
        let function = format!("fn {test}(");
        if cells.len() != 5 || test.is_empty() || !code.iter().any(|at| at.text.contains(&function))
        {
            missing.push(row.to_owned());
        }
    }
    none("shares of tenants without a test", &missing);
}

/// rustdoc reads a whole crate to find out whether it has examples, so each crate says it.
#[test]
fn crates_without_examples_have_no_doctests() {
    let lies = packages(&["--no-deps"]).into_iter().filter_map(|package| {
        let name = package["name"].as_str()?.to_owned();
        let targets = package["targets"].as_array()?;
        let is_library = |t: &&Value| {
            t["src_path"]
                .as_str()
                .is_some_and(|p| p.ends_with("src/lib.rs"))
        };
        let library = targets.iter().find(is_library)?;
        let file = Path::new(library["src_path"].as_str()?);
        let folder = file
            .parent()?
            .strip_prefix(root().canonicalize().ok()?)
            .ok()?;
        // Every other fence begins a block; one without a language is Rust.
        let has_example = |file: &Source| {
            let comments = file.text.lines().map(str::trim_start);
            let docs = comments.filter(|line| line.starts_with("///") || line.starts_with("//!"));
            let mut fences = docs.filter_map(|line| line[3..].trim_start().strip_prefix("```"));
            let begins = std::iter::from_fn(|| {
                let language = fences.next();
                fences.next();
                language
            });
            begins
                .into_iter()
                .any(|language| !["json", "text"].contains(&language))
        };
        let has_examples = sources(&[folder.to_str()?], ".rs").iter().any(has_example);
        let is_tested = library["doctest"].as_bool()?;
        (has_examples != is_tested).then(|| format!("{name}: doctest is {is_tested}"))
    });
    none(
        "crates whose manifest and examples disagree; `doctest = false` is for those without",
        &lies.collect::<Vec<_>>(),
    );
}
