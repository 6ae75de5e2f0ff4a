//! Malicious commands: what they inherit, how they hang, and what they do to the first process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use treadle_sandbox::{End, Exec, Guard, Input, Sandbox, UserIds};

use crate::stage::{Stage, processes_of, run, sh, until};

const SOON: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

fn shell(line: &str) -> Exec {
    Exec::new(["/bin/sh", "-c", line])
}

/// Follows a command that must be ended; returns its end.
async fn late(sandbox: &std::sync::Arc<Sandbox>, exec: Exec, max: Duration) -> End {
    let mut running = sandbox.run(exec).await.unwrap();
    let ended = tokio::time::timeout(SOON, running.follow(max, |_| ())).await;
    ended.expect("it is not ended").0
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_inherited() {
    // Like a process that starts an agent may leave it.
    let left = std::fs::File::open("/").unwrap();
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).unwrap();
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    // One is the descriptor of the folder itself.
    assert_eq!(
        run(&sandbox, Exec::new(["ls", "/proc/self/fd"])).await.0,
        "0\n1\n2\n3\n"
    );
    let (env, _) = run(&sandbox, Exec::new(["env"])).await;
    let names: Vec<_> = env
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    assert_eq!(names, ["HOME", "PATH"]);
    // The session is the first process's, without a terminal.
    let (stat, _) = run(&sandbox, Exec::new(["cat", "/proc/self/stat"])).await;
    assert_eq!(
        stat.split(' ').skip(5).take(2).collect::<Vec<_>>(),
        ["1", "0"]
    );
    assert_ne!(sh(&sandbox, "echo > /dev/tty").await.1, End::Exited(0));
    let (status, _) = run(&sandbox, Exec::new(["cat", "/proc/self/status"])).await;
    for line in [
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapEff:\t00000000800400fb",
        "Groups:\t ",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let (limits, _) = run(&sandbox, Exec::new(["cat", "/proc/self/oom_score_adj"])).await;
    assert_eq!(limits, "500\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_gives_more_rights() {
    for (guards, user) in [
        (&[][..], "1000\n"),
        (&[Guard::NoNewPrivileges, Guard::Seccomp][..], "0\n"),
    ] {
        let stage = Stage::without(guards).await;
        let sandbox = stage.sandbox().await;
        let line = "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id";
        assert_eq!(sh(&sandbox, line).await.1, End::Exited(0));
        let exec = Exec {
            user: Some(UserIds::new(1_000, 1_000)),
            cwd: "/".to_owned(),
            ..Exec::new(["/tmp/id", "-u"])
        };
        assert_eq!(run(&sandbox, exec).await.0, user);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_streams_do_not_block_others() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let (_, end) = sh(&sandbox, "exec 0<&- 1>&- 2>&-; sleep 0.1; exit 3").await;
    assert_eq!(end, End::Exited(3));
    let input = Input::Bytes(vec![0; 40 << 20]);
    assert_eq!(
        run(
            &sandbox,
            Exec {
                input,
                ..Exec::new(["true"])
            }
        )
        .await
        .1,
        End::Exited(0)
    );
    let input = Input::Piped;
    let mut piped = sandbox
        .run(Exec {
            input,
            ..Exec::new(["sleep", "600"])
        })
        .await
        .unwrap();
    // Nobody reads this output, which exceeds the pipe.
    let mut unread = sandbox
        .run(shell("head -c 100000000 /dev/zero; sleep 600"))
        .await
        .unwrap();
    assert_eq!(
        sh(&sandbox, "echo x").await,
        ("x\n".to_owned(), End::Exited(0))
    );
    unread.stopper().kill().await.unwrap();
    let (end, _) = unread.follow(SOON, |_| ()).await;
    assert_eq!(end, End::Killed(9));
    drop(piped.stdin.take());
    piped.stopper().kill().await.unwrap();
    assert_eq!(piped.follow(SOON, |_| ()).await, (End::Killed(9), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_commands_run_at_once() {
    let stage = Stage::with(|config| config.processes_max = 1_024).await;
    let sandbox = stage.sandbox().await;
    let runs: Vec<_> = (0..300)
        .map(|number: usize| {
            let sandbox = sandbox.clone();
            tokio::spawn(async move {
                sh(&sandbox, &format!("echo {number}; exit {}", number % 50)).await
            })
        })
        .collect();
    for (number, run) in runs.into_iter().enumerate() {
        let code = i32::try_from(number % 50).unwrap();
        assert_eq!(
            run.await.unwrap(),
            (format!("{number}\n"), End::Exited(code))
        );
    }
    assert_eq!(sandbox.status().commands, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_ended_however_they_resist() {
    let stage = Stage::new().await;
    let short = Duration::from_millis(200);
    let lines = [
        "kill -STOP $$",
        "trap '' TERM INT HUP QUIT; while :; do :; done",
        // Children in other groups and sessions, that stop and resume each other.
        "for i in 1 2 3; do setsid sh -c 'while :; do kill -CONT -1; sleep 0.001; done' & done; while :; do sleep 0.001; done",
        // A process that is no longer a descendant resumes the command whenever it is stopped.
        "p=$$; (setsid sh -c \"while kill -CONT $p; do :; done\" &); exec python3 -c 'import os, time\nwhile True:\n try:\n  if os.fork() == 0: time.sleep(0.02); os._exit(0)\n  os.waitpid(-1, os.WNOHANG)\n except OSError: pass'",
    ];
    for line in lines {
        let sandbox = stage.sandbox().await;
        sh(&sandbox, "true").await;
        let began = Instant::now();
        assert_eq!(
            late(&sandbox, shell(line), short).await,
            End::Killed(9),
            "{line}"
        );
        eprintln!("{line}: {:?}", began.elapsed());
        stage.sandboxes.remove(sandbox.id()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_process_survives_all_attacks() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let other = stage.sandbox().await;
    let mut bystander = other.run(Exec::new(["sleep", "600"])).await.unwrap();
    let mut hold = sandbox.run(Exec::new(["sleep", "600"])).await.unwrap();
    let lines = [
        "for s in 1 2 3 6 7 9 10 11 12 13 14 15 18 19 20 24 25 34 64; do for i in 1 2 3; do kill -$s 1; done; done",
        "perl -e 'kill(\"SEGV\", 1) for 1..1000'",
    ];
    for line in lines {
        sh(&sandbox, line).await;
        assert_eq!(sh(&sandbox, "echo x").await.0, "x\n", "{line}");
    }
    // It was not restarted either.
    let ended = hold.follow(SHORT, |_| ()).await;
    assert_eq!(
        ended,
        (End::Killed(9), true),
        "it went with the first process"
    );
    for line in ["kill -9 -1", "kill -STOP -1"] {
        sh(&sandbox, line).await;
        assert_eq!(sh(&sandbox, "echo x").await.0, "x\n", "{line}");
    }
    let ended = bystander.follow(SHORT, |_| ()).await;
    assert_eq!(ended, (End::Killed(9), true), "it was ended by others");
}

/// The first process of a sandbox, by the machine's pid.
fn first_of(sandbox: &Sandbox) -> rustix::process::Pid {
    let is_first = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("NSpid:"));
        line.is_some_and(|line| line.ends_with("\t1"))
    };
    let first = processes_of(sandbox).into_iter().find(is_first);
    rustix::process::Pid::from_raw(first.unwrap()).unwrap()
}

/// Rust's runtime handles two signals, and aborts if both arrive at once.
#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_signals_do_not_end_the_first_process() {
    use rustix::process::{Signal, kill_process};
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let input = Input::Piped;
    let line = "read go; kill -BUS 1; kill -SEGV 1; echo > /tmp/done; read stay";
    let mut running = sandbox
        .run(Exec {
            input,
            ..shell(line)
        })
        .await
        .unwrap();
    let first = first_of(&sandbox);
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap() & 0x7fff_ffff
    };
    assert_eq!(signals("SigCgt:") & !signals("SigBlk:"), 0, "{status}");
    kill_process(first, Signal::STOP).unwrap();
    let mut stdin = running.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"\n")
        .await
        .unwrap();
    let done = stage.files_of(&sandbox).join("tmp/done");
    until("both are sent", || done.exists()).await;
    kill_process(first, Signal::CONT).unwrap();
    assert_eq!(sh(&sandbox, "echo x").await.0, "x\n");
    drop(stdin);
    let (end, is_late) = running.follow(SOON, |_| ()).await;
    assert!(matches!(end, End::Exited(_)) && !is_late, "{end:?}");
    // Processes that it starts receive all signals.
    let (status, _) = run(&sandbox, Exec::new(["cat", "/proc/self/status"])).await;
    assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_too_long_is_refused_with_the_limit_and_a_remedy() {
    let stage = Stage::with(|config| config.memory_bytes = 8 << 20).await;
    let sandbox = stage.sandbox().await;
    for words in [vec!["x".repeat(131_072)], vec!["x".repeat(100_000); 22]] {
        let command = std::iter::once("true".to_owned()).chain(words);
        let error = sandbox
            .run(Exec::new(command))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("the limit is "), "{error}");
        assert!(
            error.ends_with("write it to a file, or send it as the command's input"),
            "{error}"
        );
    }
    // A command just below the limit runs with the minimum of memory.
    let words = vec!["x".repeat(100_000); 10];
    let command = std::iter::once("true".to_owned()).chain(words);
    let mut running = sandbox.run(Exec::new(command)).await.unwrap();
    assert_eq!(running.follow(SOON, |_| ()).await.0, End::Exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_orders_are_refused() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    assert_eq!(
        sh(
            &sandbox,
            "mkfifo /tmp/fifo; echo x > /tmp/text; chmod +x /tmp/text /tmp/fifo"
        )
        .await
        .1,
        End::Exited(0)
    );
    let running = sandbox.run(Exec::new(["sleep", "600"])).await.unwrap();
    let cwd = |cwd: &str| Exec {
        cwd: cwd.to_owned(),
        ..Exec::new(["true"])
    };
    let env = |name: &str| Exec {
        env: BTreeMap::from([(name.to_owned(), "x".to_owned())]),
        ..Exec::new(["true"])
    };
    let orders = [
        Exec::new(Vec::<String>::new()),
        Exec::new([""]),
        Exec::new(["\0"]),
        Exec::new(["/none"]),
        Exec::new(["/tmp"]),
        Exec::new(["/tmp/fifo"]),
        Exec::new(["true".to_owned(), "x".repeat(3 << 20)]),
        Exec::new(["true".to_owned(), "x".repeat(40 << 20)]),
        Exec::new(["\u{1}".repeat(2_000)]),
        Exec::new(["é".repeat(100_000)]),
        cwd("/none"),
        cwd("/tmp/fifo"),
        cwd("/tmp/text/x"),
        cwd("\0"),
        env("\0"),
        Exec {
            user: Some(UserIds::new(65_536, 0)),
            ..Exec::new(["true"])
        },
        Exec {
            user: Some(UserIds::new(u32::MAX, u32::MAX)),
            ..Exec::new(["true"])
        },
    ];
    for exec in orders {
        let told: String = format!("{exec:?}").chars().take(200).collect();
        let refused = tokio::time::timeout(SOON, sandbox.run(exec)).await;
        let refused = refused.unwrap_or_else(|_| panic!("{told} waits"));
        assert!(refused.is_err(), "{told}");
        assert_eq!(sh(&sandbox, "echo x").await.0, "x\n", "{told}");
    }
    for signal in [-1, 0, 65, 1_000] {
        let _ = running.stopper().signal(signal).await;
    }
    assert_eq!(sh(&sandbox, "echo x").await.0, "x\n");
    let mut running = running;
    let ended = running.follow(SHORT, |_| ()).await;
    assert_eq!(
        ended,
        (End::Killed(9), true),
        "the first process was started again"
    );
}
