//! `make chaos`: real PostgreSQL, real RabbitMQ, real daemons and simulated engines under the load
//! of some hundred agent programs, all of them killed (SIGKILL) again and again by a seeded
//! schedule. Afterwards a checker, which reads the database with psql, a consumer's own record and
//! the clients' own record, counts what was lost, counted twice, or stuck. It does so in several
//! forms, one after another: see [`form::Form`].

mod actions;
mod agents;
mod checker;
mod consumer;
mod error;
mod exchange;
mod fixture;
mod form;
mod options;
mod record;
mod report;
mod run;
mod schedule;
mod training;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use form::Form;
use options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("no threads can be started: {error}")),
    };
    if let (Some(url), Some(folder)) = (&options.trainer, &options.folder) {
        let trained = training::trainer::train(url.clone(), folder, options.seed);
        let trained = runtime.block_on(trained);
        return trained.map_or_else(|error| failed(&error.to_string()), |()| ExitCode::SUCCESS);
    }
    let unclean = runtime.block_on(run_all(options));
    runtime.shutdown_background();
    if unclean.is_empty() {
        return ExitCode::SUCCESS;
    }
    failed(&format!(
        "not clean: {}; `problems` of the report has the first ones",
        unclean.join(", ")
    ))
}

/// Runs all forms in order; returns those that were not clean.
async fn run_all(options: Options) -> Vec<&'static str> {
    let places = Arc::new(Semaphore::new(options.at_once.max(1)));
    let options = Arc::new(options);
    let mut runs = JoinSet::new();
    for form in options.forms.iter().copied() {
        let place = places.clone().acquire_owned().await;
        let options = options.clone();
        runs.spawn(async move {
            let is_clean = run_one(&options, form).await;
            drop(place);
            (!is_clean).then_some(form.as_str())
        });
    }
    let mut unclean = Vec::new();
    while let Some(ended) = runs.join_next().await {
        unclean.extend(ended.unwrap_or(Some("one that ended early")));
    }
    unclean
}

/// Runs a form and prints its report; returns whether it was clean.
async fn run_one(options: &Options, form: Form) -> bool {
    match run::run(&options.of(form), form).await {
        Ok(report) => {
            println!("{:#}", report.to_json());
            report.is_clean()
        }
        Err(error) => {
            report_progress(&format!("{}: {error}", form.as_str()));
            false
        }
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("chaos: {why}");
    ExitCode::FAILURE
}

/// Reports progress on standard error.
fn report_progress(what: &str) {
    eprintln!("chaos: {what}");
}
