//! The block hashes of a run's context as it grows and is compacted.

use super::AgentRun;
use treadle_engine_model::engine::{chain_hash, content_hash};

/// The source of a part of the context; equal sources give equal blocks.
#[derive(Clone, Copy)]
enum Source {
    System = 1,
    Group,
    Input,
    Output,
}

#[derive(Clone, Copy)]
struct Segment {
    source: u64,
    tokens: u32,
}

/// The context of one run as the engine model sees it: the chained hashes of its full blocks.
///
/// ```
/// use treadle_simulator::workload::{AgentRun, AgentStep, ContextChain};
///
/// let step = AgentStep { input_tokens: 64, output_tokens: 16, ..AgentStep::default() };
/// let run = AgentRun {
///     id: "a".into(),
///     group: 0,
///     system_tokens: 32,
///     group_tokens: 0,
///     steps: vec![step],
/// };
/// let mut context = ContextChain::new(7, &run, 16);
/// assert_eq!(context.step_blocks(&run, 0).len(), 5);
/// ```
#[derive(Clone)]
pub struct ContextChain {
    seed: u64,
    run: u64,
    block_tokens: u32,
    segments: Vec<Segment>,
    tokens: u32,
    /// Segment and offset at which the first block after `chain` begins.
    cursor: (usize, u32),
    chain: Vec<u64>,
}

impl ContextChain {
    /// An empty context. Runs of one workload must have the same seed, so that they share their
    /// common prompts; `block_tokens` is the engine's.
    pub fn new(seed: u64, run: &AgentRun, block_tokens: u32) -> Self {
        let name: Vec<u64> = run.id.bytes().map(u64::from).collect();
        Self {
            seed,
            run: content_hash(&name),
            block_tokens: block_tokens.max(1),
            segments: Vec::new(),
            tokens: 0,
            cursor: (0, 0),
            chain: Vec::new(),
        }
    }

    /// The full blocks of prompt and answer of the step at `index`, for
    /// [`RequestSpec::blocks`](treadle_engine_model::engine::RequestSpec::blocks). Steps come in order.
    pub fn step_blocks(&mut self, run: &AgentRun, index: usize) -> &[u64] {
        let Some(step) = run.steps.get(index) else {
            return &self.chain;
        };
        if index == 0 {
            self.cut(0);
            self.append(
                content_hash(&[self.seed, Source::System as u64]),
                run.system_tokens,
            );
            let group = [self.seed, Source::Group as u64, u64::from(run.group)];
            self.append(content_hash(&group), run.group_tokens);
            self.cut(step.input_tokens);
        } else {
            self.cut(step.reused_tokens.min(step.input_tokens));
        }
        let fresh = step.input_tokens - self.tokens;
        self.append(self.own_source(Source::Input, index), fresh);
        self.append(self.own_source(Source::Output, index), step.output_tokens);
        self.extend_chain();
        &self.chain
    }

    fn own_source(&self, source: Source, index: usize) -> u64 {
        content_hash(&[self.seed, source as u64, self.run, index as u64])
    }

    fn append(&mut self, source: u64, tokens: u32) {
        if tokens > 0 {
            self.segments.push(Segment { source, tokens });
            self.tokens += tokens;
        }
    }

    /// Drops everything after the first `tokens`.
    fn cut(&mut self, tokens: u32) {
        while self.tokens > tokens {
            let excess = self.tokens - tokens;
            let Some(last) = self.segments.last_mut() else {
                break;
            };
            if last.tokens > excess {
                last.tokens -= excess;
                self.tokens = tokens;
            } else {
                self.tokens -= last.tokens;
                self.segments.pop();
            }
        }
        self.chain
            .truncate((self.tokens / self.block_tokens) as usize);
        self.cursor = self.position_of(self.chain.len() as u32 * self.block_tokens);
    }

    fn position_of(&self, token: u32) -> (usize, u32) {
        let mut rest = token;
        for (place, segment) in self.segments.iter().enumerate() {
            if rest < segment.tokens {
                return (place, rest);
            }
            rest -= segment.tokens;
        }
        (self.segments.len(), rest)
    }

    fn extend_chain(&mut self) {
        let blocks = self.tokens / self.block_tokens;
        let mut parent = self.chain.last().copied().unwrap_or(0);
        while (self.chain.len() as u32) < blocks {
            parent = chain_hash(parent, self.next_content());
            self.chain.push(parent);
        }
    }

    /// Hashes the pieces of the block at the cursor and advances the cursor.
    fn next_content(&mut self) -> u64 {
        let mut content = 0;
        let mut wanted = self.block_tokens;
        while wanted > 0 {
            let (place, offset) = self.cursor;
            let Some(segment) = self.segments.get(place) else {
                break;
            };
            let taken = wanted.min(segment.tokens - offset);
            let piece = u64::from(offset) << 32 | u64::from(taken);
            content = chain_hash(chain_hash(content, segment.source), piece);
            wanted -= taken;
            self.cursor = if offset + taken < segment.tokens {
                (place, offset + taken)
            } else {
                (place + 1, 0)
            };
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::AgentStep;
    use super::*;

    fn run(id: &str, group: u32, steps: &[(u32, u32, u32)]) -> AgentRun {
        let steps = steps
            .iter()
            .map(|&(input_tokens, reused_tokens, output_tokens)| AgentStep {
                input_tokens,
                reused_tokens,
                output_tokens,
                ..AgentStep::default()
            })
            .collect();
        AgentRun {
            id: id.to_owned(),
            group,
            system_tokens: 40,
            group_tokens: 24,
            steps,
        }
    }

    fn common(one: &[u64], other: &[u64]) -> usize {
        one.iter().zip(other).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn runs_share_the_system_prompt_and_groups_share_more() {
        let of = |id, group| {
            let run = run(id, group, &[(200, 0, 20)]);
            ContextChain::new(1, &run, 16).step_blocks(&run, 0).to_vec()
        };
        let (a, b, c) = (of("a", 0), of("b", 0), of("c", 1));
        assert_eq!(common(&a, &b), 64 / 16);
        assert_eq!(common(&a, &c), 40 / 16);
        assert_eq!(a.len(), 220 / 16);
        assert_eq!(a, of("a", 0));
    }

    proptest! {
        #[test]
        fn a_step_shares_exactly_what_it_reuses(
            lengths in prop::collection::vec((1_u32..90, 1_u32..50, 0.0_f64..2.0), 1..12),
        ) {
            let mut steps = vec![(100_u32, 0_u32, 10_u32)];
            for (fresh, output, keep) in lengths {
                let (input, _, answer) = steps[steps.len() - 1];
                let context = input + answer;
                let reused = (f64::from(context) * keep.min(1.0)) as u32;
                steps.push((reused + fresh, reused, output));
            }
            let run = run("a", 0, &steps);
            let mut context = ContextChain::new(1, &run, 16);
            let mut before: Vec<u64> = Vec::new();
            for (index, (input, reused, output)) in steps.into_iter().enumerate() {
                let blocks = context.step_blocks(&run, index).to_vec();
                prop_assert_eq!(blocks.len() as u32, (input + output) / 16);
                prop_assert_eq!(common(&before, &blocks) as u32, reused / 16);
                before = blocks;
            }
        }
    }
}
