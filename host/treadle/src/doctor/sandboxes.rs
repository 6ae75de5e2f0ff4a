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

/// Whether a sandbox comes to be, where the configuration has them, and runs a command.
async fn trial(config: &Config) -> Finding {
    const WHAT: &str = "trial";
    match treadle_server::try_sandbox(config).await {
        Ok(took) => {
            let found = format!(
                "a sandbox was made and ran a command, in {:.1} s",
                took.as_secs_f64()
            );
            Finding::ok(AREA, WHAT, found)
        }
        Err(problem) => {
            let problem = format!("no sandbox starts: {problem}");
            let remedy =
                "docs/sandboxes.md has what sandboxes take; `sandboxes.folder` is where they are";
            Finding::of(AREA, WHAT, Grade::Fail, problem, remedy)
        }
    }
}
