//! Colours that are distinguishable with any colour vision (Okabe and Ito), and one scale of
//! shares.

use plotters::style::RGBColor;

/// Lines and bars, in order.
const CYCLE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// Shades of [`shade`].
pub(super) const SHADES: u32 = 20;

/// The colour of a series.
pub(super) fn of(series: usize) -> RGBColor {
    CYCLE[series % CYCLE.len()]
}

/// The colour of a share between 0 and [`SHADES`]: white to dark blue.
pub(super) fn shade(level: u32) -> RGBColor {
    let level = level.min(SHADES);
    let mix = |light: u32, dark: u32| ((light * (SHADES - level) + dark * level) / SHADES) as u8;
    RGBColor(mix(247, 8), mix(251, 48), mix(255, 107))
}
