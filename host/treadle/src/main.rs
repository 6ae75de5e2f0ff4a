//! The `treadle` binary.

fn main() -> std::process::ExitCode {
    treadle::cli::main()
}
