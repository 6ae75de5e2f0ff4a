//! Sandboxes: whether this machine can have them.

use super::{Finding, Grade};
use std::path::Path;
use treadle_config::Config;

/// Name of the area.
const AREA: &str = "sandboxes";

/// Looks at the machine, if there are to be sandboxes.
pub(super) fn examine(config: &Config) -> Vec<Finding> {
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
