//! What schedules a job.

use super::engines::Kind;
use serde_json::{Value, json};
use treadle_core::Mode;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum System {
    LeastLoad,
    Sticky,
    /// No daemon: each program is pinned to an engine in turn by the client, as Verl's does.
    Pinned,
    Treadle,
    Heddle,
    Calibrated,
}

impl System {
    pub(super) const ALL: [Self; 6] = [
        Self::LeastLoad,
        Self::Sticky,
        Self::Pinned,
        Self::Treadle,
        Self::Heddle,
        Self::Calibrated,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::LeastLoad => "least-load",
            Self::Sticky => "sticky",
            Self::Pinned => "pinned",
            Self::Treadle => "treadle",
            Self::Heddle => "heddle",
            Self::Calibrated => "heddle-calibrated",
        }
    }

    /// The daemon's mode, if there is a daemon.
    pub(super) const fn mode(self) -> Option<Mode> {
        match self {
            Self::LeastLoad => Some(Mode::LeastLoad),
            Self::Sticky => Some(Mode::Sticky),
            Self::Pinned => None,
            Self::Treadle | Self::Heddle | Self::Calibrated => Some(Mode::ProgramAware),
        }
    }

    /// World, policy and configuration of what is bound.
    pub(super) fn policies(self, kinds: &[Kind]) -> Vec<(&'static str, String, Value)> {
        let placement = match self {
            Self::LeastLoad | Self::Sticky | Self::Pinned | Self::Treadle => return Vec::new(),
            Self::Heddle => json!({}),
            Self::Calibrated => json!({"classes": classes(kinds)}),
        };
        [
            ("prediction", json!({})),
            ("priority", json!({})),
            ("placement", placement),
        ]
        .into_iter()
        .map(|(world, config)| (world, format!("heddle-{world}"), config))
        .collect()
    }
}

/// A calibration by hand, which knows the truth.
fn classes(kinds: &[Kind]) -> Vec<Value> {
    let mut kinds: Vec<&Kind> = kinds.iter().collect();
    kinds.dedup_by_key(|kind| kind.tokens);
    let class = |kind: &&Kind| {
        json!({
            "capacity_tokens": kind.tokens,
            "token_us": kind.token_us,
            "interference": kind.slowdowns,
        })
    };
    kinds.iter().map(class).collect()
}
