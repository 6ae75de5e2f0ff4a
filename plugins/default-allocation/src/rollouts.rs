//! Further rollouts of each prompt.

use treadle_plugin::RedundancyColumns;

use crate::config::Config;

/// Most rollouts that are started for one prompt in one answer.
const ROLLOUTS_MAX: u32 = 1_024;

pub(crate) fn further(config: &Config, prompts: &RedundancyColumns<'_>) -> Vec<u32> {
    (0..prompts.len())
        .map(|row| {
            let (wanted, finished) = (prompts.wanted[row], prompts.finished[row]);
            if finished >= wanted || prompts.failed[row] > config.failed_max {
                return 0;
            }
            let surplus = if is_late(config, prompts, row) {
                config.surplus
            } else {
                0
            };
            let missing = wanted
                .saturating_add(surplus)
                .saturating_sub(finished)
                .saturating_sub(prompts.running[row]);
            missing.min(ROLLOUTS_MAX)
        })
        .collect()
}

/// Whether half of what is wanted has finished and the oldest that runs takes long.
fn is_late(config: &Config, prompts: &RedundancyColumns<'_>, row: usize) -> bool {
    let most_done = prompts.finished[row] >= prompts.wanted[row].div_ceil(2);
    let long = |late_s: f64| prompts.running_ms[row] as f64 >= late_s * 1_000.0;
    prompts.running[row] > 0 && most_done && config.late_s.is_some_and(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_are_replaced_and_late_prompts_get_more() {
        let prompts = RedundancyColumns {
            wanted: &[8, 8, 8, 8, 8, 8],
            finished: &[0, 4, 8, 6, 6, 1],
            running: &[0, 3, 2, 2, 2, 7],
            failed: &[0, 1, 0, 0, 0, 0],
            running_ms: &[0, 5_000, 90_000, 59_999, 60_000, 90_000],
            extra: &[],
        };
        let config = Config {
            late_s: Some(60.0),
            surplus: 2,
            ..Config::default()
        };
        assert_eq!(further(&config, &prompts), [8, 1, 0, 0, 2, 0]);
    }

    #[test]
    fn a_prompt_that_fails_over_and_over_is_left() {
        let prompts = RedundancyColumns {
            wanted: &[8, 8],
            finished: &[0, 0],
            running: &[0, 0],
            failed: &[16, 17],
            running_ms: &[0, 0],
            extra: &[],
        };
        assert_eq!(further(&Config::default(), &prompts), [8, 0]);
    }
}
