//! Checks of the configured engines: reachability, models and response time.

use super::{Finding, Grade};
use futures_util::future::join_all;
use http_body_util::{BodyExt, Limited};
use std::time::{Duration, Instant};
use treadle_config::{Config, Endpoint};
use treadle_engines::{Declared, Detected, read_engine};
use treadle_http::Upstream;
use treadle_wire::models_of;

/// Name of this area.
const AREA: &str = "engines";
/// Responses that need no computation should be faster.
const SLOW: Duration = Duration::from_millis(500);
/// Timeout of the list of models.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of the list of models.
const MODELS_BYTES_MAX: usize = 4 << 20;

/// Checks all engines concurrently. Warns if none is configured and the daemon has none either.
pub(super) async fn examine(
    config: &Config,
    upstream: &Upstream,
    daemon_has_some: bool,
) -> Vec<Finding> {
    let endpoints = &config.engines.endpoints;
    if endpoints.is_empty() && !daemon_has_some {
        let finding = "no engine is configured";
        let remedy = "name them in `engines.endpoints`, or add them with `treadle workers add URL`";
        return vec![Finding::of(
            AREA,
            "configuration",
            Grade::Warn,
            finding,
            remedy,
        )];
    }
    let asked = endpoints
        .iter()
        .map(|endpoint| one(config, upstream, endpoint));
    join_all(asked).await.into_iter().flatten().collect()
}

async fn one(config: &Config, upstream: &Upstream, endpoint: &Endpoint) -> Vec<Finding> {
    let url = endpoint.url.as_str();
    let declared = Declared {
        kind: config.engines.kind_of(endpoint),
        capacity_tokens: endpoint.capacity_tokens,
        ..Declared::default()
    };
    let Detected { kind, capacity } = match read_engine(upstream, url, &declared).await {
        Ok(read) => read,
        Err(cause) => {
            let remedy = "start the engine, or correct its URL in `engines.endpoints`";
            return vec![Finding::of(AREA, url, Grade::Fail, cause, remedy)];
        }
    };
    let began = Instant::now();
    let models = models(upstream, url).await;
    let took = began.elapsed();
    let said = format!(
        "{}, answers in {:.0} ms",
        kind.as_str(),
        took.as_secs_f64() * 1e3
    );
    let mut findings = vec![match (models, took > SLOW) {
        (Err(cause), _) => {
            let remedy = "check the engine's log: it answers, but lists no models";
            Finding::of(AREA, url, Grade::Warn, format!("{said}; {cause}"), remedy)
        }
        (Ok(models), true) => {
            let remedy = "check the engine's load and the network to it";
            Finding::of(
                AREA,
                url,
                Grade::Warn,
                format!("{said}; serves {models}"),
                remedy,
            )
        }
        (Ok(models), false) => Finding::ok(AREA, url, format!("{said}; serves {models}")),
    }];
    findings.push(match capacity.tokens {
        Some(tokens) => Finding::ok(AREA, format!("memory of {url}"), format!("{tokens} tokens")),
        None => Finding::of(
            AREA,
            format!("memory of {url}"),
            Grade::Warn,
            "it does not report how many tokens fit in its cache",
            "set `capacity_tokens` of its entry in `engines.endpoints`; without it, nothing is held \
             back from it",
        ),
    });
    findings
}

/// Names of the models that an engine serves.
async fn models(upstream: &Upstream, url: &str) -> Result<String, String> {
    let page = async {
        let response = upstream.get(url.trim_end_matches('/'), "/v1/models").await;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("/v1/models returned {status}"));
        }
        let body = Limited::new(response.into_body(), MODELS_BYTES_MAX)
            .collect()
            .await;
        Ok(body.map_err(|error| error.to_string())?.to_bytes())
    };
    let page = tokio::time::timeout(TIMEOUT, page).await;
    let page = page.map_err(|_| format!("no list of models within {} s", TIMEOUT.as_secs()))??;
    let names: Vec<String> = models_of(&page).into_iter().map(|model| model.id).collect();
    if names.is_empty() {
        return Err("its list of models is empty".to_owned());
    }
    Ok(names.join(", "))
}
