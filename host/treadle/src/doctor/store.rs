//! Checks of each shard's database.

use super::{Finding, Grade};
use treadle_config::Config;
use treadle_store::{
    LeaderRow, Location, Options, examine as examine_store, open_with, schema_status,
};

/// Name of this area.
const AREA: &str = "store";

/// Names and locations of the shards' stores.
pub(super) fn locations(config: &Config) -> Vec<(String, Location)> {
    let place = |(number, name): (usize, &String)| {
        let location = config.store.of_shard(name, number == 0).location();
        (name.clone(), location)
    };
    config
        .cluster
        .shards
        .iter()
        .enumerate()
        .map(place)
        .collect()
}

/// The leader on a store.
pub(super) enum Led {
    /// The current leader, or the last one, which ended without resigning.
    By(LeaderRow),
    /// No leader, or there is no store.
    Unled,
    /// The store can't be read, or not by this build.
    Unknown,
}

/// Looks up the leader on a store, and changes nothing.
pub(super) async fn led(location: &Location) -> Led {
    let Ok(status) = schema_status(location).await else {
        return Led::Unknown;
    };
    if status.applied.is_empty() {
        return Led::Unled;
    }
    if !status.fits() {
        return Led::Unknown;
    }
    let options = Options {
        migrate: false,
        ..Options::default()
    };
    let Ok(store) = open_with(location, &options).await else {
        return Led::Unknown;
    };
    let leader = store.leader().await;
    let _ = store.close().await;
    match leader {
        Ok(Some(leader)) => Led::By(leader),
        Ok(None) => Led::Unled,
        Err(_) => Led::Unknown,
    }
}

/// The store's own checks, and the skew of its clock.
pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let locations = locations(config);
    let is_one = locations.len() == 1;
    for (shard, location) in locations {
        for found in examine_store(&location).await {
            let check = if is_one {
                found.check.to_owned()
            } else {
                format!("{} of shard {shard}", found.check)
            };
            let grade = match found.grade {
                treadle_store::Grade::Ok => Grade::Ok,
                treadle_store::Grade::Warn => Grade::Warn,
                treadle_store::Grade::Fail => Grade::Fail,
            };
            findings.push(Finding::of(AREA, check, grade, found.finding, found.remedy));
        }
    }
    findings
}
