//! Versions of weights.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A version of a job's weights.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// The lineage that it belongs to.
    pub lineage: u32,
    /// Its number: on how many batches it was trained.
    pub version: u64,
    /// Its name in the engines' answers.
    pub name: Box<str>,
    /// The folder that engines load it from.
    pub folder: Box<str>,
}

/// Checksums of one version, by layout.
pub type Checksums = BTreeMap<Box<str>, Box<str>>;
