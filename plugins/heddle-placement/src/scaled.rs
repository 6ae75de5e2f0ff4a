//! The paper's rule for moves (§5.3): a program's rank among the remaining ones selects its worker,
//! in the plan's group sizes scaled to their number.
//!
//! The groups of the longest are small, and shrink with all others, although the programs that
//! remain at the end are the longest: most of these are sent to the workers of short programs.
//! `makespan` does not have this flaw.

use treadle_plugin::{MigrateColumns, Phase};

use crate::config::Config;
use crate::plan::{self, Plan};
use crate::workers::Kinds;

pub(crate) fn migrate(
    config: &Config,
    plan: Option<&Plan>,
    programs: &MigrateColumns<'_>,
    lengths: &[f64],
    kinds: &Kinds,
) -> Vec<u32> {
    let mut places = programs.at_worker.to_vec();
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by(|&left, &right| lengths[right].total_cmp(&lengths[left]));
    let fresh = || {
        let sorted: Vec<f64> = order.iter().map(|&row| lengths[row]).collect();
        let capacity_tokens = programs.workers.capacity_tokens;
        plan::make(config, &sorted, kinds, capacity_tokens, false)
    };
    let known = plan.filter(|plan| plan.programs > 0);
    let plan = known.cloned().unwrap_or_else(fresh);
    let scale = lengths.len() as f64 / plan.programs.max(1) as f64;
    let slack = config.gain * lengths.len() as f64;
    // Where each group's ranks begin and end.
    let mut ranges = Vec::with_capacity(plan.groups.len());
    let mut from = 0.0;
    for group in &plan.groups {
        let to = from + group.size as f64 * scale;
        ranges.push((group.worker, from, to));
        from = to;
    }
    let mut moves = 0;
    for (rank, row) in order.into_iter().enumerate() {
        let rank = rank as f64 + 0.5;
        let own = programs.at_worker[row];
        let stays = ranges.iter().any(|&(worker, from, to)| {
            worker == own && from < to && (from - slack..=to + slack).contains(&rank)
        });
        if stays || programs.phase[row] != Phase::Acting {
            continue;
        }
        if moves == config.moves_max {
            break;
        }
        let target = ranges.iter().find(|(_, from, to)| from < to && rank <= *to);
        if let Some(&(worker, ..)) = target
            && worker != own
        {
            places[row] = worker;
            moves += 1;
        }
    }
    places
}
