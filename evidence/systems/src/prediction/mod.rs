//! How well predictions of what programs still need come true, as Heddle's Figure 13 compares them:
//! recall of the long tail and correlation, after 0, 1 and 2 steps.
//!
//! Beside that, how far they are off step by step, and how well they order programs, on the generated
//! tasks and on recorded runs; each predictor at the same steps.
//!
//! The policies are the plugins, linked natively. First they go through a rollout of other prompts
//! and an earlier one of the same prompts, then they are evaluated on a rollout with new samples.

mod by_step;
mod figures;
mod observation;
mod replay;
mod report;
#[cfg(test)]
mod tests;

pub use by_step::StepFigures;
pub use figures::tail_recall;
pub use observation::{Observation, ObservationTable, Remaining};
pub use report::{
    PredictionError, PredictionOptions, PredictionReport, PredictorFigures, PredictorSteps,
    TaskPredictions, compare, compare_recorded, recorded,
};
