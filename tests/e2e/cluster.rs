//! Several daemons on one store: one schedules, all take requests in.

mod gateways;
mod shards;
mod takeover;

use treadle_tests::support::process::run_if_asked;

/// The test that is a daemon when a test of this module starts it.
pub(crate) const DAEMON: &str = "cluster::daemon_of_the_other_tests";

#[test]
fn daemon_of_the_other_tests() {
    run_if_asked();
}
