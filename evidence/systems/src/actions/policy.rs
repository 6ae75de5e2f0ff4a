//! Allocation policies, linked in, that answer questions about actions.

use std::iter::zip;
use treadle_core::actions::{ElasticAnswer, ElasticQuestion};
use treadle_plugin::AllocationPolicy;
use treadle_plugin::harness::Actions;
use treadle_simulator::actions::Allocator;

/// A policy that is linked in.
#[derive(Clone, Debug, Default)]
pub struct Linked<P>(pub P);

impl<P> Linked<P> {
    /// A question as policies get it.
    pub fn table(question: &ElasticQuestion) -> Actions {
        Actions {
            pool: question.pool.clone(),
            candidate: question.candidate.clone(),
            waited_us: question.waited_us.clone(),
            option_start: question.option_start.clone(),
            option_units: question.option_units.clone(),
            option_us: question.option_us.iter().map(|us| *us as f64).collect(),
            option_load_us: question
                .option_load_us
                .iter()
                .map(|us| *us as f64)
                .collect(),
            free_units: question.free_units.clone(),
            chunked: question.chunked.clone(),
            free_chunks: question.free_chunks.clone(),
            running_pool: question.running_pool.clone(),
            running_units: question.running_units.clone(),
            running_left_us: question.running_left_us.clone(),
            extra: Vec::new(),
        }
    }
}

impl<P: AllocationPolicy> Allocator for Linked<P> {
    fn allocate(&mut self, question: &ElasticQuestion) -> ElasticAnswer {
        let chosen = self.0.arrange(&Self::table(question).columns());
        // What the host would do with an error: the candidates start with their least.
        let least = |candidate: &u8| i32::from(*candidate) - 1;
        let chosen = chosen.unwrap_or_else(|_| question.candidate.iter().map(least).collect());
        answer(question, &chosen)
    }
}

fn answer(question: &ElasticQuestion, chosen: &[i32]) -> ElasticAnswer {
    let starts = zip(question.option_start.iter(), zip(&question.action, chosen));
    let start = starts.filter_map(|(first, (action, option))| {
        let option = *first as usize + usize::try_from(*option).ok()?;
        Some((*action, question.option_units[option]))
    });
    ElasticAnswer {
        start: start.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tangram_allocation::{Config, TangramAllocation};
    use treadle_model::ActionId;

    #[test]
    fn a_linked_policy_answers_with_units() {
        let question = ElasticQuestion {
            action: vec![ActionId(7), ActionId(8)],
            pool: vec![0, 0],
            candidate: vec![1, 0],
            waited_us: vec![2, 1],
            option_start: vec![0, 2, 3],
            option_units: vec![1, 3, 4],
            option_us: vec![900, 300, 100],
            option_load_us: vec![0; 3],
            free_units: vec![3],
            chunked: vec![0],
            free_chunks: vec![0; 4],
            ..ElasticQuestion::default()
        };
        let units = |share_percent| {
            let config = Config {
                share_percent,
                ..Config::default()
            };
            let answer = Linked(TangramAllocation { config }).allocate(&question);
            answer.start
        };
        assert_eq!(units(0), [(ActionId(7), 3)]);
        // Half of three.
        assert_eq!(units(100), [(ActionId(7), 1)]);
    }
}
