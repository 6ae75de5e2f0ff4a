//! The features of the regression.

use treadle_plugin::exact::log2;

use crate::groups::{Group, Mean};
use crate::model::STAGES;
use crate::rows::Row;

/// Number of features of a program.
pub(crate) const FEATURES: usize = 20;
/// Index of the feature from the group's history.
pub(crate) const HISTORY: usize = 13;
/// Values of the features.
pub(crate) type Features = [f64; FEATURES];

/// Added to tokens before taking their logarithm, so that small numbers are similar.
pub(crate) const TOKENS_SOFT: f64 = 256.0;
/// Added to milliseconds in tools before taking their logarithm.
pub(crate) const TOOL_MS_SOFT: f64 = 16.0;
/// Weight of the common figures in a group's, in programs.
const COMMON_WEIGHT: f64 = 3.0;
/// Prompt scores are clamped to plus and minus this.
const SCORE_MAX: f64 = 8.0;

/// Figures common to programs of all groups.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Common {
    /// Generated tokens of finished programs, as logarithms.
    pub(crate) total: Mean,
    /// Share of failed tool calls, among those with known results.
    pub(crate) failed: Mean,
    /// Mean logarithm of the tokens generated so far, by stage.
    pub(crate) so_far: [Mean; STAGES],
}

/// A count as a logarithm, about 0 for usual ones.
fn level(count: f64, usual: f64) -> f64 {
    (log2(count + 64.0) - usual) / 2.0
}

/// How much a program has generated, as a logarithm.
pub(crate) fn so_far(row: &Row) -> f64 {
    log2(row.output_tokens + TOKENS_SOFT)
}

/// A program's features that come from its group.
pub(crate) type GroupView = [f32; 5];

/// A group's features for a program at this moment.
pub(crate) fn group_view(group: &Group, common: &Common) -> GroupView {
    let history = group.total.beyond(common.total.value, COMMON_WEIGHT);
    let view = [
        history,
        group.fresh.beyond(common.total.value, COMMON_WEIGHT),
        log2(1.0 + group.fresh.count),
        group.ahead.beyond(0.0, COMMON_WEIGHT),
        group.failed.beyond(common.failed.value, COMMON_WEIGHT),
    ];
    view.map(|value| value as f32)
}

/// The features of a program.
pub(crate) fn features(row: &Row, view: &GroupView) -> Features {
    let has_begun = row.steps > 0;
    let begun = |value: f64| if has_begun { value } else { 0.0 };
    let steps = f64::from(row.steps);
    let input_tokens = (row.tokens - row.output_tokens).max(0.0);
    let returned = (steps - f64::from(u8::from(!row.returned))).max(0.0);
    let succeeded = row
        .failed_tools
        .map_or(0.0, |failed| (returned - failed).max(0.0));
    let written = begun(level(row.output_tokens, 10.0));
    let result = row
        .last_tool_ok
        .map_or(0.0, |ok| if ok { -1.0 } else { 1.0 });
    let has_returned = f64::from(u8::from(row.returned));
    let [history, fresh, fresh_count, ahead, failed] = view.map(f64::from);
    [
        1.0,
        written,
        written * written,
        level(input_tokens, 10.0),
        log2(1.0 + steps),
        begun(level(row.output_tokens / steps.max(1.0), 10.0)),
        level(row.tool_ms, 10.0) / 2.0,
        row.last_output_tokens
            .map_or(0.0, |tokens| begun(level(tokens, 10.0))),
        result,
        log2(1.0 + row.failed_tools.unwrap_or(0.0)),
        log2(1.0 + succeeded),
        row.prompt_tokens.map_or(0.0, |tokens| level(tokens, 9.0)),
        row.prompt_score.unwrap_or(0.0).clamp(-SCORE_MAX, SCORE_MAX),
        // The more is known about a program itself, the less its group matters.
        history / (1.0 + steps),
        fresh,
        fresh_count,
        ahead,
        failed,
        has_returned,
        // The last step's own tool is more informative than the one before.
        has_returned * result,
    ]
}
