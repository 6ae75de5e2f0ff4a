//! `treadle doctor`: checks everything that a daemon works with, leaves nothing changed, and prints
//! what to do.

mod broker;
mod daemons;
mod disk;
mod engines;
mod finding;
mod http_date;
mod kv;
mod plugins;
mod running;
mod sandboxes;
mod store;

pub(crate) use finding::{Finding, Grade};
pub(crate) use running::{DaemonReport, RunBy};

use std::time::Duration;
use treadle_config::Config;
use treadle_http::Upstream;
use treadle_trust::{Connector, Targets};

/// Time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What was found.
pub(crate) struct Report {
    /// Which daemon runs the configuration.
    pub(crate) run_by: RunBy,
    /// About the daemon that was examined.
    pub(crate) daemon: Vec<Finding>,
    /// About what the configuration names.
    pub(crate) configuration: Vec<Finding>,
}

/// Checks everything that this configuration names, and the daemon at a URL, which has reported
/// this about itself.
pub(crate) async fn examine(
    config: &Config,
    daemon_url: &str,
    daemon_report: &DaemonReport,
) -> Report {
    let connector = Connector::new(Targets::all(), config.tls.trust(), CONNECT_TIMEOUT);
    let upstream = Upstream::over(connector);
    let (stores, broker, engines, daemons, (run_by, running)) = tokio::join!(
        store::examine(config),
        broker::examine(config),
        engines::examine(config, &upstream, daemon_report.has_engines()),
        daemons::examine(config, &upstream, daemon_url),
        daemon_report.examine(config, daemon_url),
    );
    let mut daemon = daemons;
    daemon.extend(running);
    let mut configuration = stores;
    configuration.extend(broker);
    configuration.extend(engines);
    // Compiling takes the whole machine, and would make an engine look slow.
    configuration.extend(plugins::examine(config).await);
    configuration.extend(disk::examine(config));
    configuration.extend(kv::examine(config));
    configuration.extend(sandboxes::examine(config).await);
    Report {
        run_by,
        daemon,
        configuration,
    }
}
