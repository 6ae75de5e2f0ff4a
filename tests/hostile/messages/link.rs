//! Lines between daemons.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::runtime::Runtime;
use treadle_scheduler::link::{FromGateway, LineError, ToGateway, add_line, read_line};

use super::{Target, cuts, ensure};

pub(super) const TARGET: Target = Target {
    name: "link",
    words: &[
        b"\n",
        b"\n\n",
        b"{\"say\":\"hello\",",
        b"{\"say\":\"event\",",
        b"{\"say\":\"open\",\"steps\":[",
        b"{\"say\":\"welcome\",\"handled\":1}\n",
        b"{\"say\":\"recorded\",\"number\":2}\n",
        b"{\"say\":\"step\",",
        b"{\"say\":\"withdraw\",",
        b"\"number\":18446744073709551615",
        b"\"event\":{\"event\":\"step_finished\"",
        b"\"step\":0",
        b"null",
        b"-1",
        b"1.5",
        b"\"",
        b"}",
        b"[",
        b"]",
        b",",
        b"\\u0000",
        b"\xff",
    ],
    check,
    accepts,
};

fn runtime() -> Result<Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build();
    runtime.map_err(|error| error.to_string())
}

fn accepts(bytes: &[u8]) -> bool {
    let is_whole = |read: Result<(Vec<_>, bool), String>| {
        read.is_ok_and(|(lines, closed)| closed && !lines.is_empty())
    };
    runtime().is_ok_and(|runtime| {
        is_whole(runtime.block_on(read::<FromGateway>(bytes, b"")))
            || is_whole(runtime.block_on(read::<ToGateway>(bytes, b"")))
    })
}

fn check(bytes: &[u8]) -> Result<(), String> {
    runtime()?.block_on(async {
        lines::<FromGateway>(bytes).await?;
        lines::<ToGateway>(bytes).await
    })
}

/// Lines up to the first that can't be read, written again, and whether the connection was closed
/// after them.
async fn read<T: DeserializeOwned + Serialize>(
    first: &[u8],
    second: &[u8],
) -> Result<(Vec<Vec<u8>>, bool), String> {
    let mut reader = BufReader::with_capacity(7, first.chain(second));
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    loop {
        match read_line::<T>(&mut reader, &mut line).await {
            Ok(value) => {
                let mut written = Vec::new();
                add_line(&mut written, &value);
                lines.push(written);
            }
            Err(LineError::Malformed(_)) => return Ok((lines, false)),
            Err(LineError::Closed) => return Ok((lines, true)),
            Err(other) => return Err(format!("of what is at hand: {other}")),
        }
    }
}

async fn lines<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<(), String> {
    let (whole, closed) = read::<T>(bytes, b"").await?;
    for at in cuts(bytes.len()) {
        let cut = read::<T>(&bytes[..at], &bytes[at..]).await?;
        ensure(cut == (whole.clone(), closed), || {
            format!("cut at {at} it reads otherwise")
        })?;
        let (begun, _) = read::<T>(&bytes[..at], b"").await?;
        ensure(whole.starts_with(&begun), || {
            format!("the first {at} bytes have a line that the whole has not")
        })?;
    }
    let written = whole.concat();
    let (again, closed) = read::<T>(&written, b"").await?;
    ensure(again == whole && closed, || {
        format!(
            "what was written reads otherwise: {}",
            String::from_utf8_lossy(&written)
        )
    })
}
