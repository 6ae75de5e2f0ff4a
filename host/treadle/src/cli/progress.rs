//! Progress bars and spinners on standard error, if it is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Pause between two frames of a spinner.
const FRAME: Duration = Duration::from_millis(100);

/// A bar of `length` parts.
pub(super) fn bar(length: u64, message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}");
    let bar = hidden_off_terminals(ProgressBar::new(length));
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.with_message(message)
}

/// A spinner for work of unknown length.
pub(super) fn spinner(message: String) -> ProgressBar {
    let spinner = hidden_off_terminals(ProgressBar::new_spinner()).with_message(message);
    spinner.enable_steady_tick(FRAME);
    spinner
}

fn hidden_off_terminals(bar: ProgressBar) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}
