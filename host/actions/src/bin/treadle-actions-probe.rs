//! The programs that the tests of actions run.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("supervise") => return treadle_actions::supervisor_main(),
        Some("now") => writeln!(io::stdout(), "{}", now_ns()),
        Some("serve") => serve(),
        _ => Err(io::Error::other(
            "usage: treadle-actions-probe supervise | now | serve",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn now_ns() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos()
}

/// A service that returns its name, its port and its process id.
fn serve() -> io::Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let port: u16 = variable("TREADLE_PORT").parse().map_err(io::Error::other)?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let (service, devices) = (variable("TREADLE_SERVICE"), variable("TREADLE_DEVICES"));
    let body = format!("{service} {devices} {}", std::process::id());
    loop {
        let (mut connection, _) = listener.accept()?;
        let mut request = [0; 4_096];
        let _ = connection.read(&mut request);
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
        let _ = write!(connection, "{head}: {}\r\n\r\n{body}", body.len());
    }
}
