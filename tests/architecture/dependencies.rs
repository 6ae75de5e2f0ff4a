//! Checks which crate may depend on which.

use serde_json::Value;

use crate::none;
use crate::tree::packages;

/// Crates of `host/` from the bottom: each sees crates of rows above it in this list, none of its
/// own row.
const LAYERS: &[&[&str]] = &[
    &[
        "treadle-console",
        "treadle-dst-outcome",
        "treadle-model",
        "treadle-engine-model",
        "treadle-report",
        "treadle-samples",
        "treadle-sandbox",
        "treadle-training-check",
        "treadle-trust",
        "treadle-weight-store",
    ],
    &["treadle-estimates", "treadle-machine", "treadle-memory"],
    &[
        "treadle-actions-machine",
        "treadle-training-machine",
        "treadle-weights-machine",
    ],
    &[
        "treadle-broker",
        "treadle-core",
        "treadle-kubernetes",
        "treadle-policy-runtime",
        "treadle-store",
        "treadle-transfer",
        "treadle-wire",
    ],
    &[
        "treadle-config",
        "treadle-core-json",
        "treadle-http",
        "treadle-policy",
        "treadle-translate",
    ],
    &[
        "treadle-actions",
        "treadle-auth",
        "treadle-dst-training",
        "treadle-scheduler",
        "treadle-simulator",
    ],
    &[
        "treadle-dst",
        "treadle-endpoints",
        "treadle-engines",
        "treadle-registry",
        "treadle-rollouts",
        "treadle-runs",
        "treadle-weights",
    ],
    &[
        "treadle-engine-sim",
        "treadle-gateway",
        "treadle-outbox",
        "treadle-relay",
        "treadle-sandbox-apis",
        "treadle-training",
        "treadle-whatif",
    ],
    &["treadle-calibrate", "treadle-node-agent", "treadle-server"],
    &["treadle-demo"],
    &["treadle"],
];

/// Crates of `host/` that see less than their row lets them.
const SEES_ONLY: &[(&str, &[&str])] = &[
    (
        "treadle-actions",
        &[
            "treadle-core",
            "treadle-http",
            "treadle-model",
            "treadle-sandbox",
            "treadle-trust",
        ],
    ),
    (
        "treadle-actions-machine",
        &["treadle-estimates", "treadle-machine", "treadle-model"],
    ),
    ("treadle-broker", &["treadle-model"]),
    ("treadle-console", &[]),
    (
        "treadle-core",
        &[
            "treadle-actions-machine",
            "treadle-estimates",
            "treadle-machine",
            "treadle-memory",
            "treadle-model",
            "treadle-training-machine",
            "treadle-weights-machine",
        ],
    ),
    ("treadle-core-json", &["treadle-core"]),
    ("treadle-dst-outcome", &[]),
    (
        "treadle-dst-training",
        &[
            "treadle-core",
            "treadle-core-json",
            "treadle-dst-outcome",
            "treadle-model",
        ],
    ),
    ("treadle-engine-model", &[]),
    ("treadle-estimates", &["treadle-model"]),
    ("treadle-machine", &["treadle-model"]),
    ("treadle-memory", &["treadle-model"]),
    (
        "treadle-endpoints",
        &[
            "treadle-auth",
            "treadle-http",
            "treadle-model",
            "treadle-store",
            "treadle-wire",
        ],
    ),
    (
        "treadle-engine-sim",
        &[
            "treadle-engine-model",
            "treadle-http",
            "treadle-translate",
            "treadle-wire",
        ],
    ),
    (
        "treadle-http",
        &["treadle-model", "treadle-trust", "treadle-wire"],
    ),
    ("treadle-kubernetes", &["treadle-sandbox"]),
    (
        "treadle-node-agent",
        &[
            "treadle-actions",
            "treadle-auth",
            "treadle-config",
            "treadle-core",
            "treadle-gateway",
            "treadle-http",
            "treadle-model",
            "treadle-runs",
            "treadle-sandbox",
            "treadle-sandbox-apis",
            "treadle-scheduler",
            "treadle-trust",
            "treadle-wire",
        ],
    ),
    (
        "treadle-policy",
        &["treadle-core", "treadle-model", "treadle-policy-runtime"],
    ),
    (
        "treadle-outbox",
        &[
            "treadle-broker",
            "treadle-core",
            "treadle-model",
            "treadle-runs",
            "treadle-store",
        ],
    ),
    ("treadle-policy-runtime", &["treadle-model"]),
    (
        "treadle-relay",
        &[
            "treadle-auth",
            "treadle-core",
            "treadle-endpoints",
            "treadle-http",
            "treadle-model",
            "treadle-scheduler",
            "treadle-weights",
            "treadle-wire",
        ],
    ),
    ("treadle-report", &[]),
    (
        "treadle-runs",
        &[
            "treadle-actions",
            "treadle-auth",
            "treadle-config",
            "treadle-core",
            "treadle-http",
            "treadle-kubernetes",
            "treadle-model",
            "treadle-sandbox",
            "treadle-scheduler",
            "treadle-store",
            "treadle-trust",
            "treadle-weight-store",
            "treadle-wire",
        ],
    ),
    ("treadle-sandbox", &[]),
    (
        "treadle-sandbox-apis",
        &[
            "treadle-actions",
            "treadle-auth",
            "treadle-endpoints",
            "treadle-http",
            "treadle-model",
            "treadle-runs",
            "treadle-sandbox",
            "treadle-wire",
        ],
    ),
    (
        "treadle-scheduler",
        &[
            "treadle-core",
            "treadle-core-json",
            "treadle-model",
            "treadle-policy",
            "treadle-store",
        ],
    ),
    ("treadle-store", &["treadle-model", "treadle-trust"]),
    (
        "treadle-training",
        &[
            "treadle-auth",
            "treadle-core",
            "treadle-endpoints",
            "treadle-http",
            "treadle-model",
            "treadle-policy",
            "treadle-registry",
            "treadle-runs",
            "treadle-samples",
            "treadle-scheduler",
            "treadle-store",
            "treadle-weight-store",
            "treadle-wire",
        ],
    ),
    ("treadle-training-check", &[]),
    ("treadle-transfer", &["treadle-model", "treadle-trust"]),
    ("treadle-trust", &[]),
    ("treadle-weight-store", &[]),
    (
        "treadle-weights",
        &[
            "treadle-core",
            "treadle-http",
            "treadle-model",
            "treadle-scheduler",
        ],
    ),
    ("treadle-wire", &["treadle-model"]),
    (
        "treadle-training-machine",
        &["treadle-machine", "treadle-model"],
    ),
    ("treadle-translate", &["treadle-model", "treadle-wire"]),
    (
        "treadle-weights-machine",
        &["treadle-machine", "treadle-model"],
    ),
];

