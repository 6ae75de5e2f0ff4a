//! Scripts for a shell in a pod. The shell reads a script from its standard input, and the rest is
//! the input of the command. So the URL of a request, which API servers log, contains nothing of
//! it.

use std::fmt::Write;

use treadle_sandbox::{Order, UserIds};

/// The command of an `exec`: a shell that reads a terminator line, then a script up to that line,
/// and runs it. If the connection breaks before that, nothing runs.
pub(crate) const READER: [&str; 3] = [
    "sh",
    "-c",
    "IFS= read -r t || exit 125; c=
while { IFS= read -r l || exit 125; } && [ \"$l\" != \"$t\" ]; do c=\"$c$l
\"; done; eval \"$c\"",
];
/// First character of the line with the pid of a command.
pub(crate) const STARTED: char = '+';
/// First character of the line with the reason why a command can't be started.
pub(crate) const NOT_STARTED: char = '!';
/// Environment variable that identifies all processes of a sandbox.
const SANDBOX: &str = "TREADLE_SANDBOX";
/// Environment variable that identifies the processes of a command.
const COMMAND: &str = "TREADLE_COMMAND";

/// Quotes a text as one word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The input of the reader: an unguessable terminator line, and the script.
pub(crate) fn read(last: &str, script: &str) -> Vec<u8> {
    format!("{last}\n{script}\n{last}\n").into_bytes()
}

/// Runs a command. The first line of its output is treadle's: the pid of the command, or why it
/// can't be started.
pub(crate) fn command(sandbox: &str, mark: &str, order: &Order, has_input: bool) -> String {
    let mut script = String::new();
    if !order.cwd.is_empty() {
        let (cwd, problem) = (
            quoted(&order.cwd),
            quoted(&format!("{NOT_STARTED}cwd: {} is not a folder", order.cwd)),
        );
        let _ = writeln!(
            script,
            "cd {cwd} 2>/dev/null || {{ printf '%s\\n' {problem}; exit 126; }}"
        );
    }
    script.push_str("exec env --");
    let own = [(SANDBOX, sandbox), (COMMAND, mark)];
    let given = order
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in given.chain(own) {
        let _ = write!(script, " {}", quoted(&format!("{name}={value}")));
    }
    // Root is the user that the image runs as.
    if let Some(UserIds { user, group }) = order.user.filter(|ids| *ids != UserIds::ROOT) {
        let _ = write!(
            script,
            " setpriv --reuid={user} --regid={group} --clear-groups"
        );
    }
    let start = format!(
        "command -v -- \"$0\" >/dev/null 2>&1 || {{ printf '%s\\n' \"{NOT_STARTED}$0: not found\"; exit 127; }}; \
         printf '%s\\n' \"{STARTED}$$\"; exec \"$0\" \"$@\""
    );
    let _ = write!(script, " /bin/sh -c {}", quoted(&start));
    for word in &order.command {
        let _ = write!(script, " {}", quoted(word));
    }
    if !has_input {
        script.push_str(" </dev/null");
    }
    if order.merged {
        script.push_str(" 2>&1");
    }
    script
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: i32, signal: i32) -> String {
    format!("kill -{signal} {pid}")
}

/// Ends a command: its process group, if its pid is known, and all processes with its mark.
pub(crate) fn end_command(pid: Option<i32>, mark: &str) -> String {
    let group = pid.map_or_else(String::new, |pid| {
        format!("kill -9 -{pid} 2>/dev/null; kill -9 {pid} 2>/dev/null")
    });
    format!("{group}\n{}", end_marked(COMMAND, mark))
}

/// Ends all processes of a sandbox.
pub(crate) fn end_all(sandbox: &str) -> String {
    end_marked(SANDBOX, sandbox)
}

/// Ends all processes with an environment variable, which may start others meanwhile.
fn end_marked(name: &str, value: &str) -> String {
    format!(
        "for n in 1 2 3 4 5; do
f=$(grep -l -- {name}={value} /proc/[0-9]*/environ 2>/dev/null)
[ -n \"$f\" ] || break
for e in $f; do e=${{e#/proc/}}; kill -9 \"${{e%/environ}}\" 2>/dev/null; done
done
:"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    fn run(input: &[u8]) -> (Option<i32>, String) {
        let mut shell = Command::new(READER[0])
            .args(&READER[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut stdin = shell.stdin.take().expect("piped");
        stdin.write_all(input).expect("written");
        drop(stdin);
        let output = shell.wait_with_output().expect("its end");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    #[test]
    fn words_are_quoted_and_the_rest_is_the_input() {
        let words = [
            "it's",
            "$HOME `x` \"y\" \\",
            "two\nlines\n\n",
            "",
            "-n",
            "ä",
        ];
        let order = Order {
            command: ["printf", "[%s]"]
                .into_iter()
                .chain(words)
                .map(str::to_owned)
                .collect(),
            env: [("A".to_owned(), "b'c\nd".to_owned())].into(),
            ..Order::default()
        };
        let (code, told) = run(&read("end", &command("s", "m", &order, true)));
        let (first, rest) = told.split_once('\n').expect("a first line");
        assert!(first.starts_with(STARTED), "{first}");
        let expected = words.map(|word| format!("[{word}]")).concat();
        assert_eq!((code, rest), (Some(0), expected.as_str()));

        let order = Order {
            command: ["sh", "-c", "cat; printf %s \"$A\""]
                .map(str::to_owned)
                .into(),
            ..order
        };
        let mut input = read("end", &command("s", "m", &order, true));
        input.extend(b"what is left\n");
        assert!(run(&input).1.ends_with("\nwhat is left\nb'c\nd"));
    }

    #[test]
    fn an_incomplete_script_is_not_run() {
        let whole = read("end", "echo one\necho two");
        assert_eq!(run(&whole), (Some(0), "one\ntwo\n".to_owned()));
        for bytes in 0..whole.len() - "end\n".len() {
            assert_eq!(run(&whole[..bytes]), (Some(125), String::new()), "{bytes}");
        }
    }

    #[test]
    fn a_failed_start_is_reported() {
        let order = |cwd: &str, program: &str| Order {
            command: vec![program.to_owned()],
            cwd: cwd.to_owned(),
            ..Order::default()
        };
        let told = |order| run(&read("end", &command("s", "m", &order, false)));
        let (code, line) = told(order("/no'where", "true"));
        assert_eq!(
            (code, line.as_str()),
            (Some(126), "!cwd: /no'where is not a folder\n")
        );
        let (code, line) = told(order("/", "no-such-program"));
        assert_eq!(
            (code, line.as_str()),
            (Some(127), "!no-such-program: not found\n")
        );
    }
}
