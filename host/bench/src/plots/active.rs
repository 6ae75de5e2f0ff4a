//! Programs that have not ended, over time (Heddle Figure 16b). Counts are drawn by their square
//! root, so that the long tail can be seen; roots, unlike logarithms, are the same on every
//! machine.

use super::{Drawn, LABEL, SIZE, Scenario, TITLE, colours};
use plotters::prelude::*;

pub(super) fn draw(scenario: &Scenario<'_>) -> Drawn {
    let mut svg = String::new();
    let makespans = scenario.courses.iter().map(|course| course.makespan_s);
    let end_s = makespans.fold(1.0, f64::max);
    let all = scenario.courses.iter().flat_map(|course| course.timeline);
    let most = all.map(|moment| moment.active).max().unwrap_or(1).max(1);
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(
                format!("Active programs: {}", scenario.title),
                ("sans-serif", TITLE),
            )
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..end_s * 1.02, 0.0..f64::from(most).sqrt() * 1.03)?;
        chart
            .configure_mesh()
            .x_desc("time since the start of the rollout, in seconds")
            .y_desc("programs that have not ended (square root scale)")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{:.0}", y * y))
            .label_style(("sans-serif", LABEL))
            .light_line_style(WHITE)
            .draw()?;
        for (place, course) in scenario.courses.iter().enumerate() {
            let colour = colours::of(place);
            let points = course.timeline.iter();
            let points = points.map(|moment| (moment.at_s, f64::from(moment.active).sqrt()));
            let end = (course.makespan_s, 0.0);
            let line = LineSeries::new(points.chain([end]), colour.stroke_width(2));
            let label = format!("{}: {:.0} s", course.system, course.makespan_s);
            chart.draw_series(line)?.label(label).legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(2))
            });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .label_font(("sans-serif", LABEL))
            .background_style(WHITE.mix(0.9))
            .border_style(RGBColor(160, 160, 160))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
