//! Resources of nodes: each node's cores and memory are separate resources, named after its mark.

use super::frames::{Hello, ID_CHARS, MARK_CHARS};
use treadle_config::{CPU, MEMORY};
use treadle_core::actions::{Demand, Grant, Resource, Supply};

/// Separates the name of a resource from the mark of its node.
const AT: char = '@';

/// A node's resources.
pub(super) fn of(hello: &Hello) -> Vec<Resource> {
    let units = |name: &str, total: u64| Resource {
        name: at(name, &hello.mark),
        supply: Supply::Units { total },
    };
    vec![units(CPU, hello.cores), units(MEMORY, hello.memory_mib)]
}

fn at(name: &str, mark: &str) -> Box<str> {
    format!("{name}{AT}{mark}").into()
}

/// Splits a node's resource into its own name and the node's mark.
fn split(resource: &str) -> Option<(&str, &str)> {
    let (name, mark) = resource.rsplit_once(AT)?;
    [CPU, MEMORY].contains(&name).then_some((name, mark))
}

/// The name of a resource without the node's mark.
pub fn own_name(resource: &str) -> &str {
    split(resource).map_or(resource, |(name, _)| name)
}

/// The mark of a resource's node.
pub(super) fn mark(resource: &str) -> Option<&str> {
    split(resource).map(|(_, mark)| mark)
}

/// Whether a resource belongs to a node.
pub(crate) fn is_of_node(resource: &str) -> bool {
    mark(resource).is_some()
}

/// The node of an action's resources.
pub fn node_of(grants: &[Grant]) -> Option<&str> {
    grants.iter().find_map(|grant| mark(&grant.resource))
}

/// Grants of a node, by the node's own names.
pub(super) fn as_its_own(mut grants: Vec<Grant>) -> Vec<Grant> {
    for grant in &mut grants {
        if let Some((name, _)) = split(&grant.resource) {
            grant.resource = name.into();
        }
    }
    grants
}

/// Makes an action use a node's resources instead of the daemon's machine's.
pub(crate) fn draw_from(demands: &mut [Demand], mark: &str) {
    for demand in demands {
        if [CPU, MEMORY].contains(&&*demand.resource) {
            demand.resource = at(&demand.resource, mark);
        }
    }
}

/// The mark in a sandbox's name, if it may have one.
pub fn mark_of_sandbox(id: &str) -> Option<&str> {
    let is_name = id.len() == ID_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then(|| &id[ID_CHARS - MARK_CHARS..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_has_is_named_after_it_outside_and_not_inside() {
        let mut demands = [CPU, MEMORY, "search"].map(|resource| Demand {
            resource: resource.into(),
            options: vec![1],
        });
        draw_from(&mut demands, "abcde");
        let names = demands.map(|demand| demand.resource);
        assert_eq!(
            names.each_ref().map(AsRef::as_ref),
            ["cpu@abcde", "memory@abcde", "search"]
        );
        let grants = names.into_iter().map(|resource| Grant {
            resource,
            units: 1,
            chunk: None,
        });
        let grants: Vec<_> = grants.collect();
        assert_eq!(node_of(&grants), Some("abcde"));
        assert_eq!(node_of(&grants[2..]), None);
        let own = as_its_own(grants);
        assert_eq!((&*own[0].resource, &*own[2].resource), (CPU, "search"));
    }

    #[test]
    fn a_sandbox_is_named_after_its_node() {
        assert_eq!(mark_of_sandbox("sabcdefghijklmnopqrst"), Some("pqrst"));
        for other in ["", "x", "sabcdefghijklmnopqrs/", "sabcdefghijklmnopqrstu"] {
            assert_eq!(mark_of_sandbox(other), None, "{other}");
        }
    }
}
