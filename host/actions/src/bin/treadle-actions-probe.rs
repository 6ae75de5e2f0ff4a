//! What the tests of actions run, and the measurement of how long it takes until an action runs:
//! `treadle-actions-probe measure FOLDER [STARTS]`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{Receiver, channel};
use treadle_actions::{
    ActionBody, ActionOrder, Executor, ExecutorConfig, MemoryOutputs, SupervisorCommand, recover,
};
use treadle_core::actions::{ActionEvent, Grant};
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

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
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

struct Stage {
    executor: Executor,
    reports: Receiver<ActionEvent>,
    outputs: Arc<MemoryOutputs>,
}

impl Stage {
    async fn new(folder: &Path) -> io::Result<Self> {
        let supervisor = SupervisorCommand {
            program: std::env::current_exe()?,
            args: vec!["supervise".into()],
        };
        let own = SocketAddr::from(([127, 0, 0, 1], 1));
        let config = ExecutorConfig::new(supervisor, folder.to_owned(), own);
        let recovery = recover(&config).await.map_err(io::Error::other)?;
        let outputs = Arc::new(MemoryOutputs::default());
        let (sender, reports) = channel(1_024);
        let executor = Executor::start(config, recovery, outputs.clone(), sender).await;
        Ok(Self {
            executor: executor.map_err(io::Error::other)?,
            reports,
            outputs,
        })
    }

    fn execute(&self, action: u64, body: &serde_json::Value) -> io::Result<()> {
        let body = serde_json::json!({ "process": body }).to_string();
        let body = ActionBody::parse(body.as_bytes()).map_err(io::Error::other)?;
        self.executor.execute(ActionOrder {
            action: ActionId(action),
            attempt: 1,
            grants: vec![Grant {
                resource: "cpu".into(),
                units: 1,
                chunk: None,
            }],
            load: None,
            body: Arc::new(body),
            run_max: Span::from_secs(600),
            job: "probe".to_owned(),
            tenant: "default".to_owned(),
        });
        Ok(())
    }

    /// Whether the next report is that an action began; else its output.
    async fn report(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.reports.recv().await {
            Some(ActionEvent::ActionBegan { .. }) => Ok(None),
            Some(ActionEvent::ActionEnded { output, .. }) => {
                let output = output.and_then(|digest| self.outputs.get(&digest));
                Ok(Some(output.unwrap_or_default()))
            }
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

/// One action ends, and one runs on with processes that hide; then it waits to be killed.
async fn hold(folder: &Path) -> io::Result<()> {
    let mut stage = Stage::new(folder).await?;
    let ends = serde_json::json!({ "command": ["sh", "-c", "echo done; exit 4"] });
    stage.execute(1, &ends)?;
    while stage.report().await?.is_none() {}
    let script = "trap '' TERM; env -i setsid sleep 1000 & echo $! $$ > $PIDS.partial; \
                  mv $PIDS.partial $PIDS; sleep 1000";
    let pids = folder.join("shown").display().to_string();
    let stays = serde_json::json!({ "command": ["sh", "-c", script], "env": { "PIDS": pids } });
    stage.execute(2, &stays)?;
    while stage.report().await.is_ok() {}
    Ok(())
}

/// How long it takes from the call until the action's own program runs.
async fn measure(folder: &Path, starts: u64) -> io::Result<()> {
    let mut stage = Stage::new(folder).await?;
    let program = std::env::current_exe()?.display().to_string();
    let body = serde_json::json!({ "command": [program, "now"] });
    let (mut began, mut ran, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for action in 0..starts {
        let called = now_ns();
        stage.execute(action, &body)?;
        while stage.report().await?.is_some() {}
        began.push(now_ns().saturating_sub(called));
        let output = loop {
            if let Some(output) = stage.report().await? {
                break output;
            }
        };
        ended.push(now_ns().saturating_sub(called));
        let at = String::from_utf8_lossy(&output);
        let at: u64 = at.trim().parse().map_err(io::Error::other)?;
        ran.push(at.saturating_sub(called));
        stage.executor.acknowledge(ActionId(action), 1);
    }
    println!("{starts} starts, one after another");
    show("from the call until its beginning is told", began);
    show("from the call until its own program reads the clock", ran);
    show("from the call until its end is told", ended);
    stage.executor.shutdown().await;
    Ok(())
}

fn show(what: &str, mut all: Vec<u64>) {
    all.sort_unstable();
    let at = |share: f64| {
        let index = ((all.len() - 1) as f64 * share).round() as usize;
        Duration::from_nanos(all[index]).as_secs_f64() * 1e3
    };
    println!(
        "{what}: p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
