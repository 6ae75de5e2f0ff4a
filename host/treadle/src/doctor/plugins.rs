//! Checks of the bound policies: whether each is stored and can be loaded.

use super::store::locations;
use super::{Finding, Grade};
use std::collections::BTreeSet;
use std::sync::Arc;
use treadle_config::Config;
use treadle_policy_runtime::PolicyEngine;
use treadle_registry::NATIVE;
use treadle_store::{BindingRow, Location, Options, Store, open_with, schema_status};

/// Name of this area.
const AREA: &str = "plugins";
/// Maximum number of policies that are compiled.
const COMPILED_MAX: usize = 64;

/// Compiles the bound policies, in this process only.
pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let engine = match PolicyEngine::new(config.plugins.limits()) {
        Ok(engine) => Arc::new(engine),
        Err(error) => {
            let remedy = "correct `[plugins]` of the configuration";
            return vec![Finding::of(
                AREA,
                "runtime",
                Grade::Fail,
                error.to_string(),
                remedy,
            )];
        }
    };
    let mut findings = vec![Finding::ok(AREA, "runtime", "starts")];
    for (_, location) in locations(config) {
        match bindings_at(&location).await {
            Ok(Some((store, bindings))) => {
                findings.extend(of_store(&*store, &bindings, &engine).await);
                let _ = store.close().await;
            }
            // Errors of the store are reported elsewhere.
            Ok(None) => {}
            Err(error) => {
                let remedy = "see the findings of the store";
                let warn = Grade::Warn;
                findings.push(Finding::of(
                    AREA,
                    "bindings",
                    warn,
                    error.to_string(),
                    remedy,
                ));
            }
        }
    }
    findings
}

type Bound = (Arc<dyn Store>, Vec<BindingRow>);

/// The bindings of an existing store with this schema; opening another store would change it.
async fn bindings_at(location: &Location) -> Result<Option<Bound>, treadle_store::StoreError> {
    if *location == Location::Memory {
        return Ok(None);
    }
    if !schema_status(location)
        .await
        .is_ok_and(|status| status.fits())
    {
        return Ok(None);
    }
    let options = Options {
        migrate: false,
        ..Options::default()
    };
    let store = open_with(location, &options).await?;
    let bindings = store.bindings().await?;
    Ok(Some((store, bindings)))
}

async fn of_store(
    store: &dyn Store,
    bindings: &[BindingRow],
    engine: &Arc<PolicyEngine>,
) -> Vec<Finding> {
    if bindings.is_empty() {
        return vec![Finding::ok(
            AREA,
            "bindings",
            "none: the built-in policies decide",
        )];
    }
    let digests: BTreeSet<&str> = bindings
        .iter()
        .map(|binding| binding.digest.as_str())
        .filter(|digest| *digest != NATIVE)
        .collect();
    let mut findings = Vec::new();
    for digest in digests.into_iter().take(COMPILED_MAX) {
        let users = bindings.iter().filter(|binding| binding.digest == digest);
        let users: Vec<String> = users.map(|b| format!("{} of {}", b.world, b.job)).collect();
        let check = format!("{digest:.12} ({})", users.join(", "));
        findings.push(match store.plugin(digest).await {
            Err(error) => {
                let remedy = "see the findings of the store";
                Finding::of(AREA, check, Grade::Fail, error.to_string(), remedy)
            }
            Ok(None) => Finding::of(
                AREA,
                check,
                Grade::Fail,
                "it is bound, but not stored",
                "upload it again with `treadle plugin push`, or bind another",
            ),
            Ok(Some(plugin)) => {
                let name = format!("{}@{}", plugin.head.name, plugin.head.version);
                let engine = engine.clone();
                let compiled = tokio::task::spawn_blocking(move || {
                    engine
                        .compile(&plugin.component)
                        .map(drop)
                        .map_err(|error| error.to_string())
                });
                match compiled
                    .await
                    .unwrap_or_else(|error| Err(error.to_string()))
                {
                    Ok(()) => Finding::ok(AREA, check, format!("{name} loads")),
                    Err(cause) => Finding::of(
                        AREA,
                        check,
                        Grade::Fail,
                        format!("{name} can't be loaded: {cause}"),
                        "build it against this version's contract and push it again, or roll its \
                         binding back",
                    ),
                }
            }
        });
    }
    findings
}
