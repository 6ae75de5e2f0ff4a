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

use clap::Parser;

use options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("no threads can be started: {error}")),
    };
    let mut unclean = Vec::new();
    for form in options.forms.iter().copied() {
        match runtime.block_on(run::run(&options, form)) {
            Ok(report) => {
                println!("{:#}", report.to_json());
                unclean.extend((!report.is_clean()).then_some(form.as_str()));
            }
            Err(error) => {
                failed(&format!("{}: {error}", form.as_str()));
                unclean.push(form.as_str());
            }
        }
    }
    runtime.shutdown_background();
    if unclean.is_empty() {
        return ExitCode::SUCCESS;
    }
    failed(&format!(
        "not clean: {}; `problems` of the report has the first ones",
        unclean.join(", ")
    ))
}

fn failed(why: &str) -> ExitCode {
    eprintln!("chaos: {why}");
    ExitCode::FAILURE
}

/// Reports progress on standard error.
fn report_progress(what: &str) {
    eprintln!("chaos: {what}");
}
