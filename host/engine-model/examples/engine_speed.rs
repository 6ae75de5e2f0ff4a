//! How fast the engine models run: a rollout of 6,400 long-tailed programs on 64 engines, all on one
//! core. Prints counts and the real time that it took.
//!
//! `cargo run --release -p treadle-engine-model --example engine_speed`

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use treadle_engine_model::engine::{
    Counters, Engine, EngineProfile, Output, RequestSpec, chain_hash, content_hash,
};
use treadle_engine_model::hardware::{Assumptions, H100, QWEN3_8B};

const ENGINES: usize = 64;
const PROGRAMS: usize = 6_400;
const GROUP: usize = 16;
const PROMPT_TOKENS: u32 = 512;
const LIMIT_TOKENS: f64 = 40_000.0;

struct Program {
    engine: usize,
    chain: Arc<[u64]>,
    /// Output, tokens of the tool's answer, time of the tool in microseconds.
    steps: Vec<(u32, u32, u64)>,
    step: usize,
    context_tokens: u32,
}

impl Program {
    /// A step has ended: when the next can start, in microseconds, if there is one.
    fn step_ends(&mut self, at_us: u64) -> Option<u64> {
        let (output_tokens, answer_tokens, tool_us) = self.steps[self.step];
        self.context_tokens += output_tokens + answer_tokens;
        self.step += 1;
        (self.step < self.steps.len()).then_some(at_us + tool_us)
    }
}

fn program(rng: &mut Pcg64Mcg, id: usize, block_tokens: u32) -> Program {
    let wanted = (LIMIT_TOKENS / (1.0 + 12.0 * rng.random::<f64>())) as u32;
    let mut steps = Vec::new();
    let mut total = PROMPT_TOKENS;
    while total < wanted {
        let output = rng.random_range(100..1_500).min(wanted - total).max(1);
        let answer = rng.random_range(50..400);
        steps.push((output, answer, rng.random_range(300_000..2_000_000)));
        total += output + answer;
    }
    let mut parent = 0;
    let chain = (0..total / block_tokens).map(|block| {
        let shared = (block + 1) * block_tokens <= PROMPT_TOKENS;
        let owner = if shared { id / GROUP } else { PROGRAMS + id };
        parent = chain_hash(parent, content_hash(&[owner as u64, u64::from(block)]));
        parent
    });
    Program {
        engine: id % ENGINES,
        chain: chain.collect(),
        steps,
        step: 0,
        context_tokens: PROMPT_TOKENS,
    }
}

fn submit(engine: &mut Engine, now_us: u64, id: usize, program: &Program) {
    let spec = RequestSpec {
        id: id as u64,
        prompt_tokens: program.context_tokens,
        output_tokens: program.steps[program.step].0,
        blocks: Arc::clone(&program.chain),
        // The longest first.
        priority: i32::try_from(program.steps.len()).map_or(i32::MIN, |steps| -steps),
    };
    engine
        .submit(now_us, spec)
        .expect("contexts fit the engine");
}

struct Totals {
    virtual_us: u64,
    outputs: u64,
    turns: u64,
}

/// Runs all programs to their end: one queue of programs that come back from their tools, one of
/// engines with something to report.
fn drive(programs: &mut [Program], engines: &mut [Engine]) -> Totals {
    let mut returns: BTreeSet<(u64, usize)> = (0..programs.len()).map(|id| (0, id)).collect();
    let mut events: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut known = vec![None; engines.len()];
    let mut outputs = Vec::new();
    let mut totals = Totals {
        virtual_us: 0,
        outputs: 0,
        turns: 0,
    };
    loop {
        let heads = [returns.first(), events.first()];
        let Some(now_us) = heads.into_iter().flatten().map(|each| each.0).min() else {
            return totals;
        };
        totals.virtual_us = now_us;
        totals.turns += 1;
        let coming = returns.first().copied().filter(|each| each.0 == now_us);
        let index = coming.map_or_else(
            || events.first().map_or(0, |each| each.1),
            |(_, id)| programs[id].engine,
        );
        let engine = &mut engines[index];
        engine.advance(now_us, &mut outputs);
        if let Some((_, id)) = coming {
            returns.pop_first();
            submit(engine, now_us, id, &programs[id]);
        }
        for output in outputs.drain(..) {
            totals.outputs += 1;
            if let Output::Finished(end) = output {
                let id = end.id as usize;
                returns.extend(programs[id].step_ends(end.at_us).map(|at_us| (at_us, id)));
            }
        }
        let next = engine.next_event_at();
        if known[index] != next {
            if let Some(at_us) = known[index] {
                events.remove(&(at_us, index));
            }
            events.extend(next.map(|at_us| (at_us, index)));
            known[index] = next;
        }
    }
}

fn main() {
    let profile = EngineProfile {
        stream_interval_tokens: u32::MAX,
        running_max: 100,
        preempt_by_priority: true,
        ..EngineProfile::of(&H100, &QWEN3_8B, 1, &Assumptions::default()).expect("it fits")
    };
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut programs: Vec<Program> = (0..PROGRAMS)
        .map(|id| program(&mut rng, id, profile.block_tokens))
        .collect();
    let mut engines = vec![Engine::new(profile); ENGINES];
    let start = Instant::now();
    let totals = drive(&mut programs, &mut engines);
    let real_s = start.elapsed().as_secs_f64();
    let sum = |of: fn(&Counters) -> u64| {
        let all = engines.iter().map(|engine| of(&engine.snapshot().counters));
        all.sum::<u64>()
    };
    let tokens = sum(|each| each.generation_tokens);
    let iterations = sum(|each| each.iterations);
    println!("virtual_s {:.1}", totals.virtual_us as f64 / 1e6);
    println!("steps {}", sum(|each| each.finished_requests));
    println!("tokens {tokens}");
    println!("iterations {iterations}");
    println!("driver_turns {} outputs {}", totals.turns, totals.outputs);
    println!("evicted_blocks {}", sum(|each| each.evicted_blocks));
    println!("preemptions {}", sum(|each| each.preemptions));
    println!(
        "priority_preemptions {}",
        sum(|each| each.priority_preemptions)
    );
    println!("real_s {real_s:.3}");
    println!("iterations_per_s {:.0}", iterations as f64 / real_s);
    println!("tokens_per_s {:.0}", tokens as f64 / real_s);
}
