//! Members that were lost, and why.

use crate::group::End;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Lost members of a job that are remembered, the latest: as many as the largest group has.
const LOST_MAX: usize = 1_024;

/// A member that was lost.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// Its group.
    pub group: Box<str>,
    /// Its program.
    pub program: Box<str>,
    /// How it was lost.
    pub end: End,
    /// A short cause, in words, if one was given.
    pub cause: Option<Box<str>>,
}

/// Adds a lost member; beyond the limit the oldest one is forgotten.
pub(crate) fn remember(lost: &mut VecDeque<Lost>, member: Lost) {
    lost.push_back(member);
    if lost.len() > LOST_MAX {
        lost.pop_front();
    }
}
