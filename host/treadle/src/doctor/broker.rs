//! Checks of the broker.

use super::{Finding, Grade};
use treadle_broker::rabbitmq::{Grade as BrokerGrade, inspect};
use treadle_config::Config;

/// Name of this area.
const AREA: &str = "broker";

/// Findings about the broker.
pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    if !config.broker.is_on() {
        let finding = "no broker is configured: events stay in the journal";
        return vec![Finding::ok(AREA, "configuration", finding)];
    }
    let mut findings = Vec::new();
    for (number, shard) in config.cluster.shards.iter().enumerate() {
        let settings = match config.broker.of_shard(shard, number == 0).settings() {
            Ok(settings) => settings,
            Err(error) => {
                let remedy = "correct `broker.url` and `broker.prefix`";
                let fail = Grade::Fail;
                return vec![Finding::of(
                    AREA,
                    "configuration",
                    fail,
                    error.to_string(),
                    remedy,
                )];
            }
        };
        for check in inspect(&settings).await {
            let grade = match check.grade {
                BrokerGrade::Ok => Grade::Ok,
                BrokerGrade::Warn => Grade::Warn,
                BrokerGrade::Fail => Grade::Fail,
            };
            findings.push(Finding::of(
                AREA,
                check.check,
                grade,
                check.finding,
                check.remedy,
            ));
        }
    }
    findings
}
