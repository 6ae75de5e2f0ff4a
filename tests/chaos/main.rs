//! `make chaos`: real PostgreSQL, real RabbitMQ, real daemons and simulated engines under the load
//! of some hundred agent programs, all of them killed (SIGKILL) again and again by a seeded
//! schedule. Afterwards a checker, which reads the database with psql, a consumer's own record and
//! the clients' own record, counts what was lost, counted twice, or stuck.

mod agents;
mod checker;
mod consumer;
mod error;
mod exchange;
mod fixture;
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
    let ended = runtime.block_on(run::run(options));
    runtime.shutdown_background();
    match ended {
        Ok(report) => {
            println!("{:#}", report.to_json());
            if report.is_clean() {
                ExitCode::SUCCESS
            } else {
                failed("something was lost, counted twice or stuck; `problems` has the first ones")
            }
        }
        Err(error) => failed(&error.to_string()),
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
