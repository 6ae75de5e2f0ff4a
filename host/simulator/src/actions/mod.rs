//! Actions that use cores, devices and quotas, in virtual time: workloads, the daemon's core with
//! an allocation policy, and the baselines of `ARL-Tangram` §6.

mod api;
mod clock;
mod coding;
mod deployed;
mod machine;
mod outcome;
mod pods;
mod search;
mod services;
mod simulation;
mod work;

pub use api::OnTheirOwn;
pub use coding::{Coding, TEST_CORES};
pub use deployed::Deployed;
pub use machine::{Allocator, Machine, Treadle};
pub use outcome::{MeanTimes, Outcome, Times, bound_s};
pub use pods::{Pods, RETRIES_MAX, TIMEOUT_US};
pub use search::{APIS, Api, Search};
pub use services::{MODEL_DEVICES, Services};
pub use simulation::Pools;
pub use work::{Draws, Speedup, TENSOR_EFFICIENCY, Trajectory, Turn, Work};
