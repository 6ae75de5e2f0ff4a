//! Sandboxes: whether this machine, or the cluster, can have them.

use super::{Finding, Grade};
use std::path::Path;
use treadle_config::Config;

/// Name of the area.
const AREA: &str = "sandboxes";

/// Looks at where sandboxes are to be, if there are to be any.
pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    if config.kubernetes.enabled {
        let remedy = "docs/sandboxes.md#on-kubernetes has what a cluster must give";
        return vec![match treadle_server::look_at_cluster(config).await {
            Ok(found) => Finding::ok(AREA, "kubernetes", found),
            Err(missing) => Finding::of(AREA, "kubernetes", Grade::Fail, missing, remedy),
        }];
    }
    if !config.sandboxes.enabled {
        return Vec::new();
    }
    let cgroup = &config.actions.cgroup;
    let cgroup = (!cgroup.is_empty()).then(|| Path::new(cgroup));
    let looks = treadle_server::look(cgroup).into_iter();
    looks
        .map(|look| match look.found {
            Ok(found) => Finding::ok(AREA, look.what, found),
            Err((missing, remedy)) => Finding::of(AREA, look.what, Grade::Fail, missing, remedy),
        })
        .collect()
}
