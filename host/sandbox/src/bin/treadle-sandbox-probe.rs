//! Programs for tests: the keeper of sandboxes, and an agent to be killed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use treadle_sandbox::{Exec, SandboxConfig, SandboxError, SandboxSpec, Sandboxes, sandbox_main};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match &args[..] {
        [word, folder] if word == "agent" => agent(PathBuf::from(folder)),
        args => sandbox_main(args),
    }
}

fn agent(folder: PathBuf) -> ExitCode {
    let Ok(runtime) = tokio::runtime::Runtime::new() else {
        return ExitCode::FAILURE;
    };
    match runtime.block_on(keep(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes a running and a paused sandbox, prints their names, and waits to be killed.
async fn keep(folder: PathBuf) -> Result<(), SandboxError> {
    let program = std::env::current_exe().map_err(SandboxError::Machine)?;
    let config = SandboxConfig::new(program, Vec::new(), folder, vec![0]);
    let sandboxes = Sandboxes::start(config).await?;
    let mut all = Vec::new();
    for is_paused in [false, true] {
        let sandbox = sandboxes.create(SandboxSpec::default()).await?;
        let line = "echo kept > /kept; echo; setsid sleep 600 & sleep 600";
        let mut running = sandbox.run(Exec::new(["/bin/sh", "-c", line])).await?;
        running.next().await;
        if is_paused {
            sandbox.pause().await?;
        }
        println!("{}", sandbox.id());
        all.push(running);
    }
    std::future::pending().await
}
