//! The group features of programs at the time of their predictions, so that the regression learns
//! from what it could know then, not from what became known later.

use treadle_plugin::recent::Recent;

use crate::features::GroupView;

/// Maximum number of views: more than the steps of a rollout's live programs.
const VIEWS_MAX: usize = 65_536;

/// Group features by the digest of program and step. A view keeps its age if it is replaced.
pub(crate) type ViewHistory = Recent<u64, GroupView>;

/// A history without views.
pub(crate) fn no_views() -> ViewHistory {
    Recent::new(VIEWS_MAX)
}
