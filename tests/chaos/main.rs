//! `make chaos`: real PostgreSQL, real RabbitMQ, real daemons and simulated engines under the load
//! of some hundred agent programs, all of them killed (SIGKILL) again and again by a seeded
//! schedule. Afterwards a checker, which reads the database with psql, a consumer's own record and
//! the clients' own record, counts what was lost, counted twice, or stuck. It does so in several
//! forms, one after another: see [`form::Form`].

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

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("no threads can be started: {error}")),
    };
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

/// Runs all forms and prints their reports; gives those that were not clean.
async fn run_all(options: Options) -> Vec<&'static str> {
    let places = Arc::new(Semaphore::new(options.at_once));
    let options = Arc::new(options);
    let mut runs = JoinSet::new();
    for form in options.forms.iter().copied() {
        let (places, options) = (places.clone(), options.clone());
        runs.spawn(async move {
            let _place = places.acquire_owned().await;
            (form, run::run(&options, form).await)
        });
    }
    let mut unclean = Vec::new();
    while let Some(ended) = runs.join_next().await {
        match ended {
            Ok((form, Ok(report))) => {
                println!("{:#}", report.to_json());
                unclean.extend((!report.is_clean()).then_some(form.as_str()));
            }
            Ok((form, Err(error))) => {
                report_progress(&format!("{}: {error}", form.as_str()));
                unclean.push(form.as_str());
            }
            Err(error) => {
                report_progress(&format!("a form ended early: {error}"));
                unclean.push("one that ended early");
            }
        }
    }
    unclean
}

fn failed(why: &str) -> ExitCode {
    eprintln!("chaos: {why}");
    ExitCode::FAILURE
}

/// Reports progress on standard error.
fn report_progress(what: &str) {
    eprintln!("chaos: {what}");
}
