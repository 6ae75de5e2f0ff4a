//! Bounds of the numbers in events, so that no sum of them overflows.

use crate::event::ActionEvent;
use crate::resource::{NODE_DEVICES, RESOURCES_MAX, Supply};
use treadle_model::{BYTES_MAX, Span};

/// Maximum number of nodes of one resource; further ones are not used.
const NODES_MAX: usize = 4_096;
/// Upper limit for any time span, in microseconds: 35 years.
const SPAN_MAX: Span = Span(1 << 50);

impl ActionEvent {
    /// The event with each external number clamped to its bound.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        match &mut self {
            Self::ResourcesSet { resources } => {
                resources.truncate(RESOURCES_MAX);
                for resource in resources {
                    cut(&mut resource.supply);
                }
            }
            Self::SharesSet {
                shares: Some(shares),
            } => shares.within_bounds(),
            Self::ServiceDeclared { load, .. } => *load = SPAN_MAX.min(*load),
            Self::QuotaRefused { retry_after, .. } => *retry_after = SPAN_MAX.min(*retry_after),
            Self::ActionSubmitted { spec, .. } => {
                spec.run_max = SPAN_MAX.min(spec.run_max);
                for duration in &mut spec.durations {
                    *duration = SPAN_MAX.min(*duration);
                }
            }
            _ => {}
        }
        self
    }
}

fn cut(supply: &mut Supply) {
    match supply {
        Supply::Units { total } => *total = BYTES_MAX.min(*total),
        Supply::Devices { nodes } => {
            nodes.truncate(NODES_MAX);
            for devices in nodes {
                *devices = NODE_DEVICES.min(*devices);
            }
        }
        Supply::Quota {
            concurrent_max,
            requests_max,
            period,
        } => {
            for most in [concurrent_max, requests_max].into_iter().flatten() {
                *most = BYTES_MAX.min(*most);
            }
            *period = SPAN_MAX.min(*period);
        }
    }
}
