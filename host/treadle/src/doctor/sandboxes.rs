//! Checks of sandboxes: whether this machine, or the cluster, can run them.

use super::{Finding, Grade};
use std::path::Path;
use treadle_config::Config;

/// Name of this area.
const AREA: &str = "sandboxes";

/// Checks the sandboxes' backend, if sandboxes are configured.
pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    if config.kubernetes.enabled {
        let remedy = "docs/sandboxes.md#on-kubernetes lists the cluster's requirements";
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
    let mut findings: Vec<Finding> = looks
        .map(|look| match look.found {
            Ok(found) => Finding::ok(AREA, look.what, found),
            Err((missing, remedy)) => Finding::of(AREA, look.what, Grade::Fail, missing, remedy),
        })
        .collect();
    if findings.iter().all(|finding| finding.grade == Grade::Ok) {
        findings.push(trial(config).await);
    }
    findings
}

/// Creates a sandbox and runs a command in it.
async fn trial(config: &Config) -> Finding {
    const WHAT: &str = "trial";
    match treadle_server::try_sandbox(config).await {
        Ok(took) => {
            let found = format!(
                "a sandbox was created and ran a command in {:.1} s",
                took.as_secs_f64()
            );
            Finding::ok(AREA, WHAT, found)
        }
        Err(problem) => {
            let problem = format!("no sandbox could be started: {problem}");
            let remedy = "see docs/sandboxes.md for the requirements, and check `sandboxes.folder`";
            Finding::of(AREA, WHAT, Grade::Fail, problem, remedy)
        }
    }
}
