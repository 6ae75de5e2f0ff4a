//! What the tests of actions run, and the measurement of how long it takes until an action runs:
//! `treadle-actions-probe measure FOLDER [STARTS]`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::Receiver;
use treadle_actions::{
    ActionBody, Executor, ExecutorConfig, ExecutorEvent, MemoryOutputs, StartRequest,
    SupervisorCommand,
};
use treadle_core::actions::Grant;
use treadle_model::{ActionId, Span};

const USAGE: &str = "usage: treadle-actions-probe supervise | now | serve | hold FOLDER | \
                     measure FOLDER [STARTS]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["supervise"] => return treadle_actions::supervisor_main(),
        ["now"] => writeln!(io::stdout(), "{}", now_ns()),
        ["serve"] => serve(),
        ["hold", folder] => within_runtime(hold(Path::new(folder))),
        ["measure", folder] => within_runtime(measure(Path::new(folder), 500)),
        ["measure", folder, starts] => match starts.parse() {
            Ok(starts @ 1..=1_000_000) => within_runtime(measure(Path::new(folder), starts)),
            _ => Err(io::Error::other("STARTS is 1 to 1000000")),
        },
        _ => Err(io::Error::other(USAGE)),
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

fn within_runtime(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    { runtime }.enable_all().build()?.block_on(work)
}

/// A service: it answers who it is, where, and in which process.
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

fn executor(folder: &Path) -> io::Result<(Executor, Receiver<ExecutorEvent>)> {
    let supervisor = SupervisorCommand {
        program: std::env::current_exe()?,
        args: vec!["supervise".into()],
    };
    let own = SocketAddr::from(([127, 0, 0, 1], 1));
    let config = ExecutorConfig::new(supervisor, folder.to_owned(), own);
    Executor::new(config, Arc::new(MemoryOutputs::default())).map_err(io::Error::other)
}

fn request(action: u64, body: Arc<ActionBody>) -> StartRequest {
    StartRequest {
        action: ActionId(action),
        attempt: 1,
        grants: vec![Grant {
            resource: "cpu".into(),
            units: 1,
            chunk: None,
        }],
        load: None,
        body,
        run_max: Span::from_secs(600),
        tenant: "default".to_owned(),
    }
}

fn body(json: &serde_json::Value) -> io::Result<Arc<ActionBody>> {
    let body = ActionBody::parse(json.to_string().as_bytes());
    body.map(Arc::new).map_err(io::Error::other)
}

/// One action ends, and one runs on with processes that hide; then it waits to be killed.
async fn hold(folder: &Path) -> io::Result<()> {
    let (executor, mut events) = executor(folder)?;
    let ends = body(&serde_json::json!({ "shell": "echo done; exit 4" }))?;
    executor.start(request(1, ends)).map_err(io::Error::other)?;
    while !matches!(events.recv().await, Some(ExecutorEvent::Ended { .. })) {}
    let script = "trap '' TERM; env -i setsid sleep 1000 & echo $! $$ > $PIDS.partial; \
                  mv $PIDS.partial $PIDS; sleep 1000";
    let pids = folder.join("shown").display().to_string();
    let stays = body(&serde_json::json!({ "shell": script, "env": { "PIDS": pids } }))?;
    executor
        .start(request(2, stays))
        .map_err(io::Error::other)?;
    while events.recv().await.is_some() {}
    Ok(())
}

/// How long it takes from the call until the action's own program runs.
async fn measure(folder: &Path, starts: u64) -> io::Result<()> {
    let (executor, mut events) = executor(folder)?;
    let outputs = folder.join("now");
    let program = std::env::current_exe()?.display().to_string();
    let script = "exec \"$PROBE\" now > \"$NOW\"";
    let env = serde_json::json!({ "PROBE": program, "NOW": outputs.display().to_string() });
    let body = body(&serde_json::json!({ "shell": script, "env": env }))?;
    let (mut until_run, mut until_end) = (Vec::new(), Vec::new());
    for action in 0..starts {
        let called = now_ns();
        let request = request(action, body.clone());
        executor.start(request).map_err(io::Error::other)?;
        while !matches!(events.recv().await, Some(ExecutorEvent::Ended { .. })) {}
        until_end.push(now_ns().saturating_sub(called));
        let ran: u128 = std::fs::read_to_string(&outputs)?
            .trim()
            .parse()
            .map_err(io::Error::other)?;
        until_run.push(ran.saturating_sub(called));
        executor.acknowledge(ActionId(action), 1).await?;
    }
    println!("{starts} starts, one after another");
    show("from the call until its program runs", until_run);
    show("from the call until its end is told", until_end);
    Ok(())
}

fn show(what: &str, mut all: Vec<u128>) {
    all.sort_unstable();
    let at = |share: f64| {
        let index = ((all.len() - 1) as f64 * share).round() as usize;
        Duration::from_nanos(all[index] as u64).as_secs_f64() * 1e3
    };
    println!(
        "{what}: p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
