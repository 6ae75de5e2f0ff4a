//! Places programs on workers.

use treadle_plugin::{AssignColumns, PlacementPolicy, Policy, PolicyError};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// Whether a program goes back to its last worker where it has room.
        stay: bool = true;
    }
}

/// A program goes back to its last worker, else to the one with the most room.
#[derive(Debug, Clone, Default)]
pub struct MostRoom {
    config: Config,
}

impl Policy for MostRoom {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl PlacementPolicy for MostRoom {
    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let workers = &programs.workers;
        let used = workers.used_tokens.iter();
        let mut room: Vec<i64> = used
            .zip(workers.capacity_tokens)
            .map(|(&used, &total)| total.cast_signed() - used.cast_signed())
            .collect();
        let mut chosen = Vec::with_capacity(programs.len());
        for (&tokens, &last) in programs.tokens.iter().zip(programs.last_worker) {
            let tokens = tokens.cast_signed();
            let fits = room.get(last as usize).is_some_and(|&room| room >= tokens);
            // Of equal workers the first.
            let widest = (0..room.len()).rev().max_by_key(|&worker| room[worker]);
            let worker = match widest {
                _ if self.config.stay && fits => last as usize,
                Some(worker) => worker,
                None => {
                    let message = "there is no worker; nothing can be placed";
                    return Err(PolicyError::failed(message));
                }
            };
            room[worker] -= tokens;
            chosen.push(worker as u32);
        }
        Ok(chosen)
    }
}

treadle_plugin::placement_policy!(MostRoom);
