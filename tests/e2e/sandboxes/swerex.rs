//! SWE-ReX's own packages, with only their URL changed, and requests that they don't send.

use super::stage::{open, passes, python, raises, sandbox, strict};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;

async fn client_passes(fixture: &Fixture, packages: &str) {
    let Some(python) = python(packages) else {
        return;
    };
    let client = &fixture.client;
    let path = sandbox(client).await;
    let token = client.token().expect("the owner has one").to_owned();
    let env = [
        ("SWEREX_URL", format!("{}{path}", client.base())),
        ("SWEREX_TOKEN", token),
    ];
    passes(&python, "swerex_client.py", &env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_package_of_swe_rex_works_with_another_url() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = strict(folder.path()).await;
    client_passes(&fixture, "newest").await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_package_of_swe_rex_works_with_another_url() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = strict(folder.path()).await;
    client_passes(&fixture, "older").await;
    fixture.stop().await;
}

/// A shell of a sandbox.
struct Shell<'a> {
    client: &'a Client,
    path: String,
}

impl<'a> Shell<'a> {
    async fn new(client: &'a Client) -> Self {
        let path = sandbox(client).await;
        let shell = Self { client, path };
        let create = json!({"session_type": "bash"});
        let made = shell.post("create_session", &create).await.ok();
        assert_eq!(made["session_type"], "bash");
        shell
    }

    async fn post(&self, call: &str, body: &Value) -> treadle_tests::support::client::Answer {
        let path = format!("{}/{call}", self.path);
        self.client.post(&path, body).await
    }

    async fn try_run(&self, command: &str, timeout: f64) -> treadle_tests::support::client::Answer {
        let body = json!({
            "action_type": "bash", "command": command, "timeout": timeout, "check": "silent",
        });
        self.post("run_in_session", &body).await
    }

    /// Runs a command; returns its output and exit code.
    async fn run(&self, command: &str) -> (String, Value) {
        let mut observed = self.try_run(command, 30.0).await.ok();
        let output = observed["output"].as_str().expect("text").to_owned();
        (output, observed["exit_code"].take())
    }

    async fn interrupt(&self) -> Value {
        let body = json!({"action_type": "bash_interrupt"});
        self.post("run_in_session", &body).await.ok()
    }
}

async fn used_cores(client: &Client) -> u64 {
    let resources = client.get("/api/v1/resources").await.ok();
    let all = resources["resources"].as_array().expect("a list");
    let cpu = all.iter().find(|one| one["name"] == "cpu").expect("cores");
    cpu["used"].as_u64().expect("a number")
}

