//! KV memory in use, worker by worker, over time.

use super::{Course, Drawn, LABEL, SIZE, Scenario, TITLE, colours};
use plotters::coord::Shift;
use plotters::prelude::*;
use treadle_simulator::rollout::Moment;

/// Most columns of the map.
const COLUMNS_MAX: usize = 150;
/// Width of the scale at the right, in pixels.
const SCALE: u32 = 110;

pub(super) fn draw(scenario: &Scenario<'_>, course: &Course<'_>) -> Drawn {
    let mut svg = String::new();
    let workers = course
        .timeline
        .first()
        .map_or(0, |m| m.kv_used.len())
        .max(1);
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let title = format!("KV memory in use, {}: {}", course.system, scenario.title);
        let (map, scale) = area.split_horizontally(SIZE.0 - SCALE);
        let mut chart = ChartBuilder::on(&map)
            .caption(title, ("sans-serif", TITLE))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..course.makespan_s.max(1.0), 0.0..workers as f64)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc("time since the start of the rollout, in seconds")
            .y_desc("worker, the one with most GPUs first")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .label_style(("sans-serif", LABEL))
            .draw()?;
        let cells = cells(course, workers);
        let cells = cells.into_iter().map(|(worker, from_s, to_s, level)| {
            let corners = [(from_s, worker as f64), (to_s, worker as f64 + 1.0)];
            Rectangle::new(corners, colours::shade(level).filled())
        });
        chart.draw_series(cells)?;
        draw_scale(&scale)?;
        area.present()?;
    }
    Ok(svg)
}

/// Worker, from, to and shade; neighbours of one shade are one cell.
fn cells(course: &Course<'_>, workers: usize) -> Vec<(usize, f64, f64, u32)> {
    let timeline = course.timeline;
    let step = timeline.len().div_ceil(COLUMNS_MAX).max(1);
    let columns: Vec<&[Moment]> = timeline.chunks(step).collect();
    let ends = |column: usize| {
        let next = columns.get(column + 1).and_then(|moments| moments.first());
        next.map_or(course.makespan_s, |moment| moment.at_s)
    };
    let mut cells = Vec::new();
    for worker in 0..workers {
        let mut open: Option<(f64, u32)> = None;
        for (column, moments) in columns.iter().enumerate() {
            let level = level(moments, worker);
            let from_s = moments[0].at_s;
            match open {
                Some((_, before)) if before == level => {}
                Some((since_s, before)) => {
                    cells.push((worker, since_s, from_s, before));
                    open = Some((from_s, level));
                }
                None => open = Some((from_s, level)),
            }
            if column + 1 == columns.len()
                && let Some((since_s, level)) = open
            {
                cells.push((worker, since_s, ends(column), level));
            }
        }
    }
    cells.retain(|(_, _, _, level)| *level > 0);
    cells
}

/// The mean of a column as a shade.
fn level(moments: &[Moment], worker: usize) -> u32 {
    let used = moments.iter().filter_map(|m| m.kv_used.get(worker));
    let mean = used.map(|share| f64::from(*share)).sum::<f64>() / moments.len().max(1) as f64;
    (mean * f64::from(colours::SHADES)).round() as u32
}

fn draw_scale(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(42)
        .margin_bottom(64)
        .margin_left(8)
        .margin_right(20)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..1.0, 0.0..100.0)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .disable_x_axis()
        .set_tick_mark_size(LabelAreaPosition::Left, 8)
        .y_desc("% of KV memory, running steps")
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style(("sans-serif", LABEL))
        .draw()?;
    let step = 100.0 / f64::from(colours::SHADES + 1);
    chart.draw_series((0..=colours::SHADES).map(|level| {
        let from = f64::from(level) * step;
        Rectangle::new(
            [(0.0, from), (1.0, from + step)],
            colours::shade(level).filled(),
        )
    }))?;
    Ok(())
}
