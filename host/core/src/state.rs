//! The whole state: what a snapshot holds and a replay reproduces.

use crate::actions;
use crate::bindings::Bindings;
use crate::programs;
use crate::training;
use crate::weights;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use treadle_model::{GatewayId, Timestamp};

/// The states of all machines: borrowed from a core, or owned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State<'c> {
    /// The latest time at which an event was handled.
    pub now: Timestamp,
    /// Gateways in other processes, with the number of the last event that each has relayed.
    pub gateways: Cow<'c, BTreeMap<GatewayId, u64>>,
    /// Programs, their steps and the workers that serve them.
    pub programs: Cow<'c, programs::State>,
    /// Which policies are bound.
    pub bindings: Cow<'c, Bindings>,
    /// Actions that treadle runs, and the resources that they use.
    #[serde(default)]
    pub actions: Cow<'c, actions::State>,
    /// Training runs.
    #[serde(default)]
    pub training: Cow<'c, training::State>,
    /// The weights that engines hold.
    #[serde(default)]
    pub weights: Cow<'c, weights::State>,
}

impl State<'_> {
    /// An owned copy of the state.
    pub fn into_owned(self) -> State<'static> {
        State {
            now: self.now,
            gateways: Cow::Owned(self.gateways.into_owned()),
            programs: Cow::Owned(self.programs.into_owned()),
            bindings: Cow::Owned(self.bindings.into_owned()),
            actions: Cow::Owned(self.actions.into_owned()),
            training: Cow::Owned(self.training.into_owned()),
            weights: Cow::Owned(self.weights.into_owned()),
        }
    }
}
