//! What keeps a sandbox, as a program of its own for tests.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    treadle_sandbox::sandbox_main(&args)
}