/// Crates of `host/` that link policies natively: as defaults when none is bound, or to compare
/// them with their sandboxed builds.
const KNOW_POLICIES: &[&str] = &[
    "treadle",
    "treadle-policy",
    "treadle-rollouts",
    "treadle-simulator",
];

/// Libraries, by the start of their names, and the crates that may use them.
const EDGES: &[(&str, &[&str])] = &[
    (
        "axum",
        &[
            "treadle",
            "treadle-auth",
            "treadle-endpoints",
            "treadle-engine-sim",
            "treadle-gateway",
            "treadle-http",
            "treadle-node-agent",
            "treadle-relay",
            "treadle-runs",
            "treadle-sandbox-apis",
            "treadle-server",
            "treadle-training",
        ],
    ),
    ("cudarc", &["treadle-transfer"]),
    ("k8s-openapi", &["treadle-kubernetes"]),
    ("kube", &["treadle-kubernetes"]),
    ("lapin", &["treadle-broker"]),
    ("nix", &["treadle-sandbox"]),
    ("rustls", &["treadle-trust"]),
    ("seccompiler", &["treadle-sandbox"]),
    ("sqlx", &["treadle-store"]),
    ("tokio-rustls", &["treadle-trust"]),
    (
        "utoipa",
        &[
            "treadle-auth",
            "treadle-endpoints",
            "treadle-outbox",
            "treadle-policy",
            "treadle-runs",
            "treadle-sandbox-apis",
            "treadle-server",
            "treadle-training",
            "treadle-whatif",
        ],
    ),
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

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// Whether `package` may see the member `seen`; `None` if there is no rule for it.
fn may_see(package: &Value, seen: &Value) -> Option<bool> {
    let (name, seen_name) = (text(package, "name"), text(seen, "name"));
    let is_policy = is_in(seen, "plugins");
    let is_sdk = seen_name == "treadle-plugin";
    if let Some(layer) = layer_of(name) {
        let Some(below) = layer_of(seen_name) else {
            // The columns of the worlds are those that policies see.
            let knows = KNOW_POLICIES.contains(&name);
            let takes_columns = matches!(name, "treadle-policy-runtime" | "treadle-registry");
            return Some((is_policy && knows) || (is_sdk && (knows || takes_columns)));
        };
        let only = SEES_ONLY.iter().find(|(of, _)| *of == name);
        let listed = only.is_none_or(|(_, sees)| sees.contains(&seen_name));
        return Some(below < layer && listed);
    }
    match name {
        "heddle-partition" | "treadle-plugin" | "treadle-services" => Some(false),
        "treadle-bench" | "treadle-tests" => Some(true),
        // What runs in virtual time only.
        "treadle-systems" => Some(
            is_policy
                || matches!(
                    seen_name,
                    "treadle-core"
                        | "treadle-engine-model"
                        | "treadle-machine"
                        | "treadle-model"
                        | "treadle-plugin"
                        | "treadle-policy"
                        | "treadle-report"
                        | "treadle-simulator"
                ),
        ),
        "treadle-chaos" => Some(matches!(
            seen_name,
            "treadle-broker" | "treadle-engine-sim" | "treadle-services"
        )),
        "treadle-hostile" => Some(matches!(
            seen_name,
            "treadle-model"
                | "treadle-policy-runtime"
                | "treadle-scheduler"
                | "treadle-transfer"
                | "treadle-wire"
        )),
        // Code shared by two policies of one paper.
        "heddle-allocation" | "heddle-placement" => {
            Some(matches!(seen_name, "treadle-plugin" | "heddle-partition"))
        }
        _ if is_in(package, "plugins") => Some(is_sdk),
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
            // Tests may look at anything.
            if dependency["kind"] == "dev" {
                continue;
            }
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
