//! Runs the priority scores by Extism, for `treadle-bench policy`: a line with the
//! bytes of the input and a number of calls, and the input, come in; a line with the
//! nanoseconds that the calls took and the bytes of the output, and the last output,
//! go out. The plugin lies beside the program.

use extism::{Manifest, Plugin, PluginBuilder, Wasm};
use std::error::Error;
use std::io::{BufRead, Read, Write};
use std::time::{Duration, Instant};

/// Longest input.
const INPUT_BYTES_MAX: usize = 1 << 24;
/// Every call has a deadline, as treadle's have.
const DEADLINE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let guest = std::env::current_exe()?.with_file_name("extism_scores_guest.wasm");
    let manifest = Manifest::new([Wasm::data(std::fs::read(guest)?)]).with_timeout(DEADLINE);
    let mut plugin = PluginBuilder::new(manifest).with_wasi(false).build()?;
    let (mut from, mut to) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    while from.read_line(&mut line)? > 0 {
        let (length, calls) = line.trim().split_once(' ').ok_or("give two numbers")?;
        let (length, calls) = (length.parse::<usize>()?, calls.parse()?);
        if length > INPUT_BYTES_MAX {
            return Err("the input is too long".into());
        }
        let mut input = vec![0; length];
        from.read_exact(&mut input)?;
        let (took, output) = call(&mut plugin, &input, calls)?;
        writeln!(to, "{} {}", took.as_nanos(), output.len())?;
        to.write_all(&output)?;
        to.flush()?;
        line.clear();
    }
    Ok(())
}

fn call(
    plugin: &mut Plugin,
    input: &[u8],
    calls: u32,
) -> Result<(Duration, Vec<u8>), Box<dyn Error>> {
    let started = Instant::now();
    let mut last = Vec::new();
    for _ in 0..calls {
        // Into memory of the host, as treadle gives its answers.
        last = plugin.call::<&[u8], Vec<u8>>("score", input)?;
    }
    Ok((started.elapsed(), last))
}
