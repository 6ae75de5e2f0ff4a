//! Which running steps are preempted: the least urgent step for the most urgent waiting program,
//! and so on, as long as that gains more than the margin.

use treadle_plugin::PreemptColumns;

/// Which running steps to preempt. Steps that have run longer than `run_ms_max` have too much
/// to lose.
pub(crate) fn give_way(steps: &PreemptColumns<'_>, margin: f64, run_ms_max: u64) -> Vec<bool> {
    let mut ways = vec![false; steps.len()];
    let mut running: Vec<usize> = (0..steps.len())
        .filter(|&step| steps.running_ms[step] <= run_ms_max)
        .collect();
    running
        .sort_by(|&left, &right| steps.running_score[left].total_cmp(&steps.running_score[right]));
    let mut waiting = steps.waiting_score.to_vec();
    waiting.sort_by(|left, right| right.total_cmp(left));
    for (step, score) in running.into_iter().zip(waiting) {
        if score <= steps.running_score[step] + margin {
            break;
        }
        ways[step] = true;
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_urgent_young_step_gives_way_to_the_most_urgent_program() {
        let steps = PreemptColumns {
            running_score: &[5.0, 1.0, 0.0, 2.0],
            running_ms: &[0, 0, 9_000, 0],
            waiting_score: &[3.0, 100.0, 90.0],
        };
        // Step 2 has run too long; 3.0 is not enough ahead of any third step.
        assert_eq!(give_way(&steps, 10.0, 2_000), [false, true, false, true]);
        assert_eq!(give_way(&steps, 1_000.0, 2_000), [false; 4]);
    }
}
