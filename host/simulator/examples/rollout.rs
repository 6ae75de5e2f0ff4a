//! One cell of the contest, system by system: `cargo run --release --example rollout -- coding qwen3-14b`.

use std::time::Instant;
use treadle_simulator::contest::{
    AllocationKind, BASELINES, Cell, Contest, FULL, PlacementKind, PredictionKind, PriorityKind,
    System,
};
use treadle_simulator::workload::{AgentModel, AgentTask};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let task = args
        .first()
        .and_then(|a| AgentTask::named(a))
        .unwrap_or(AgentTask::Coding);
    let model = args
        .get(1)
        .and_then(|a| AgentModel::named(a))
        .unwrap_or(AgentModel::Qwen3Of14B);
    let contest = Contest::new(Cell::of(task, model, 1)).expect("a contest");
    let bound = contest.speed_of_light();
    println!("{bound:?}");
    let variants = [
        FULL,
        System {
            name: "oracle",
            prediction: PredictionKind::Oracle,
            ..FULL
        },
        System {
            name: "still",
            placement: PlacementKind::HeddleStill,
            ..FULL
        },
        System {
            name: "oracle still",
            prediction: PredictionKind::Oracle,
            placement: PlacementKind::HeddleStill,
            ..FULL
        },
        System {
            name: "least-load",
            placement: PlacementKind::LeastLoad,
            ..FULL
        },
        System {
            name: "sticky",
            placement: PlacementKind::Sticky,
            ..FULL
        },
        System {
            name: "oracle sticky",
            prediction: PredictionKind::Oracle,
            placement: PlacementKind::Sticky,
            ..FULL
        },
        System {
            name: "rr",
            priority: PriorityKind::RoundRobin,
            ..FULL
        },
        System {
            name: "baseline degrees",
            allocation: AllocationKind::Baseline,
            ..FULL
        },
        System {
            name: "fix8",
            allocation: AllocationKind::Fix8,
            ..FULL
        },
    ];
    let wanted = args.get(2).cloned().unwrap_or_default();
    for system in BASELINES
        .into_iter()
        .chain(variants)
        .filter(|s| wanted.is_empty() || wanted.split(',').any(|w| w == s.name))
    {
        let started = Instant::now();
        let r = contest.run(&system, 0).expect("runs");
        let took = started.elapsed().as_secs_f64();
        let s = |us: u64| us / 1_000_000;
        println!(
            "{:18} {:7.1} s x{:.2} of bound | hit {:.2} prefill {:4}M preempt {:5}/{:5} moves {:5} migr {:4}/{:3} busy {:.2} | last q {} d {} i {} t {} | mean q {} d {} i {} | {took:.2} s, {:.0} ev/s {:?}",
            system.name,
            r.makespan_s,
            r.makespan_s / bound.bound_s(),
            r.hit_rate,
            r.prefilled_tokens / 1_000_000,
            r.preemptions,
            r.priority_preemptions,
            r.moves,
            r.migrations,
            r.migrations_cancelled,
            r.busy,
            s(r.last.queue_and_prefill_us),
            s(r.last.decode_us),
            s(r.last.interference_us),
            s(r.last.tool_us),
            s(r.mean.queue_and_prefill_us),
            s(r.mean.decode_us),
            s(r.mean.interference_us),
            r.events as f64 / took,
            contest.plan(&system),
        );
    }
}
