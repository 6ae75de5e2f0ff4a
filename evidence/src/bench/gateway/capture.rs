//! What capturing the tokens of training runs costs, beside the same requests without.

use super::load::{Load, Until, chat_body, send};
use super::{Fixture, LARGE_PROMPT_BYTES, PROGRAMS, SMALL_OUTPUT_TOKENS, SMALL_PROMPT_BYTES};
use crate::bench::figures::{Figure, Report, Target};
use crate::bench::server::Server;
use crate::bench::{BenchError, report_progress};
use serde_json::json;
use std::time::Duration;
use treadle_demo::exchange::put;
use treadle_demo::naming::Naming;
use treadle_http::Upstream;

const JOB: &str = "bench";
/// A gateway is started anew this often, with capture off and on in turn.
const ROUNDS: usize = 2;

impl Fixture<'_> {
    /// CPU time of a thousand requests with capture on, beside off.
    pub(super) async fn captures(&self, report: &mut Report) -> Result<(), BenchError> {
        let engine = Server::token_engine().await?;
        let bodies = [
            (
                "small",
                chat_body(SMALL_PROMPT_BYTES, SMALL_OUTPUT_TOKENS, false),
                Some(1.15),
            ),
            (
                "body32k",
                chat_body(LARGE_PROMPT_BYTES, SMALL_OUTPUT_TOKENS, false),
                None,
            ),
            ("sse64", chat_body(SMALL_PROMPT_BYTES, 64, true), None),
        ];
        for (name, body, target) in bodies {
            let mut used = [0.0, 0.0];
            for _ in 0..ROUNDS {
                for (used, capture) in used.iter_mut().zip(["none", "tokens"]) {
                    *used += self.captured(&engine, name, &body, capture).await?;
                }
            }
            let [off, on] = used.map(|cpu_s| cpu_s / ROUNDS as f64);
            let figure = Figure::new(format!("capture_cpu_ratio.{name}"), on / off, "x");
            let figure = figure.reference(format!("{on:.3} s on, {off:.3} s off"));
            report.push(match target {
                Some(target) => figure.target(Target::AtMost(target)),
                None => figure,
            });
        }
        engine.stop().await;
        Ok(())
    }

    async fn captured(
        &self,
        engine: &Server,
        name: &str,
        body: &str,
        capture: &str,
    ) -> Result<f64, BenchError> {
        let name = format!("{name}, capture {capture}");
        report_progress(&format!("gateway: {name} ..."));
        let gateway = Server::gateway(&engine.url, &[]).await?;
        let settings = json!({"group_size": 1, "lag_max": 1_000, "pipeline": 1_000,
            "capture": capture, "rewarded": false});
        let upstream = Upstream::new(Duration::from_secs(5));
        let path = format!("/api/v1/jobs/{JOB}");
        let declared = put(&upstream, &gateway.url, &path, settings.to_string()).await;
        declared.map_err(|cause| BenchError::Requests {
            case: name.clone(),
            count: 1,
            first: cause,
        })?;
        let load = Load::new(PROGRAMS, PROGRAMS, body, &Naming::default()).in_job(JOB);
        self.settle(&gateway.url, &load, &name).await?;
        let before = gateway.family_cpu_s()?;
        let answers = send(&[&gateway.url], &load, Until::Elapsed(self.time)).await;
        let used = gateway.family_cpu_s()? - before;
        gateway.stop().await;
        Ok(used / answers.checked(&name)?.count() as f64 * 1e3)
    }
}
