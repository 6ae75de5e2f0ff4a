//! Every method of a store under every error of its database, injected below sqlx: by a failing
//! file system below SQLite, and by a proxy in front of PostgreSQL.
//!
//! These tests run a sample. `make faults` runs everything and prints a report.

#[path = "../conformance/backends.rs"]
#[allow(dead_code, reason = "only some of it is used here")]
mod backends;
#[path = "../conformance/rows.rs"]
#[allow(dead_code, reason = "only some of the rows are used here")]
mod rows;

mod fault_run;
mod operations;
mod proxy;
mod vfs;

use fault_run::{FaultRun, Injector, Report};
use proxy::{Fault, Proxy};
use treadle_store::{Location, PostgresLocation, open};

/// If set, everything is run instead of a sample: of all operations, or of the one that it names.
const EVERYTHING: &str = "TREADLE_FAULTS";

fn is_sample() -> bool {
    std::env::var_os(EVERYTHING).is_none()
}

/// Injects faults into the file system.
struct Disk;

impl Injector for Disk {
    type Fault = (vfs::Call, &'static str, i32);
    const SAMPLED: usize = 9;

    fn faults(&self) -> Vec<Self::Fault> {
        let of = |(call, errors): &(vfs::Call, &'static [(&'static str, i32)])| {
            let call = *call;
            errors.iter().map(move |(name, code)| (call, *name, *code))
        };
        vfs::Call::ERRORS.iter().flat_map(of).collect()
    }

    fn arm(&self, (call, _, code): Self::Fault, after: u64, stays: bool) {
        vfs::arm(call, code, after, stays);
    }

    fn disarm(&self) -> u64 {
        vfs::disarm()
    }

    fn met(&self) -> (usize, usize) {
        vfs::met()
    }
}

impl Injector for Proxy {
    type Fault = Fault;
    // Most faults cost a connection.
    const SAMPLED: usize = 61;

    fn faults(&self) -> Vec<Fault> {
        proxy::all()
    }

    fn arm(&self, fault: Fault, after: u64, stays: bool) {
        Self::arm(self, fault, after, stays);
    }

    fn disarm(&self) -> u64 {
        Self::disarm(self)
    }

    fn met(&self) -> (usize, usize) {
        Self::met(self)
    }
}

/// Runs all operations on an empty store.
async fn survives<I: Injector>(at: &Location, injector: &I) -> Report {
    let mut report = Report::default();
    for mut operations in [operations::all(), operations::leading()] {
        let only = std::env::var(EVERYTHING).ok().filter(|name| name != "all");
        operations.retain(|operation| only.as_ref().is_none_or(|name| operation.name == *name));
        let store = open(at).await.unwrap();
        if report.operations == 0 {
            operations::fill(&*store, at).await.unwrap();
        }
        let mut run = FaultRun {
            store,
            at: at.clone(),
            injector,
            next: 1_000,
            report,
        };
        run.run(&operations, is_sample()).await;
        run.ends_whole().await;
        report = run.report;
    }
    report
}

fn judge(store: &str, report: &Report) {
    if !is_sample() {
        println!("{}", report.json(store));
    }
    let first = report.violations.iter().take(20).cloned();
    let first: Vec<String> = first.collect();
    let count = report.violations.len();
    assert!(count == 0, "{count} violations:\n{}", first.join("\n"));
    assert!(report.cases > 50 && report.recovered > 20, "{report:?}");
}

#[tokio::test]
async fn sqlite_survives_every_error_of_its_disk() {
    vfs::install();
    let scratch = backends::file();
    judge("sqlite", &survives(&scratch.at, &Disk).await);
}

#[tokio::test]
async fn postgres_survives_every_error_of_its_server() {
    let Some(scratch) = backends::schema() else {
        return;
    };
    let real = scratch.postgres();
    let server = backends::address(&real.url);
    let proxy = Proxy::new(&server);
    let near = format!("127.0.0.1:{}", proxy.port);
    let at = Location::Postgres(PostgresLocation {
        url: real.url.replacen(&server, &near, 1),
        ..real.clone()
    });
    judge("postgres", &survives(&at, &proxy).await);
}
