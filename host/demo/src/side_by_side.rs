//! The comparison of schedulers, as live data for the consoles of their daemons.

use super::outcome::{VARIANTS, Variant};
use super::plan::Plan;
use super::run_counters::Look;
use tokio::sync::watch;
use treadle_server::demo_comparison::{DemoArm, DemoComparison, DemoPoint, DemoView};

const MINUTE_US: f64 = 60e6;
/// Minimum minutes between two points.
const POINT_MINUTES: f64 = 0.5;
/// Approximate number of points of a run.
const POINTS: f64 = 300.0;
/// Minutes that the current rate covers.
const RECENT_MINUTES: f64 = 2.0;

/// The comparison of schedulers.
pub(super) struct SideBySide(watch::Sender<DemoComparison>);

impl SideBySide {
    /// A comparison before the start.
    pub(super) fn new(plan: &Plan) -> Self {
        let arm = |variant: Variant| DemoArm {
            name: variant.name.to_owned(),
            ..DemoArm::default()
        };
        Self(watch::Sender::new(DemoComparison {
            arms: VARIANTS.map(arm).to_vec(),
            minute: 0.0,
            minutes: plan.window.to_us as f64 / MINUTE_US,
            warmup_minutes: plan.window.from_us as f64 / MINUTE_US,
            time_scale: plan.time_scale,
            workload: plan.workload.clone(),
        }))
    }

    /// Starts an arm, with a daemon at this URL.
    pub(super) fn begin(&self, place: usize, url: String) -> ArmTrack<'_> {
        self.0.send_modify(|all| all.arms[place].url = Some(url));
        ArmTrack {
            side_by_side: self,
            place,
            last: Look::default(),
        }
    }

    /// The view for the daemon of an arm.
    pub(super) fn view(&self, place: usize) -> DemoView {
        DemoView {
            place,
            comparison: self.0.subscribe(),
        }
    }
}

/// Updates one arm; clears its daemon's URL when dropped.
pub(super) struct ArmTrack<'a> {
    side_by_side: &'a SideBySide,
    place: usize,
    /// Progress at the last point.
    last: Look,
}

impl ArmTrack<'_> {
    /// Records the arm's progress.
    pub(super) fn at(&mut self, look: &Look) {
        let place = self.place;
        let minute = look.now_us as f64 / MINUTE_US;
        self.side_by_side.0.send_modify(|all| {
            all.minute = all.minute.max(minute.min(all.minutes));
            let between = POINT_MINUTES.max(all.minutes / POINTS);
            let arm = &mut all.arms[place];
            let gone = minute - self.last.now_us as f64 / MINUTE_US;
            if gone >= between {
                let steps = look.answered - self.last.answered;
                let steps_per_min = steps as f64 / gone;
                arm.points.push(DemoPoint {
                    minute,
                    steps_per_min,
                });
                arm.steps_per_min = recent(&arm.points, minute);
                self.last = *look;
            }
            arm.answered = look.answered;
            arm.hit_rate = look.prompt.hit_rate();
            arm.step_p50_s = look.step_p50_s;
            arm.step_p99_s = look.step_p99_s;
        });
    }
}

impl Drop for ArmTrack<'_> {
    fn drop(&mut self) {
        let place = self.place;
        self.side_by_side
            .0
            .send_modify(|all| all.arms[place].url = None);
    }
}

/// The mean rate of the last points.
fn recent(points: &[DemoPoint], minute: f64) -> f64 {
    let recent = points
        .iter()
        .rev()
        .take_while(|point| point.minute > minute - RECENT_MINUTES);
    let rates: Vec<f64> = recent.map(|point| point.steps_per_min).collect();
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_counters::PromptTokens;
    use crate::tests::plan;

    #[test]
    fn each_daemon_shows_all_arms_as_far_as_they_are_and_itself_as_its_own() {
        let plan = plan("x --minutes 6 --warmup-minutes 2 --programs 4").unwrap();
        let side_by_side = SideBySide::new(&plan);
        let view = side_by_side.view(1);
        let mut track = side_by_side.begin(1, "http://127.0.0.1:1".to_owned());
        let at = |minute: f64, answered| Look {
            now_us: (minute * MINUTE_US) as u64,
            answered,
            steps: 0,
            prompt: PromptTokens {
                all: 100,
                cached: 25,
            },
            step_p50_s: None,
            step_p99_s: None,
        };
        track.at(&at(0.25, 3));
        track.at(&at(0.5, 10));
        track.at(&at(4.5, 30));
        track.at(&at(5.5, 80));
        let shown = view.comparison.borrow().clone();
        let arm = &shown.arms[1];
        assert_eq!(
            (shown.minute, shown.minutes, shown.arms.len()),
            (5.5, 8.0, 3)
        );
        let rates: Vec<f64> = arm.points.iter().map(|p| p.steps_per_min).collect();
        assert_eq!(rates, [20.0, 5.0, 50.0]);
        assert_eq!((arm.answered, arm.hit_rate), (80, 0.25));
        // Of the last two minutes only.
        assert!((arm.steps_per_min - 27.5).abs() < 1e-9, "{arm:?}");
        assert_eq!(arm.url.as_deref(), Some("http://127.0.0.1:1"));
        assert!(shown.arms[0].points.is_empty());
        drop(track);
        assert_eq!(view.comparison.borrow().arms[1].url, None);
    }
}
