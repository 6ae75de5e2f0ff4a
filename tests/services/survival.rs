//! A private server that is killed and restarted keeps committed data and its URL.

use treadle_services::{Servers, Service, are_skipped};

#[test]
fn a_killed_database_comes_back_with_what_was_committed() {
    if are_skipped() {
        return;
    }
    let servers = Servers::start(&[Service::Postgres]).expect("a database");
    let psql = servers.psql().expect("its URL");
    psql.run("CREATE TABLE t (x int); INSERT INTO t SELECT generate_series(1, 1000)")
        .expect("it takes rows");
    servers.kill(Service::Postgres).expect("it dies");
    assert!(psql.run("SELECT 1").is_err(), "it answers after its death");
    assert!(servers.kill(Service::Postgres).is_err(), "it died twice");
    servers.restart(Service::Postgres).expect("it comes back");
    let rows = psql.rows("SELECT count(*), max(x) FROM t").expect("rows");
    assert_eq!(rows, [["1000", "1000"]]);
    let folder = servers.folder().to_owned();
    assert!(folder.exists());
    drop(servers);
    assert!(!folder.exists(), "{} is left", folder.display());
    assert!(psql.run("SELECT 1").is_err(), "it runs on");
}
