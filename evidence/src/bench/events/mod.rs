//! `treadle-bench events`: durable events through PostgreSQL and confirmed messages through
//! RabbitMQ, the latter beside what a bare publisher reaches in the same run.

mod messages;
pub(super) mod psql;
mod rows;
mod rows_through_store;

use super::figures::{Figure, Report, Target};
use super::latencies::Latencies;
use super::{BenchError, report_progress};
use clap::Args;
use std::time::Duration;

/// Names the database, as for the tests.
const POSTGRES_VARIABLE: &str = "TREADLE_TEST_POSTGRES_URL";
/// Names the broker, as for the tests.
const AMQP_VARIABLE: &str = "TREADLE_TEST_AMQP_URL";
/// What each share should be at least.
const SHARE: Target = Target::AtLeast(0.7);
/// What the median time to an acknowledgement should be at most.
const ACK_MS: Target = Target::AtMost(5.0);

/// Arguments of `treadle-bench events`.
#[derive(Args, Clone, Debug)]
pub(super) struct EventsArgs {
    /// PostgreSQL, in which a schema is made and removed; `scripts/services.sh start` starts one.
    #[arg(long, env = POSTGRES_VARIABLE, hide_env_values = true, value_name = "URL")]
    postgres: Option<String>,
    /// RabbitMQ, in which an exchange and queues are made and removed.
    #[arg(long, env = AMQP_VARIABLE, hide_env_values = true, value_name = "URL")]
    amqp: Option<String>,
    /// Events of one transaction.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    group: u32,
    /// Events a second while times to the acknowledgement are taken.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    paced_per_s: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rounds that these are cut into; treadle and its reference take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

impl Default for EventsArgs {
    fn default() -> Self {
        let url = |variable| std::env::var(variable).ok().filter(|url| !url.is_empty());
        Self {
            postgres: url(POSTGRES_VARIABLE),
            amqp: url(AMQP_VARIABLE),
            group: 500,
            paced_per_s: 5_000,
            seconds: 10,
            rounds: 5,
        }
    }
}

/// Rates of treadle and of its reference, by rounds.
#[derive(Default)]
struct Comparison {
    own: Vec<f64>,
    reference: Vec<f64>,
}

impl Comparison {
    /// The medians: of treadle, of its reference.
    fn medians(&mut self) -> (f64, f64) {
        (median(&mut self.own), median(&mut self.reference))
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl EventsArgs {
    /// Measures what there is a server for.
    pub(super) async fn run(mut self, quick: bool) -> Result<Report, BenchError> {
        if quick {
            (self.seconds, self.rounds) = (1, 2);
        }
        let mut report = Report::new("events");
        report.setting("group", self.group);
        report.setting("paced_per_s", self.paced_per_s);
        report.setting("seconds", self.seconds);
        report.setting("rounds", self.rounds);
        self.events(&mut report).await?;
        self.messages(&mut report).await?;
        report.note(
            "share_of_bare_publisher divides the medians of rounds in which both took turns. The bare \
             publisher sends the same bodies through the same exchange and queue, with the same \
             number ahead of their confirmations, without headers, from memory; treadle's time \
             includes making messages of events.",
        );
        Ok(report)
    }

    fn round(&self) -> Duration {
        Duration::from_secs(self.seconds) / self.rounds
    }

    async fn events(&self, report: &mut Report) -> Result<(), BenchError> {
        let Some(url) = &self.postgres else {
            absent(
                report,
                POSTGRES_VARIABLE,
                "--postgres",
                &[
                    ("events_per_s", "1/s"),
                    ("commit_to_ack_p50_ms", "ms"),
                    ("commit_to_ack_p99_ms", "ms"),
                ],
            );
            return Ok(());
        };
        let fixture = rows_through_store::Fixture::open(url).await?;
        let measured = self.on_database(&fixture).await;
        // Whatever came of it, nothing stays behind.
        fixture.remove().await;
        let (mut rates, mut acks) = measured?;
        report.push(Figure::new("events_per_s", median(&mut rates), "1/s"));
        let p50 = acks.percentile_ms(0.5);
        report.push(Figure::new("commit_to_ack_p50_ms", p50, "ms").target(ACK_MS));
        let p99 = acks.percentile_ms(0.99);
        report.push(Figure::new("commit_to_ack_p99_ms", p99, "ms"));
        Ok(())
    }

    async fn on_database(
        &self,
        fixture: &rows_through_store::Fixture,
    ) -> Result<(Vec<f64>, Latencies), BenchError> {
        let group = self.group as usize;
        let mut rates = Vec::new();
        // The first round warms caches and connections up.
        for round in 0..=self.rounds {
            report_progress(&format!("events: round {round} of {} ...", self.rounds));
            let rate = fixture.throughput(group, self.round()).await?;
            if round > 0 {
                rates.push(rate);
            }
        }
        report_progress("events: times to the acknowledgement ...");
        let time = Duration::from_secs(self.seconds);
        let acks = fixture.acknowledgements(self.paced_per_s, time).await?;
        Ok((rates, acks))
    }

    async fn messages(&self, report: &mut Report) -> Result<(), BenchError> {
        let Some(url) = &self.amqp else {
            absent(
                report,
                AMQP_VARIABLE,
                "--amqp",
                &[
                    ("messages_per_s", "1/s"),
                    ("bare_messages_per_s", "1/s"),
                    ("share_of_bare_publisher", "ratio"),
                ],
            );
            return Ok(());
        };
        let fixture = messages::Fixture::open(url).await?;
        let mut comparison = Comparison::default();
        let mut measured = Ok(());
        for round in 0..=self.rounds {
            report_progress(&format!("messages: round {round} of {} ...", self.rounds));
            match fixture.round(self.round()).await {
                Ok((own, theirs)) if round > 0 => {
                    comparison.own.push(own);
                    comparison.reference.push(theirs);
                }
                Ok(_) => {}
                Err(error) => {
                    measured = Err(error);
                    break;
                }
            }
        }
        fixture.remove().await;
        measured?;
        let (own, reference) = comparison.medians();
        report.push(Figure::new("messages_per_s", own, "1/s"));
        report.push(Figure::new("bare_messages_per_s", reference, "1/s"));
        report.push(Figure::new("share_of_bare_publisher", own / reference, "ratio").target(SHARE));
        Ok(())
    }
}

/// Figures for which there is no server.
fn absent(report: &mut Report, variable: &str, flag: &str, figures: &[(&str, &'static str)]) {
    for (name, unit) in figures {
        let reason = format!(
            "no server is named; give {flag}, or eval \"$(scripts/services.sh start)\" for {variable}"
        );
        report.push(Figure::absent(*name, unit, reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_each_side() {
        let mut comparison = Comparison {
            own: vec![3.0, 1.0, 2.0],
            reference: vec![10.0],
        };
        assert_eq!(comparison.medians(), (2.0, 10.0));
    }

    #[tokio::test]
    async fn without_servers_all_figures_are_absent_with_a_reason() {
        let args = EventsArgs {
            postgres: None,
            amqp: None,
            ..EventsArgs::default()
        };
        let report = args.run(true).await.expect("a report").to_json();
        for figure in ["events_per_s", "share_of_bare_publisher"] {
            assert!(report["figures"][figure]["value"].is_null());
            assert!(report["figures"][figure]["reason"].is_string());
        }
    }
}
