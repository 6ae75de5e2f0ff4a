//! How fast the engine models run: a rollout of 6,400 long-tailed programs on 64 engines, all on one
//! core. Prints counts and the real time that it took.
//!
//! `cargo run --release -p treadle-simulator --example engine_speed`

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use treadle_simulator::engine::{
    Engine, EngineProfile, Output, RequestSpec, chain_hash, content_hash,
};

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
        priority: -(program.steps.len() as i32),
    };
    engine
        .submit(now_us, spec)
        .expect("contexts fit the engine");
}

fn main() {
    let profile = EngineProfile {
        stream_interval_tokens: u32::MAX,
        running_max: 100,
        block_tokens: 64,
        preempt_by_priority: true,
        kv_blocks: 5_632,
        ..EngineProfile::qwen3_8b_h100()
    };
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut programs: Vec<Program> = (0..PROGRAMS)
        .map(|id| program(&mut rng, id, profile.block_tokens))
        .collect();
    let mut engines = vec![Engine::new(profile); ENGINES];
    let start = Instant::now();
    let mut returns: BTreeSet<(u64, usize)> = (0..PROGRAMS).map(|id| (0, id)).collect();
    let mut events: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut known = vec![None; ENGINES];
    let (mut outputs, mut told, mut turns, mut now_us) = (Vec::new(), 0_u64, 0_u64, 0);
    while let Some(next_us) = [returns.first(), events.first()]
        .into_iter()
        .flatten()
        .map(|each| each.0)
        .min()
    {
        turns += 1;
        now_us = next_us;
        let index = if let Some((_, id)) = returns.first().copied().filter(|each| each.0 == now_us)
        {
            returns.pop_first();
            let index = programs[id].engine;
            engines[index].advance(now_us, &mut outputs);
            submit(&mut engines[index], now_us, id, &programs[id]);
            index
        } else {
            let (_, index) = events.pop_first().expect("one of both has it");
            known[index] = None;
            engines[index].advance(now_us, &mut outputs);
            index
        };
        for output in outputs.drain(..) {
            told += 1;
            let Output::Finished(end) = output else {
                continue;
            };
            let program = &mut programs[end.id as usize];
            let (output_tokens, answer_tokens, tool_us) = program.steps[program.step];
            program.context_tokens += output_tokens + answer_tokens;
            program.step += 1;
            if program.step < program.steps.len() {
                returns.insert((end.at_us + tool_us, end.id as usize));
            }
        }
        let next = engines[index].next_event_at();
        if known[index] != next {
            if let Some(at_us) = known[index] {
                events.remove(&(at_us, index));
            }
            events.extend(next.map(|at_us| (at_us, index)));
            known[index] = next;
        }
    }
    let real_s = start.elapsed().as_secs_f64();
    let sum = |of: fn(&Engine) -> u64| engines.iter().map(of).sum::<u64>();
    let tokens = sum(|each| each.snapshot().counters.generation_tokens);
    let iterations = sum(|each| each.snapshot().counters.iterations);
    println!("virtual_s {:.1}", now_us as f64 / 1e6);
    println!("steps {}", sum(|e| e.snapshot().counters.finished_requests));
    println!("tokens {tokens} iterations {iterations} driver_turns {turns} outputs {told}");
    println!(
        "evicted_blocks {} preemptions {} priority_preemptions {}",
        sum(|e| e.snapshot().counters.evicted_blocks),
        sum(|e| e.snapshot().counters.preemptions),
        sum(|e| e.snapshot().counters.priority_preemptions),
    );
    println!(
        "real_s {real_s:.3} iterations_per_s {:.0} tokens_per_s {:.0}",
        iterations as f64 / real_s,
        tokens as f64 / real_s
    );
}
