//! The configuration: one struct per concern, one file each.
//!
//! A value comes from, in rising order, the default, the file, an environment variable
//! `TREADLE_SECTION__KEY`, and `--set section.key=value`. Unknown keys and invalid values abort
//! startup with an error that names where they were written and what to write instead.

mod actions;
mod auth;
mod broker;
mod cluster;
mod core_config;
mod engines;
mod error;
mod kubernetes;
mod kv;
mod layers;
mod logging;
mod metrics;
mod nearest;
mod nodes;
mod payloads;
mod plugins;
mod prediction;
mod reference;
mod rollout;
mod sandboxes;
mod scheduler;
mod section;
mod server;
mod store;
mod tls;
mod traces;
mod training;
mod weights;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use actions::{ActionsSection, CPU, GPU, MEMORY, Machine, REQUESTS};
pub use auth::{AnonymousScope, AuthConfig, OidcConfig};
pub use broker::BrokerConfig;
pub use cluster::{ClusterConfig, Role};
pub use core_config::out_of_bounds;
pub use engines::{Endpoint, EngineChoice, EnginesConfig, RelayPort};
pub use error::{ConfigError, Origin};
pub use kubernetes::KubernetesSection;
pub use kv::KvSection;
pub use logging::{LogFormat, LoggingConfig};
pub use metrics::MetricsConfig;
pub use nodes::NodesSection;
pub use payloads::{Keep, PayloadsConfig};
pub use plugins::PluginsConfig;
pub use prediction::PredictionConfig;
pub use reference::reference_markdown;
pub use rollout::RolloutSection;
pub use sandboxes::SandboxesSection;
pub use scheduler::SchedulerConfig;
pub use server::ServerConfig;
pub use store::StoreConfig;
pub use tls::TlsConfig;
pub use traces::TracesConfig;
pub use training::TrainingConfig;
pub use treadle_trust::Secret;
pub use weights::WeightsSection;

use layers::Layers;
use section::Section;
use treadle_trust::{base_url, url_remedy, written};

/// All sections, in the order of the reference.
const SECTIONS: &[Section] = &[
    ServerConfig::SECTION,
    TlsConfig::SECTION,
    EnginesConfig::SECTION,
    SchedulerConfig::SECTION,
    RolloutSection::SECTION,
    KvSection::SECTION,
    PredictionConfig::SECTION,
    ActionsSection::SECTION,
    SandboxesSection::SECTION,
    KubernetesSection::SECTION,
    NodesSection::SECTION,
    StoreConfig::SECTION,
    BrokerConfig::SECTION,
    PayloadsConfig::SECTION,
    TrainingConfig::SECTION,
    WeightsSection::SECTION,
    ClusterConfig::SECTION,
    PluginsConfig::SECTION,
    AuthConfig::SECTION,
    OidcConfig::SECTION,
    MetricsConfig::SECTION,
    LoggingConfig::SECTION,
    TracesConfig::SECTION,
];

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The port that clients talk to.
    pub server: ServerConfig,
    /// TLS of the daemon's ports, and of the connections that it opens.
    pub tls: TlsConfig,
    /// The inference engines to serve programs with.
    pub engines: EnginesConfig,
    /// When and where each program runs.
    pub scheduler: SchedulerConfig,
    /// How priority policies gather, place and rank programs.
    pub rollout: RolloutSection,
    /// KV caches while tools run.
    pub kv: KvSection,
    /// An external prediction service, instead of a plugin.
    pub prediction: PredictionConfig,
    /// Actions that treadle runs.
    pub actions: ActionsSection,
    /// Isolated environments for programs' commands.
    pub sandboxes: SandboxesSection,
    /// Sandboxes as pods of a cluster.
    pub kubernetes: KubernetesSection,
    /// Other machines that run sandboxes for this daemon.
    pub nodes: NodesSection,
    /// Where state lives and how long it stays.
    pub store: StoreConfig,
    /// The broker that events are published to and commands are consumed from.
    pub broker: BrokerConfig,
    /// Requests and answers that are kept whole.
    pub payloads: PayloadsConfig,
    /// Training runs.
    pub training: TrainingConfig,
    /// The store of weights.
    pub weights: WeightsSection,
    /// Several daemons on one store.
    pub cluster: ClusterConfig,
    /// Limits on policies.
    pub plugins: PluginsConfig,
    /// Authentication and authorisation.
    pub auth: AuthConfig,
    /// The identity provider whose tokens are accepted in addition to treadle's own.
    pub oidc: OidcConfig,
    /// Metrics for Prometheus.
    pub metrics: MetricsConfig,
    /// Logging to standard error.
    pub logging: LoggingConfig,
    /// Traces of steps for OpenTelemetry.
    pub traces: TracesConfig,
    /// Files that were read, including those of secrets.
    #[serde(skip)]
    pub files: Vec<PathBuf>,
}

impl Config {
    /// Loads the configuration.
    ///
    /// `environment` is the output of `std::env::vars`; only names that start with `TREADLE_` and
    /// contain a double underscore are used. `sets` are the arguments of `--set`.
    ///
    /// # Errors
    /// The first invalid value, with its origin and what to write instead.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        sets: &[String],
    ) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        if let Some(path) = file {
            layers.add_file(path)?;
        }
        layers.add_environment(environment)?;
        for text in sets {
            layers.add_assignment(text)?;
        }
        let config = layers.done()?;
        config.check()?;
        Ok(config)
    }

    /// Rules across several values.
    fn check(&self) -> Result<(), ConfigError> {
        let (low, high) = (self.scheduler.low_watermark, self.scheduler.high_watermark);
        if low > high {
            return Err(conflict(
                "scheduler.low_watermark",
                format!("is {low}, above scheduler.high_watermark, which is {high}"),
                "lower it, or programs are paused as soon as they are resumed",
            ));
        }
        self.server.check()?;
        self.engines.check()?;
        self.check_network()?;
        self.oidc.check()?;
        if let Some((key, problem)) = self.broker.problem() {
            let remedy = "docs/messaging.md describes how to connect a broker";
            return Err(conflict(key, format!("is invalid: {problem}"), remedy));
        }
        self.store.check()?;
        self.payloads.check()?;
        self.cluster.check(self)?;
        self.kv.check(self)?;
        self.prediction.service()?;
        self.actions.check()?;
        self.sandboxes.check(self)?;
        self.kubernetes.check(self)?;
        self.weights.check(self)?;
        self.traces.check()?;
        self.engine_connector()?;
        let mut seen = std::collections::BTreeSet::new();
        for endpoint in &self.engines.endpoints {
            if let Err(why) = base_url(&endpoint.url) {
                let problem = format!("has `{}`: {why}", written(&endpoint.url));
                let remedy = url_remedy(&endpoint.url);
                return Err(conflict("engines.endpoints", problem, &remedy));
            }
            if !seen.insert(endpoint.url.trim_end_matches('/')) {
                return Err(conflict(
                    "engines.endpoints",
                    format!("has {} twice", endpoint.url),
                    "list each engine once",
                ));
            }
        }
        Ok(())
    }
}

fn conflict(key: &str, problem: String, remedy: &str) -> ConfigError {
    ConfigError::Conflict {
        key: key.to_owned(),
        problem,
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests;
