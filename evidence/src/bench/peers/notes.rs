//! What must be known to read the figures.

use super::PeersArgs;
use super::measure::{Outcome, RunKey};
use crate::bench::real_engines::RealEngines;
use crate::bench::routers::systems::System;
use treadle_demo::run_counters::LAG_MAX_MS;
use treadle_report::table::number;

/// What all figures have in common.
pub(super) fn conditions(
    args: &PeersArgs,
    real_engines: Option<&RealEngines>,
    workload: &str,
) -> [String; 3] {
    [
        engines(args, real_engines, workload),
        format!(
            "All clocks run {}x faster than real time, and the systems' own times are set by that; \
             seconds and minutes are scaled ones, but for those of CPU time and lag. The window is \
             {} min after {} min. Latencies are those of steps answered in it, and the ages of \
             steps still open at its end.",
            args.time_scale,
            number(args.minutes),
            number(args.warmup_minutes)
        ),
        "Figures are means over seeds. CPU s/1000 is of all processes of the system, for a thousand \
         steps. Lag is the 99th percentile of how much agents overslept, late is how far engines \
         were behind their clocks at worst. x sticky and x best are ratios of means: to treadle's \
         mode that keeps programs in their place, and to the best of that and the others."
            .to_owned(),
    ]
}

fn engines(args: &PeersArgs, real_engines: Option<&RealEngines>, workload: &str) -> String {
    let live = args.live;
    let Some(real_engines) = real_engines else {
        return format!(
            "Engines are SIMULATED: {} of {}, cut to their share of memory. Figures compare \
             systems; they are not those of a GPU. Each run has fresh engines and a fresh process \
             of the system, and {live} agents at once ({workload}), over HTTP without streams. \
             Engines and agents share a process, on the machine that the system runs on.",
            match args.ranks {
                1 => "two models".to_owned(),
                ranks => format!("{ranks} ranks that step together, of one model"),
            },
            args.profile.name
        );
    };
    format!(
        "Engines are the {} of --engines, with the model {}, the same for all runs; they were seen \
         to compute {} prompt tokens in a scaled second. Each run has a fresh process of the system, \
         texts of its own, and {live} agents at once ({workload}), whose token counts are scaled \
         until the engines' KV memory is its share of the peak demand. Host memory is what the \
         engines have, and is not seen here.",
        real_engines.count(),
        real_engines.model,
        number(real_engines.prefill_tokens_per_s)
    )
}

/// What went wrong, and what makes figures unreliable.
pub(super) fn findings(
    systems: &[System],
    outcomes: &[Outcome],
    missed: &[(RunKey, String)],
    time_scale: f64,
) -> Vec<String> {
    let mut notes = Vec::new();
    for system in systems.iter().map(|system| system.name.as_str()) {
        let of_system = outcomes.iter().filter(|o| o.key.system == system);
        let failed = of_system.clone().map(|o| o.failures).sum::<u64>();
        if let Some(first) = of_system.clone().find_map(|o| o.first_failure.as_ref()) {
            notes.push(format!(
                "{system}: {failed} requests failed in all runs, the first with {first}"
            ));
        }
        if let Some(cause) = of_system.clone().find_map(|o| o.first_refused.as_ref()) {
            notes.push(format!(
                "{system}: the request before the agents was not answered: {cause}"
            ));
        }
        let missed = missed.iter().filter(|(key, _)| key.system == system);
        if let Some((_, cause)) = missed.clone().next() {
            notes.push(format!(
                "{system} is missing in {} runs: {cause}",
                missed.count()
            ));
        }
    }
    let lag_ms = outcomes.iter().map(|o| o.lag_p99_ms);
    let lag_ms = lag_ms.fold(0.0, f64::max);
    if lag_ms * time_scale > LAG_MAX_MS {
        notes.push(format!(
            "WARNING: the figures are unreliable: this machine wakes agents {} ms too late. \
             Lower --time-scale, or let nothing else run.",
            number(lag_ms)
        ));
    }
    notes
}
