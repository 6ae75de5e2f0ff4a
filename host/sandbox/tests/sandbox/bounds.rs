//! Bombs, no larger than the machine can bear: limits end them without affecting others, and
//! without the limits they go off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use treadle_sandbox::{End, Exec, Guard, Share, State};

use crate::stage::{Stage, processes_of, run, sh, until};

/// Maximum duration of a neighbour's command during a bomb, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

async fn ends(guards: &[Guard], line: &str) -> End {
    let stage = Stage::without(guards).await;
    let (bomb, other) = (stage.sandbox().await, stage.sandbox().await);
    assert_eq!(
        sh(&other, "sleep 600 > /dev/null &").await.1,
        End::Exited(0)
    );
    let (output, end) = sh(&bomb, line).await;
    eprintln!("{guards:?}: {line}: {end:?}: {output}");
    assert_eq!(
        sh(&other, "kill -0 %1 || pgrep sleep").await.1,
        End::Exited(0)
    );
    end
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_bounded() {
    let line = "i=0; while [ $i -lt 200 ]; do sleep 60 > /dev/null 2>&1 & i=$((i+1)); done";
    assert_ne!(ends(&[], line).await, End::Exited(0));
    assert_eq!(ends(&[Guard::Cgroup], line).await, End::Exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_affects_nobody_and_is_removed() {
    let stage = Stage::new().await;
    let (bomb, other) = (stage.sandbox().await, stage.sandbox().await);
    assert_eq!(sh(&other, "true").await.1, End::Exited(0));
    let line = "python3 -c 'import os\nwhile True:\n try: os.fork()\n except OSError: pass'";
    let mut running = bomb.run(Exec::new(["/bin/sh", "-c", line])).await.unwrap();
    until("it multiplies", || processes_of(&bomb).len() > 30).await;
    let began = Instant::now();
    assert_eq!(sh(&other, "true").await.1, End::Exited(0));
    let here = std::process::Command::new("true").status().unwrap();
    assert!(
        here.success() && began.elapsed() < SOON,
        "{:?}",
        began.elapsed()
    );
    assert!(processes_of(&bomb).len() <= 64);
    stage.sandboxes.remove(bomb.id()).await;
    let (end, _) = running.follow(SOON, |_| ()).await;
    assert_eq!(end, End::Gone);
    stage.gone(&bomb).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded() {
    let lines = [
        "exec perl -e '$x = \"x\" x (400 << 20); print length($x)'",
        // In a memory file, which belongs to no process.
        "exec python3 -c 'import os; [os.write(os.memfd_create(\"m\"), bytes(20 << 20)) for _ in range(20)]'",
        // By many small processes.
        "for i in 1 2 3 4 5 6 7 8; do perl -e '$x = \"x\" x (25 << 20); sleep 1' & done; wait; perl -e '$x = \"x\" x (400 << 20)'",
    ];
    for line in lines {
        assert_eq!(ends(&[], line).await, End::OutOfMemory, "{line}");
    }
    assert_eq!(ends(&[Guard::Cgroup], lines[0]).await, End::Exited(0));
    assert_eq!(ends(&[Guard::Cgroup], lines[1]).await, End::Exited(0));
}

/// Each writes about 24 MB, 16 more than allowed.
const WRITERS: [(&str, &str); 6] = [
    ("one file", "dd if=/dev/zero of=/tmp/file bs=1M count=100"),
    (
        "small files",
        "perl -e 'mkdir(\"/tmp/d\"); for (1..6400) { open(F, \">/tmp/d/$_\") or die; print F \"x\" x 4096 or die; close(F) }'",
    ),
    (
        "empty files",
        "perl -e 'mkdir(\"/tmp/d\"); for (1..6400) { open(F, \">/tmp/d/$_\") or die; close(F) }'",
    ),
    (
        "files too deep for a path",
        "perl -e '$n = \"n\" x 250; chdir(\"/tmp\"); for (1..20) { mkdir($n) or die; chdir($n) or die } for (1..6) { open(F, \">$_\") or die; print F \"x\" x (4 << 20) or die; close(F) }'",
    ),
    (
        "files without a name",
        "perl -e 'for my $i (1..3) { open($f[$i], \">/tmp/f\") or die; unlink(\"/tmp/f\"); syswrite($f[$i], \"x\" x (1 << 20)) == 1 << 20 or die for 1..9 } {hold}'",
    ),
    (
        "mapped files without a name",
        "python3 -c 'import ctypes, os, time\nc = ctypes.CDLL(None)\nc.mmap.restype = ctypes.c_void_p\nc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\nfor _ in range(3):\n f = os.open(\"/tmp/f\", os.O_RDWR | os.O_CREAT); os.unlink(\"/tmp/f\"); os.ftruncate(f, 9 << 20); m = c.mmap(None, 9 << 20, 3, 1, f, 0); ctypes.memset(m, 120, 9 << 20); os.fsync(f); os.close(f)\ntime.sleep({seconds})'",
    ),
];

/// A writer succeeds without the limit, is ended by it, and may clean up.
async fn write(stage: &Stage, free: &Stage, what: &str, writer: &str) {
    let line = |seconds: &str| {
        let writer = writer.replace("{seconds}", seconds);
        writer.replace("{hold}", &format!("sleep({seconds})"))
    };
    let sandbox = free.sandbox().await;
    let (output, end) = sh(&sandbox, &line("0")).await;
    assert_eq!(end, End::Exited(0), "{what}: {output}");
    free.sandboxes.remove(sandbox.id()).await;
    let sandbox = stage.sandbox().await;
    let (output, end) = sh(&sandbox, &format!("{}; sleep 25", line("25"))).await;
    assert_eq!(end, End::OutOfDisk, "{what}: {output}");
    let line = "rm -rf /tmp/*; sleep 1; echo x > /tmp/x";
    assert_eq!(sh(&sandbox, line).await.1, End::Exited(0), "{what}");
    stage.sandboxes.remove(sandbox.id()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_is_bounded() {
    let disk = 16 << 20;
    let stage = Stage::with(|config| config.disk_bytes_max = disk).await;
    let free = Stage::with(|config| {
        config.disk_bytes_max = disk;
        config.without = vec![Guard::Disk];
    })
    .await;
    let (stage, free) = (Arc::new(stage), Arc::new(free));
    let writes = WRITERS.map(|(what, writer)| {
        let (stage, free) = (stage.clone(), free.clone());
        tokio::spawn(async move { write(&stage, &free, what, writer).await })
    });
    for write in writes {
        write.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_file_beyond_the_limit_is_out_of_disk() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let command = ["dd", "if=/dev/zero", "of=/tmp/file", "bs=1M", "count=100"];
    assert_eq!(run(&sandbox, Exec::new(command)).await.1, End::OutOfDisk);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_limit_applies_to_background_processes() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    // Slow enough to distinguish the stop from the end of the writer.
    let writer = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); dd if=/dev/zero of=/tmp/$i bs=4M count=1; sleep 0.05; done";
    let line = format!("({writer}) > /dev/null 2>&1 &");
    assert_eq!(sh(&sandbox, &line).await.1, End::Exited(0));
    until("it is ended", || sandbox.status().state == State::Stopped).await;
    let written = sandbox.status().disk_bytes;
    assert!((64 << 20..160 << 20).contains(&written), "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_limit_applies_across_commands() {
    let stage = Stage::with(|config| config.disk_bytes_max = 8 << 20).await;
    let sandbox = stage.sandbox().await;
    let mut runs = 0;
    loop {
        let line = format!("head -c 6000000 /dev/zero > /tmp/{runs}; sleep 25");
        let Ok(mut running) = sandbox.run(Exec::new(["/bin/sh", "-c", &line])).await else {
            break;
        };
        let short = Duration::from_millis(if runs == 0 { 50 } else { 20_000 });
        running.follow(short, |_| ()).await;
        runs += 1;
        assert!(runs < 8, "it writes on");
    }
    // The excess is removed from outside; then the sandbox works again.
    sandbox.remove_file("/tmp").await.unwrap();
    until("it is measured", || sandbox.status().disk_bytes < 1 << 20).await;
    assert_eq!(sh(&sandbox, "true").await.1, End::Exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn cores_are_those_granted() {
    let lines = [
        "test $(nproc) -gt 1",
        "taskset -c 1 true",
        "python3 -c 'import os; os.sched_setaffinity(0, {0, 1})' && python3 -c 'import os; os.sched_setaffinity(0, {1})'",
    ];
    let (stage, free) = (Stage::new().await, Stage::without(&[Guard::Cgroup]).await);
    for line in lines {
        let exec = || Exec {
            share: Share::Cores(vec![0]),
            ..Exec::new(["/bin/sh", "-c", line])
        };
        let (output, end) = run(&stage.sandbox().await, exec()).await;
        assert_ne!(end, End::Exited(0), "{line}: {output}");
        let (output, end) = run(&free.sandbox().await, exec()).await;
        assert_eq!(end, End::Exited(0), "{line}: {output}");
    }
}

/// Per-user limits of the kernel: whether a sandbox uses up those of others.
const SHARED: [(&str, &str, &str); 2] = [
    (
        "watches of files",
        "perl -e 'while ($n < 200 && (my $f = syscall(294, 0)) >= 0) { $n++ } $| = 1; print \"$n\\n\"; sleep(60)'",
        "perl -e 'exit(syscall(294, 0) >= 0 ? 0 : 1)'",
    ),
    (
        "terminals",
        "perl -e 'while ($n < 4000 && open($f[$n], \"+<\", \"/dev/ptmx\")) { $n++ } $| = 1; print \"$n\\n\"; sleep(60)'",
        "perl -e 'exit(open(F, \"+<\", \"/dev/ptmx\") ? 0 : 1)'",
    ),
];

#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn per_user_limits_are_separate_for_each_sandbox() {
    let stage = Stage::new().await;
    for (what, line, one) in SHARED {
        let (greedy, other) = (stage.sandbox().await, stage.sandbox().await);
        let command = Exec::new(["/bin/sh", "-c", line]);
        let mut running = greedy.run(command).await.unwrap();
        let told = running.next().await;
        eprintln!("{what}: {told:?}");
        assert_eq!(sh(&other, one).await.1, End::Exited(0), "{what}: {told:?}");
        let here = std::process::Command::new("/bin/sh")
            .args(["-c", one])
            .status();
        assert!(here.unwrap().success(), "{what}: {told:?}");
        running.stopper().kill().await.unwrap();
    }
}
