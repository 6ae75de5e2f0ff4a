//! Times the allocation of a budget to many prompts.
//!
//! `cargo run --release -p darts-shaping --example allocate -- [PROMPTS] [--json]`

use std::time::Instant;

use darts_shaping::allocate::{Bounds, allocate, weights};
use darts_shaping::budget::budget;
use treadle_plugin::random::SplitMix64;

const REPEATS: usize = 200;
const SIZE: u32 = 8;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    arguments.retain(|argument| argument != "--json");
    let prompts = arguments.first().map_or(Ok(4_096), |text| text.parse());
    let Ok(prompts) = prompts else {
        eprintln!("give a number of prompts, such as 4096");
        std::process::exit(2);
    };
    let mut random = SplitMix64::new(1);
    let deviations: Vec<f64> = (0..prompts)
        .map(|_| (random.next_u64() % 10_000) as f64)
        .collect();
    let of_group = Bounds {
        low: SIZE,
        up: 2 * SIZE,
    };
    let bounds = vec![of_group; prompts];
    let trained = u64::from(SIZE) * prompts as u64;
    let total = budget(trained, 2 * trained, 1.5, None);
    let mut times_us: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let began = Instant::now();
            let members = allocate(&weights(&deviations), &bounds, total);
            std::hint::black_box(members);
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times_us.sort_by(f64::total_cmp);
    let (best, median, slowest) = (
        times_us[0],
        times_us[REPEATS / 2],
        times_us[REPEATS * 99 / 100],
    );
    let members = allocate(&weights(&deviations), &bounds, total);
    let full = members.iter().filter(|of| **of == 2 * SIZE).count();
    if json {
        let figures = serde_json::json!({
            "prompts": prompts, "members": total, "pruned": full,
            "best_us": best, "median_us": median, "p99_us": slowest,
        });
        println!("{figures}");
    } else {
        println!(
            "{total} members for {prompts} prompts, {full} of them full: {median:.0} us, p99 {slowest:.0} us"
        );
    }
}
