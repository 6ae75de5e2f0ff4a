//! `treadle doctor`: looks at everything that a daemon works with, changes nothing, and says what
//! to do.

mod broker;
mod daemons;
mod disk;
mod engines;
mod finding;
mod http_date;
mod kv;
mod plugins;
mod running;
mod store;

pub(crate) use finding::{Finding, Grade};
pub(crate) use running::{RunBy, Said};

use std::time::Duration;
use treadle_config::Config;
use treadle_http::Upstream;

/// Time for a connection to come about.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// What was found.
pub(crate) struct Report {
    /// Who runs the configuration.
    pub(crate) run_by: RunBy,
    /// About the daemon that was examined.
    pub(crate) daemon: Vec<Finding>,
    /// About what the configuration names.
    pub(crate) configuration: Vec<Finding>,
}

/// Looks at everything that this configuration names, and at the daemon at a URL, which has said
/// this of itself.
pub(crate) async fn examine(config: &Config, daemon_url: &str, said: &Said) -> Report {
    let upstream = Upstream::new(CONNECT_PATIENCE);
    let (stores, broker, engines, daemons, (run_by, running)) = tokio::join!(
        store::examine(config),
        broker::examine(config),
        engines::examine(config, &upstream, said.has_engines()),
        daemons::examine(config, &upstream, daemon_url),
        said.examine(config, daemon_url),
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
    Report {
        run_by,
        daemon,
        configuration,
    }
}
