//! `treadle doctor`: checks everything that a daemon depends on, changes nothing, and prints
//! remedies.

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

/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The findings.
pub(crate) struct Report {
    /// Which daemon runs this configuration.
    pub(crate) run_by: RunBy,
    /// Findings about the daemon.
    pub(crate) daemon: Vec<Finding>,
    /// Findings about what the configuration names.
    pub(crate) configuration: Vec<Finding>,
}

/// Checks everything that the configuration names, and the daemon at a URL, given its reports about
/// itself.
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
    // Compiling uses the whole machine, and would make engines look slow.
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
