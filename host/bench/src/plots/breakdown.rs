//! The time of the program that ended last, system by system, as stacked bars beside the bound.

use super::{Drawn, LABEL, SIZE, Scenario, TITLE, colours};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use treadle_simulator::rollout::TimeSpent;

/// Parts of the time, from the bottom up.
type Part = (&'static str, fn(&TimeSpent) -> u64);
const PARTS: [Part; 5] = [
    ("decode alone", |spent| spent.decode_us),
    ("tools", |spent| spent.tool_us),
    ("interference", |spent| spent.interference_us),
    ("queue and prefill", |spent| spent.queue_and_prefill_us),
    ("placing and moves", |spent| spent.placing_us),
];
/// Width of the legend at the right, in pixels.
const LEGEND: u32 = 180;
/// Share of its slot that a bar takes.
const BAR: f64 = 0.6;

pub(super) fn draw(scenario: &Scenario<'_>) -> Drawn {
    let mut svg = String::new();
    let bars = scenario.courses.len().max(1);
    let makespans = scenario.courses.iter().map(|course| course.makespan_s);
    let end_s = makespans.fold(scenario.bound_s.max(1.0), f64::max);
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let title = format!("The program that ended last: {}", scenario.title);
        let (left, right) = area.split_horizontally(SIZE.0 - LEGEND);
        let mut chart = ChartBuilder::on(&left)
            .caption(title, ("sans-serif", TITLE))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..bars as f64, 0.0..end_s * 1.08)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .x_desc("system and its makespan")
            .y_desc("time, in seconds")
            .y_label_formatter(&|y| format!("{y:.0}"))
            .label_style(("sans-serif", LABEL))
            .light_line_style(WHITE)
            .draw()?;
        for (bar, course) in scenario.courses.iter().enumerate() {
            let left = bar as f64 + (1.0 - BAR) / 2.0;
            let mut from_us = 0;
            for (place, (_, part)) in PARTS.iter().enumerate() {
                let to_us = from_us + part(&course.last);
                let corners = [
                    (left, from_us as f64 / 1e6),
                    (left + BAR, to_us as f64 / 1e6),
                ];
                let part = Rectangle::new(corners, colours::of(place).filled());
                chart.draw_series([part])?;
                from_us = to_us;
            }
        }
        let line = [(0.0, scenario.bound_s), (bars as f64, scenario.bound_s)];
        let line = DashedLineSeries::new(line, 6, 4, BLACK.stroke_width(2));
        chart.draw_series(line)?;
        let style = TextStyle::from(("sans-serif", LABEL)).pos(Pos::new(HPos::Center, VPos::Top));
        for (bar, course) in scenario.courses.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(bar as f64 + 0.5, 0.0));
            let name = format!("{}: {:.0} s", course.system, course.makespan_s);
            area.draw_text(&name, &style, (x, y + 8))?;
        }
        draw_legend(&right, scenario.bound_s)?;
        area.present()?;
    }
    Ok(svg)
}

/// The parts from the top down, as they are stacked, then the bound.
fn draw_legend(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    bound_s: f64,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let style = TextStyle::from(("sans-serif", LABEL)).pos(Pos::new(HPos::Left, VPos::Center));
    let mut y = 60;
    for (place, (name, _)) in PARTS.iter().enumerate().rev() {
        let mark = [(4, y - 6), (16, y + 6)];
        area.draw(&Rectangle::new(mark, colours::of(place).filled()))?;
        area.draw_text(name, &style, (26, y))?;
        y += 22;
    }
    let dash = |from: i32| PathElement::new(vec![(from, y), (from + 6, y)], BLACK.stroke_width(2));
    area.draw(&dash(2))?;
    area.draw(&dash(12))?;
    area.draw_text(&format!("bound: {bound_s:.0} s"), &style, (26, y))
}
