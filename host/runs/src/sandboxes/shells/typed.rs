//! The text that is typed into a shell, with markers that separate its state from the output of
//! commands. A marker has a random number and is written to the terminal itself, so that commands
//! can't hide it by redirecting their output or changing the prompt.

use std::fmt::Write as _;

/// The prompt that clients expect. A shell's real prompt starts with it and continues with a random
/// number, so that programs can't fake it.
pub const PROMPT: &str = "SHELLPS1PREFIX";
/// Longest typed line; a terminal accepts at most 4,095 bytes.
pub(crate) const LINE_BYTES_MAX: usize = 3_900;
/// Most bytes of a command per typed line.
const PIECE_BYTES_MAX: usize = 3_000;
/// Opens a marker.
const OPEN: u8 = 1;
/// Closes a marker.
const CLOSE: u8 = 2;

/// An unguessable random number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Nonce(String);

impl Nonce {
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bytes))))
    }

    /// A prompt that programs can't fake.
    pub(super) fn prompt(&self) -> String {
        format!("{PROMPT}{}", self.0)
    }

    /// The marker before a command's output.
    pub(super) fn begin(&self) -> Vec<u8> {
        format!("\x01B:{}\x02", self.0).into_bytes()
    }

    /// The marker after it, which the exit code and the close follow.
    pub(super) fn end(&self) -> Vec<u8> {
        format!("\x01E:{}:", self.0).into_bytes()
    }
}

/// The command that starts a shell on its own terminal, without echo. It first reports that it is
/// ready.
pub(super) fn start(nonce: &Nonce) -> Vec<String> {
    let shell = format!(
        "stty -echo rows 24 cols 80; printf '\\001E:%s:0\\002' {}; exec bash --noediting -i",
        nonce.0
    );
    let script = "if command -v script >/dev/null; then exec script -qefc \"$1\" /dev/null; fi; \
         if command -v python3 >/dev/null; then \
         exec python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' /bin/sh -c \"$1\"; fi; \
         echo 'this image has no terminals: it needs script (util-linux) or python3'; exit 127";
    ["/bin/sh", "-c", script, "sh", &shell]
        .map(str::to_owned)
        .to_vec()
}

/// A whole command as lines that form one shell command. Its input is empty unless it gets the
/// terminal.
pub(super) fn command(nonce: &Nonce, prompt: &str, text: &str, has_terminal: bool) -> Vec<u8> {
    let input = if has_terminal { "" } else { " </dev/null" };
    let typed = format!(
        " __treadle={};{} builtin eval \"$__treadle\"{input}; {}",
        quoted(text),
        begin(nonce),
        probe(nonce, prompt)
    );
    typed.into_bytes()
}

/// Writes the marker before the output of what is typed next.
pub(super) fn begin(nonce: &Nonce) -> String {
    let number = &nonce.0;
    format!(" {{ builtin printf '\\001B:%s\\002' {number} >/dev/tty; }} 2>/dev/null; ")
}

/// Requests a marker with the exit code of the previous command, and resets the prompt.
pub(super) fn probe(nonce: &Nonce, prompt: &str) -> String {
    let number = &nonce.0;
    format!(
        "{{ __treadle=$?; PS1={prompt} PS2= PS0=; \
         builtin printf '\\001E:%s:%s\\002' {number} $__treadle >/dev/tty; }} 2>/dev/null\n"
    )
}

/// Quotes text for bash, in printable characters and short lines.
fn quoted(text: &str) -> String {
    let mut all = String::with_capacity(text.len() + 16);
    all.push_str("$'");
    let mut line = 0;
    for byte in text.bytes() {
        if line >= PIECE_BYTES_MAX {
            all.push_str("'\\\n$'");
            line = 0;
        }
        let before = all.len();
        match byte {
            b'\n' => all.push_str("\\n"),
            b'\\' => all.push_str("\\\\"),
            b'\'' => all.push_str("\\'"),
            b' '..=b'~' => all.push(char::from(byte)),
            _ => {
                let _ = write!(all, "\\x{byte:02x}");
            }
        }
        line += all.len() - before;
    }
    all.push('\'');
    all
}