async fn until_cores_are_free(client: &Client) {
    for _ in 0..2_000 {
        if used_cores(client).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("commands that are over have cores");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_does_what_terminals_of_others_stumble_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let shell = Shell::new(&fixture.client).await;
    for (command, output, code) in [
        ("cat <<EOF\nx\nEOF\necho z", "x\nz\n", 0),
        ("cat <<EOF > f; cat f\n$((1+2))\nEOF", "3\n", 0),
        ("cat; read line; echo \"got $line\"", "got \n", 0),
        ("case a in a) [[ x ]] && echo yes;; esac", "yes\n", 0),
        ("stty echo </dev/tty; echo quiet", "quiet\n", 0),
        ("echo still", "still\n", 0),
        ("PS1='other '; exec >log 2>&1; echo hidden", "", 0),
        ("exec >/dev/tty 2>&1; cat log", "hidden\n", 0),
        ("# nothing", "", 0),
        ("printf 'a\\r\\n\\xff\\033[1mb'; false", "a\r\n\\xffb", 1),
    ] {
        assert_eq!(
            shell.run(command).await,
            (output.to_owned(), json!(code)),
            "{command}"
        );
    }
    let (output, _) = shell.run("yes | head -c 5000000; echo end").await;
    assert!(output.ends_with("end\n") && output.len() < 2 << 20);
    assert!(output.contains("bytes omitted]"));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_keeps_its_options_and_what_looks_like_its_prompt() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let shell = Shell::new(&fixture.client).await;
    let globs = "mkdir -p g; cd g; touch a b c; echo !(b); cd ..";
    raises(
        &shell.try_run(globs, 10.0).await,
        "swerex.exceptions.BashIncorrectSyntaxError",
    );
    for (command, output, code) in [
        ("shopt -s extglob\necho !(x) >/dev/null", "", 0),
        (globs, "a c\n", 0),
        ("set -u -f -o pipefail", "", 0),
        ("echo $- | grep -c u; echo *; set +u +f", "1\n*\n", 0),
        (
            "echo SHELLPS1PREFIX; echo after",
            "SHELLPS1PREFIX\nafter\n",
            0,
        ),
        (
            "printf 'SHELLPS1PREFIX'; sleep 0.1; echo; false",
            "SHELLPS1PREFIX\n",
            1,
        ),
    ] {
        assert_eq!(
            shell.run(command).await,
            (output.to_owned(), json!(code)),
            "{command}"
        );
    }
    // A program that clients talk to may write what looks like a prompt, too.
    let talk = async |command: &str, kind: &str| {
        let mut body = json!({"action_type": "bash", "command": command, "timeout": 20});
        body[kind] = json!(true);
        if kind == "is_interactive_command" {
            body["expect"] = json!([">>> "]);
        }
        shell.post("run_in_session", &body).await.ok()
    };
    talk("python3 -q", "is_interactive_command").await;
    let told = talk(
        "print('SHELLPS1PREFIX'); print('and on')",
        "is_interactive_command",
    )
    .await;
    assert_eq!(told["output"], "SHELLPS1PREFIX\nand on", "{told}");
    let left = talk("exit()", "is_interactive_quit").await;
    assert_eq!(left["expect_string"], "SHELLPS1PREFIX");
    assert_eq!(
        shell.run("echo back").await,
        ("back\n".to_owned(), json!(0))
    );
    // A client may wait for its own prompt.
    let body = json!({
        "action_type": "bash", "command": "echo hi", "is_interactive_command": true,
        "expect": ["SHELLPS1PREFIX"], "timeout": 20,
    });
    let told = shell.post("run_in_session", &body).await.ok();
    assert_eq!(
        (&told["output"], &told["expect_string"]),
        (&json!("hi"), &json!("SHELLPS1PREFIX"))
    );
    assert_eq!(shell.run("echo on").await, ("on\n".to_owned(), json!(0)));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_wrote_what_was_expected_goes_on_to_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let shell = Shell::new(&fixture.client).await;
    let body = json!({
        "action_type": "bash", "command": "echo hello; sleep 0.3; echo late",
        "expect": ["hello"], "timeout": 10, "check": "ignore",
    });
    let observed = shell.post("run_in_session", &body).await.ok();
    assert_eq!(observed["expect_string"], "hello");
    let (output, code) = shell.run("echo next").await;
    assert!(output.ends_with("next\n"), "{output}");
    assert_eq!(code, 0);
    until_cores_are_free(&fixture.client).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_command_goes_on_without_cores_until_it_is_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let client = &fixture.client;
    let shell = Shell::new(client).await;
    let late = shell.try_run("export A=1; sleep 60", 0.2).await;
    let message = raises(&late, "swerex.exceptions.CommandTimeoutError");
    assert!(
        message.starts_with("timeout after 0.2 seconds"),
        "{message}"
    );
    until_cores_are_free(client).await;
    let busy = shell.try_run("echo busy", 0.2).await;
    raises(&busy, "swerex.exceptions.CommandTimeoutError");
    assert_eq!(shell.interrupt().await["exit_code"], 0);
    assert_eq!(shell.run("echo $A").await, ("1\n".to_owned(), json!(0)));

    // A command that ignores the interrupt is killed.
    let stubborn = shell.try_run("sh -c \"trap '' INT; sleep 60\"", 0.2).await;
    raises(&stubborn, "swerex.exceptions.CommandTimeoutError");
    shell.interrupt().await;
    let (output, _) = shell.run("pgrep -c sleep; echo $A").await;
    // The shell eventually reports that it was killed.
    let lines: Vec<_> = output.lines().collect();
    assert!(lines.contains(&"0") && lines.contains(&"1"), "{output}");

    // A client whose command another client interrupts gets an answer; other requests are answered
    // meanwhile.
    let alive = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let asked = Instant::now();
        let alive = client.get(&format!("{}/is_alive", shell.path)).await.ok();
        assert_eq!(
            (&alive["is_alive"], &alive["message"]),
            (&json!(true), &json!(""))
        );
        assert!(asked.elapsed() < Duration::from_millis(100));
        assert_eq!(used_cores(client).await, 1);
        shell.interrupt().await
    };
    let (waited, interrupted) = tokio::join!(shell.run("echo began; sleep 60"), alive);
    assert_eq!(waited.1, 130);
    assert!(waited.0.starts_with("began"), "{waited:?}");
    assert_eq!(interrupted["exit_code"], 0);

    shell
        .client
        .post(&format!("{}/close", shell.path), &json!({}))
        .await
        .ok();
    let gone = shell.try_run("echo", 1.0).await;
    raises(&gone, "swerex.exceptions.SessionDoesNotExistError");
    until_cores_are_free(client).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_that_ends_says_so_and_its_name_can_be_used_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let shell = Shell::new(&fixture.client).await;
    raises(
        &shell.try_run("exit 3", 10.0).await,
        "pexpect.exceptions.EOF",
    );
    raises(&shell.try_run("echo", 10.0).await, "pexpect.exceptions.EOF");
    let create = json!({"session_type": "bash", "startup_source": ["/nope"]});
    let taken = shell.post("create_session", &create).await;
    raises(&taken, "swerex.exceptions.SessionExistsError");
    shell.post("close_session", &json!({})).await.ok();
    let made = shell.post("create_session", &create).await.ok();
    assert!(
        made["output"].as_str().expect("text").contains("/nope"),
        "{made}"
    );
    // A sandbox that is paused is resumed.
    let pause = shell.path.replace("/swerex/", "/api/v1/sandboxes/") + "/pause";
    fixture.client.post(&pause, &json!({})).await.ok();
    assert_eq!(shell.run("echo up").await, ("up\n".to_owned(), json!(0)));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_as_swe_rex_tells_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let client = &fixture.client;
    let alive = client.get("/swerex/nothing/is_alive").await.ok();
    assert_eq!(alive["is_alive"], false);
    let unknown = client
        .post("/swerex/nothing/execute", &json!({"command": "x"}))
        .await;
    let message = raises(&unknown, "swerex.exceptions.SwerexException");
    assert_eq!(message, "there is no sandbox nothing");

    let path = sandbox(client).await;
    let post = async |call: &str, body: Value| client.post(&format!("{path}/{call}"), &body).await;
    for body in [json!({}), json!({"command": 1}), json!([])] {
        let wrong = post("execute", body).await;
        assert_eq!(wrong.status, 422);
        assert_eq!(wrong.json()["detail"][0]["loc"][0], "body");
    }
    for (call, body, class) in [
        (
            "execute",
            json!({"command": "no such"}),
            "builtins.FileNotFoundError",
        ),
        (
            "execute",
            json!({"command": "ls", "cwd": "/no"}),
            "builtins.FileNotFoundError",
        ),
        ("execute", json!({"command": []}), "builtins.ValueError"),
        (
            "execute",
            json!({"command": "ls", "timeout": -1}),
            "builtins.ValueError",
        ),
        (
            "read_file",
            json!({"path": "/usr"}),
            "builtins.IsADirectoryError",
        ),
        (
            "read_file",
            json!({"path": "/bin/ls"}),
            "builtins.UnicodeDecodeError",
        ),
        (
            "read_file",
            json!({"path": "/etc/passwd", "encoding": "x"}),
            "builtins.LookupError",
        ),
        (
            "run_in_session",
            json!({"action_type": "bash", "command": "x", "session": "none"}),
            "swerex.exceptions.SessionDoesNotExistError",
        ),
    ] {
        raises(&post(call, body).await, class);
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_its_time_and_its_sandbox_its_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let client = &fixture.client;
    let path = sandbox(client).await + "/execute";
    // A command beyond its time is reported as timed out, not as killed.
    for timeout in [0.3, 1.0] {
        let late = json!({"command": "sleep 60", "shell": true, "timeout": timeout});
        raises(
            &client.post(&path, &late).await,
            "swerex.exceptions.CommandTimeoutError",
        );
    }
    let hungry = "import itertools; [b'x' * 50_000_000 for _ in itertools.count()]";
    let full = json!({"command": ["python3", "-c", hungry]});
    let full = client.post(&path, &full).await.ok();
    assert_eq!(full["exit_code"], -9, "{full}");
    assert!(
        full["stderr"]
            .as_str()
            .expect("text")
            .contains("ran out of memory"),
        "{full}"
    );
    fixture.stop().await;
}
