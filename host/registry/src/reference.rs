//! The bundled reference policies in Rust. Each can be bound by its name; it is checked and stored
//! on first use.

use std::sync::OnceLock;
use treadle_model::World;
use treadle_policy_runtime::upload_digest;
use treadle_store::PluginHead;

/// Minimum digits of a digest that identify a policy.
const DIGEST_DIGITS_MIN: usize = 8;

/// Name, summary and module of each, sorted by name.
type Brought = (&'static str, &'static str, &'static [u8]);
static BROUGHT: &[Brought] = include!(concat!(env!("OUT_DIR"), "/reference_policies.rs"));

/// A bundled policy.
#[derive(Debug)]
pub(super) struct Reference {
    /// Its head, as if it were stored.
    pub(super) head: PluginHead,
    /// A core module with embedded WIT.
    pub(super) module: &'static [u8],
}

/// The module of one of them; empty for an unknown name, which a test excludes for the default
/// bindings.
pub(super) fn module(name: &str) -> &'static [u8] {
    let found = BROUGHT.iter().find(|brought| brought.0 == name);
    found.map_or(&[], |brought| brought.2)
}

/// All of them. Their digests are computed on first use.
pub(super) fn all() -> &'static [Reference] {
    static ALL: OnceLock<Vec<Reference>> = OnceLock::new();
    ALL.get_or_init(|| BROUGHT.iter().filter_map(reference).collect())
}

/// A bundled policy, by any name that a stored policy can have.
pub fn bundled(policy: &str) -> Option<&'static PluginHead> {
    let mut heads = all().iter().map(|brought| &brought.head);
    heads.find(|head| is_called(head, policy))
}

/// The bundled policies that are not stored.
pub fn unstored(stored: &[PluginHead]) -> impl Iterator<Item = &'static PluginHead> {
    let heads = all().iter().map(|brought| &brought.head);
    heads.filter(|head| !stored.iter().any(|known| known.digest == head.digest))
}

fn reference(&(name, summary, module): &Brought) -> Option<Reference> {
    // A plugin's name consists of its method and its world.
    let (_, world) = name.rsplit_once('-')?;
    let head = PluginHead {
        digest: upload_digest(module),
        world: World::from_name(world)?.as_str().to_owned(),
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        summary: summary.to_owned(),
        size_bytes: module.len() as u64,
        uploaded_at_us: 0,
        signed_by: None,
    };
    Some(Reference { head, module })
}

/// Whether a policy matches: by its digest, a prefix of it, its name, or name@version.
pub(super) fn is_called(head: &PluginHead, policy: &str) -> bool {
    let (name, version) = policy
        .split_once('@')
        .map_or((policy, None), |(n, v)| (n, Some(v)));
    let by_digest = policy.len() >= DIGEST_DIGITS_MIN && head.digest.starts_with(policy);
    by_digest || (head.name == name && version.is_none_or(|v| head.version == v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_policy_runtime::{Limits, PolicyEngine};

    #[test]
    fn each_policy_matches_its_name() {
        let engine = PolicyEngine::new(Limits::default()).unwrap();
        assert_eq!(all().len(), BROUGHT.len(), "each is named after its world");
        for Reference { head, module } in all() {
            let found = engine.inspect(module).unwrap();
            let told = &found.description;
            let is = [&found.digest, &found.world, &told.name, &told.version];
            let said = [&head.digest, &head.world, &head.name, &head.version];
            assert_eq!(is, said);
            assert_eq!(told.summary, head.summary);
        }
    }
}
