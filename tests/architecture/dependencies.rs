//! Which crate may see which.

use serde_json::Value;

use crate::none;
use crate::tree::packages;

/// Crates of `host/` that see no more than the words in `model`.
const MODEL_ONLY: &[&str] = &[
    "treadle-agent",
    "treadle-broker",
    "treadle-core",
    "treadle-store",
    "treadle-transfer",
    "treadle-wire",
];

/// Libraries, by the start of their names, and the crates that may use them.
const EDGES: &[(&str, &[&str])] = &[
    ("axum", &["treadle"]),
    ("cudarc", &["treadle-transfer"]),
    ("lapin", &["treadle-broker"]),
    ("sqlx", &["treadle-store"]),
    ("wasm-", &["treadle-policy-runtime"]),
    ("wasmparser", &["treadle-policy-runtime"]),
    ("wasmtime", &["treadle-policy-runtime"]),
    ("wit-bindgen", &["treadle-plugin"]),
    ("wit-component", &["treadle-policy-runtime"]),
    ("wit-parser", &["treadle-policy-runtime"]),
];

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// Whether a package lies in a folder of the repository.
fn is_in(package: &Value, folder: &str) -> bool {
    text(package, "manifest_path").contains(&format!("/{folder}/"))
}

fn members() -> Vec<Value> {
    packages(&["--no-deps"])
}

/// Whether `package` may see the member `seen`; `None` if no rule says so.
fn may_see(package: &Value, seen: &Value) -> Option<bool> {
    let (name, seen_name) = (text(package, "name"), text(seen, "name"));
    let is_word = seen_name == "treadle-model";
    let is_policy = is_in(seen, "plugins") || seen_name == "treadle-plugin";
    match name {
        "heddle-partition" | "treadle-model" | "treadle-plugin" | "treadle-services" => Some(false),
        "treadle-simulator" => Some(is_word || is_policy || seen_name == "treadle-core"),
        // The columns of the worlds are those that policies see.
        "treadle-policy-runtime" => Some(is_word || seen_name == "treadle-plugin"),
        "treadle" => Some(!is_in(seen, "tests")),
        "treadle-tests" => Some(true),
        "treadle-chaos" => Some(matches!(seen_name, "treadle-broker" | "treadle-services")),
        "treadle-hostile" => Some(seen_name == "treadle-policy-runtime"),
        _ if MODEL_ONLY.contains(&name) => Some(is_word),
        // What two policies of one paper share.
        "heddle-allocation" | "heddle-placement" => {
            Some(matches!(seen_name, "treadle-plugin" | "heddle-partition"))
        }
        _ if is_in(package, "plugins") => Some(seen_name == "treadle-plugin"),
        _ => None,
    }
}

#[test]
fn arrows_point_down() {
    let members = members();
    let mut offenders = Vec::new();
    for package in &members {
        if may_see(package, package).is_none() {
            offenders.push(format!("{} has no rule; give it one here", package["name"]));
            continue;
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            // Tests may look at anything.
            if dependency["kind"] == "dev" {
                continue;
            }
            let seen = members
                .iter()
                .find(|member| member["name"] == dependency["name"]);
            if seen.is_some_and(|seen| may_see(package, seen) == Some(false)) {
                offenders.push(format!("{} sees {}", package["name"], dependency["name"]));
            }
        }
    }
    none("crates that see what they must not", &offenders);
}

#[test]
fn each_edge_of_the_world_has_one_crate() {
    let mut offenders = Vec::new();
    for package in members() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = text(dependency, "name");
            for (start, owners) in EDGES {
                if name.starts_with(start) && !owners.contains(&text(&package, "name")) {
                    offenders.push(format!(
                        "{} uses {name}; only {owners:?} may",
                        package["name"]
                    ));
                }
            }
        }
    }
    none("libraries in crates that must not know them", &offenders);
}

#[test]
fn every_member_takes_the_lints_of_the_workspace() {
    let mut offenders = Vec::new();
    for package in members() {
        let manifest = std::fs::read_to_string(text(&package, "manifest_path")).unwrap();
        if !manifest.contains("[lints]\nworkspace = true") {
            offenders.push(text(&package, "manifest_path").to_owned());
        }
    }
    none("manifests without `[lints] workspace = true`", &offenders);
}
