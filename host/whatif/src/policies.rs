//! The policies of sets: looked up when a run is requested, read when its turn comes.

use super::WhatIfError;
use std::collections::BTreeMap;
use std::sync::Arc;
use treadle_model::Tenant;
use treadle_model::{ClientName, World};
use treadle_policy::evaluator::{EVERYONE, Role};
use treadle_registry::{NATIVE, default_eviction_module, is_built_in};
use treadle_store::{BindingRow, Bindings, Plugins};

/// Worlds whose policies a replay calls.
pub const WORLDS: [World; 3] = [World::Eviction, World::Priority, World::Placement];

/// A stored policy that was looked up but not read yet, as many runs may be queued.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyFound {
    /// The name in the request.
    pub asked: String,
    /// Its digest.
    pub digest: String,
    /// Its configuration as JSON.
    pub config: String,
    /// Whether it is the default, called unless `kv.retention` is on.
    pub answers_anyway: bool,
}

/// A policy with its bytes.
#[derive(Clone)]
pub struct PolicyBytes {
    /// The name in the request.
    pub asked: String,
    /// A component, or a core module with embedded WIT; shared by all sets that use it.
    pub bytes: Arc<[u8]>,
    /// Its configuration as JSON.
    pub config: String,
    /// Whether it is the default, called unless `kv.retention` is on.
    pub answers_anyway: bool,
}

/// The stored policies that are active for a job, or for its whole tenant.
pub async fn bound(
    store: &dyn Bindings,
    tenant: &Tenant,
    job: Option<&ClientName>,
) -> Result<Vec<PolicyFound>, WhatIfError> {
    let own = job.map(|job| tenant.inside(job).into_owned());
    let scopes = own
        .into_iter()
        .chain([tenant.inside(&ClientName::literal(EVERYONE)).into_owned()]);
    let scopes: Vec<String> = scopes.chain([EVERYONE.to_owned()]).collect();
    let rows = store.bindings().await?;
    Ok(bound_of(&rows, &scopes))
}

/// For each world the binding of the first scope that has one. Built-in defaults are left out,
/// except that of eviction: `kv.retention` selects another default unless it is bound.
fn bound_of(rows: &[BindingRow], scopes: &[String]) -> Vec<PolicyFound> {
    let active = |world: World, scope: &String| {
        let mut rows = rows.iter();
        rows.find(|row| {
            row.job == *scope && row.world == world.as_str() && row.role == Role::Active.as_str()
        })
    };
    let worlds = WORLDS.iter();
    let held = worlds.filter_map(|world| scopes.iter().find_map(|scope| active(*world, scope)));
    let of_eviction = |row: &BindingRow| row.world == World::Eviction.as_str();
    let held = held.filter(|row| !is_built_in(&row.digest) || of_eviction(row));
    let found = |row: &BindingRow| PolicyFound {
        asked: format!("{} (bound)", row.digest.get(..12).unwrap_or(&row.digest)),
        digest: row.digest.clone(),
        config: if row.digest == NATIVE {
            "{}".to_owned()
        } else {
            row.config.clone()
        },
        answers_anyway: row.digest == NATIVE
            || is_built_in(&row.digest) && is_empty_object(&row.config),
    };
    held.map(found).collect()
}

fn is_empty_object(json: &str) -> bool {
    let settings = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(json);
    settings.is_ok_and(|settings| settings.is_empty())
}

