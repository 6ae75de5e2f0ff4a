//! What is learnt from programs and engines, and predicted from it: lengths of prompts and answers,
//! times of tool calls, speeds of engines and of transfers, growth of contexts.
//!
//! Nothing here knows programs, steps or workers: it takes samples, and gives numbers.

pub mod distribution;
mod growth;
mod habits;
mod pace;
mod speed;
mod tokens;
mod tools;

pub use growth::{Forecast, Growing, Memory};
pub use habits::{GROWTH_PPM, Habits, JOBS_MAX, JobHabits, JobStatistics};
pub use pace::{DecodePace, DecodeTime, StepsTime};
pub use speed::{PrefillSpeed, TransferSpeed, TransferSpeeds};
pub use tokens::{CountedPrompt, TextSize, TokenModels};
pub use tools::{TOOL_JOBS_MAX, TOOLS_MAX, ToolStatistics, Tools, learn};
