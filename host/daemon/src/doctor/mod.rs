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
mod store;

pub(crate) use finding::{Finding, Grade};

use crate::config::Config;
use crate::gateway::Upstream;
use std::time::Duration;

/// Time for a connection to come about.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// Looks at everything that this configuration names, and at the daemon at a URL.
pub(crate) async fn examine(config: &Config, daemon_url: &str) -> Vec<Finding> {
    let upstream = Upstream::new(CONNECT_PATIENCE);
    let (stores, broker, engines, daemons) = tokio::join!(
        store::examine(config),
        broker::examine(config),
        engines::examine(config, &upstream),
        daemons::examine(config, &upstream, daemon_url),
    );
    let mut findings = stores;
    findings.extend(broker);
    findings.extend(engines);
    // Compiling takes the whole machine, and would make an engine look slow.
    findings.extend(plugins::examine(config).await);
    findings.extend(daemons);
    findings.extend(disk::examine(config));
    findings.extend(kv::examine(config));
    findings
}