/// Reads the policies, each once even if several sets use it.
pub async fn read(
    store: &dyn Plugins,
    found: &[Vec<PolicyFound>],
) -> Result<Vec<Vec<PolicyBytes>>, WhatIfError> {
    let mut read: BTreeMap<&str, Arc<[u8]>> = BTreeMap::new();
    for policy in found.iter().flatten() {
        if read.contains_key(policy.digest.as_str()) {
            continue;
        }
        if is_built_in(&policy.digest) {
            read.insert(&policy.digest, default_eviction_module().into());
            continue;
        }
        let row = store.plugin(&policy.digest).await?;
        let row = row.ok_or_else(|| WhatIfError::Policy {
            policy: policy.asked.clone(),
            cause: "it is no longer stored; push it again".to_owned(),
        })?;
        read.insert(&policy.digest, row.component.into());
    }
    let bytes = |policy: &PolicyFound| PolicyBytes {
        asked: policy.asked.clone(),
        bytes: read[policy.digest.as_str()].clone(),
        config: policy.config.clone(),
        answers_anyway: policy.answers_anyway,
    };
    let sets = found.iter();
    Ok(sets.map(|set| set.iter().map(bytes).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_store::{Location, PluginHead, PluginRow, open};

    fn row(job: &str, world: World, role: &str, digest: &str) -> BindingRow {
        BindingRow {
            job: job.into(),
            world: world.as_str().into(),
            role: role.into(),
            digest: digest.into(),
            config: format!("{{\"of\": \"{job}\"}}"),
            share_ppm: 0,
            since_us: 0,
        }
    }

    #[test]
    fn the_nearest_binding_of_each_world_holds() {
        let tenant = Tenant::new("acme");
        let names = ["math", "*"].map(ClientName::literal);
        let [own, all] = names.each_ref().map(|name| tenant.inside(name));
        let reference = treadle_policy_runtime::upload_digest(default_eviction_module());
        let rows = [
            row("*", World::Eviction, "active", &reference),
            row("*", World::Priority, "active", "everyones"),
            row(&all, World::Priority, "active", "tenants"),
            row(&own, World::Priority, "canary", "tried"),
            row(&own, World::Placement, "active", NATIVE),
            row("*", World::Placement, "active", "everyones"),
            row("*", World::Reward, "active", "unasked"),
        ];
        let found = |scopes: &[&str]| {
            let scopes: Vec<String> = scopes.iter().map(|&scope| scope.to_owned()).collect();
            let found = bound_of(&rows, &scopes);
            found
                .into_iter()
                .map(|found| found.digest)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&[&own, &all, "*"]), [&reference, "tenants"]);
        assert_eq!(found(&[&all, "*"]), [&reference, "tenants", "everyones"]);
        assert_eq!(found(&["*"]), [&reference, "everyones", "everyones"]);
        let config = bound_of(&rows, &["*".to_owned()]).remove(1).config;
        assert_eq!(config, "{\"of\": \"*\"}");
    }

    #[tokio::test]
    async fn what_answers_anyway_is_known_as_such() {
        let reference = treadle_policy_runtime::upload_digest(default_eviction_module());
        let anyway = |digest: &str, config: &str| {
            let row = BindingRow {
                config: config.to_owned(),
                ..row("*", World::Eviction, "active", digest)
            };
            bound_of(&[row], &["*".to_owned()]).remove(0)
        };
        assert!(anyway(NATIVE, "").answers_anyway);
        assert!(anyway(&reference, "{}").answers_anyway);
        assert!(!anyway(&reference, r#"{"profile": "paper"}"#).answers_anyway);
        assert!(!anyway("another", "{}").answers_anyway);
        // It need not be stored.
        let store = open(&Location::Memory).await.unwrap();
        let native = read(&*store, &[vec![anyway(NATIVE, "")]]).await.unwrap();
        assert_eq!(&*native[0][0].bytes, default_eviction_module());
        assert_eq!(native[0][0].config, "{}");
    }

    #[tokio::test]
    async fn a_policy_is_read_once_for_all_sets() {
        let store = open(&Location::Memory).await.unwrap();
        let head = PluginHead {
            digest: "d1".into(),
            name: "p".into(),
            version: "1.0.0".into(),
            world: World::Eviction.as_str().into(),
            summary: String::new(),
            size_bytes: 3,
            uploaded_at_us: 1,
            signed_by: None,
        };
        let plugin = PluginRow {
            head,
            component: vec![1, 2, 3],
        };
        store.put_plugin(&plugin).await.unwrap();
        let found = |digest: &str| PolicyFound {
            asked: "p".into(),
            digest: digest.into(),
            config: "{}".into(),
            answers_anyway: false,
        };
        let sets = [vec![found("d1")], Vec::new(), vec![found("d1")]];
        let bytes = read(&*store, &sets).await.unwrap();
        assert_eq!(bytes.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
        assert!(Arc::ptr_eq(&bytes[0][0].bytes, &bytes[2][0].bytes));
        let gone = read(&*store, &[vec![found("d2")]]).await;
        assert!(gone.err().unwrap().to_string().contains("no longer stored"));
    }
}