/// Makes a shell print its options.
pub(super) const TELL_OPTIONS: &str =
    "builtin printf ':%s:%s:' \"$SHELLOPTS\" \"$BASHOPTS\" >/dev/tty";

/// Arguments that make another bash parse commands as a shell with these options does.
pub(super) fn reads_so(options: &str) -> Vec<&'static str> {
    let all = [("-O", "extglob"), ("-o", "posix")];
    let set = all
        .into_iter()
        .filter(|(_, name)| options.split(':').any(|one| one == *name));
    set.flat_map(|(flag, name)| [flag, name]).collect()
}

/// Removes markers of late probes from a shell's output.
pub(super) fn without_marks(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == OPEN) {
        kept.extend(&rest[..at]);
        let mark = length(&rest[at..]);
        if mark == 0 {
            kept.push(OPEN);
        }
        rest = &rest[at + mark.max(1)..];
    }
    kept.extend(rest);
    kept
}

/// Length of the marker that begins here; 0 without one.
fn length(bytes: &[u8]) -> usize {
    let Some(close) = bytes.iter().take(64).position(|byte| *byte == CLOSE) else {
        return 0;
    };
    let inside = &bytes[1..close];
    let number = inside.get(2..34).unwrap_or_default();
    let is_mark = matches!(inside, [b'B' | b'E', b':', ..])
        && number.len() == 32
        && number.iter().all(u8::is_ascii_hexdigit);
    if is_mark { close + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn in_bash(script: &str) -> Vec<u8> {
        let output = Command::new("bash").args(["-c", script]).output();
        output.expect("bash runs").stdout
    }

    #[test]
    fn bash_reads_quoted_text_back() {
        let long = "é'\\\n".repeat(3_000);
        for text in [
            "",
            "echo hi",
            "a'b\"c\\d $x `y` !z",
            "é\t\u{1}\nß0",
            "\r\n",
            &long,
        ] {
            let quoted = quoted(text);
            assert!(quoted.lines().all(|line| line.len() < LINE_BYTES_MAX));
            let read = in_bash(&format!("printf %s {quoted}"));
            assert_eq!(String::from_utf8_lossy(&read), text);
        }
    }

    #[test]
    fn lines_are_short_and_one_command() {
        let nonce = Nonce::new().expect("random numbers");
        let typed = command(&nonce, &nonce.prompt(), &"x".repeat(10_000), false);
        let lines: Vec<_> = typed.split(|byte| *byte == b'\n').collect();
        assert!(lines.len() > 3);
        assert!(lines.iter().all(|line| line.len() < LINE_BYTES_MAX));
        let whole = lines.iter().take(lines.len() - 2);
        assert!(whole.into_iter().all(|line| line.ends_with(b"\\")));
    }

    #[test]
    fn options_are_those_by_which_bash_reads() {
        let script = format!("shopt -s extglob; set -o posix -e; {TELL_OPTIONS}");
        let told = in_bash(&script.replace("/dev/tty", "/dev/stdout"));
        let told = String::from_utf8(told).expect("text");
        assert_eq!(reads_so(&told), ["-O", "extglob", "-o", "posix"], "{told}");
        let plain = in_bash(&TELL_OPTIONS.replace("/dev/tty", "/dev/stdout"));
        assert!(reads_so(&String::from_utf8(plain).expect("text")).is_empty());
    }

    #[test]
    fn marks_are_taken_out_and_nothing_else() {
        let nonce = Nonce::new().expect("random numbers");
        let mut bytes = b"a\x01b".to_vec();
        bytes.extend(nonce.begin());
        bytes.extend(b"c\x01B:short\x02");
        bytes.extend(nonce.end());
        bytes.extend(b"130\x02d\x01");
        assert_eq!(without_marks(&bytes), b"a\x01bc\x01B:short\x02d\x01");
    }
}
