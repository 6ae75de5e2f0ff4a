//! Measures how many events a second the store appends: `cargo run --release -p treadle-store
//! --example append_rate [events per batch] [batches] [postgres://...]`, in a file or in a separate
//! schema.

use std::time::Instant;

use treadle_store::{Batch, EventRow, Location, PostgresLocation, open};

fn event(seq: u64) -> EventRow {
    EventRow {
        seq,
        at_us: seq,
        kind: ["step-arrived", "step-dispatched", "step-finished"][seq as usize % 3].into(),
        job: "math".into(),
        program: Some(format!("program-{}", seq % 1000)),
        body: format!("{{\"prompt_tokens\":{seq},\"worker\":\"w-1\",\"request\":\"0123456789\"}}"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().map(|text| text.parse::<u64>()).transpose();
    let per_batch = number()?.unwrap_or(1000);
    let batches = number()?.unwrap_or(200);
    let path = std::env::temp_dir().join(format!("append-rate-{}.db", std::process::id()));
    let location = arguments
        .next()
        .map_or(Location::File(path.clone()), |url| {
            Location::Postgres(PostgresLocation {
                schema: format!("append_rate_{}", std::process::id()),
                ..PostgresLocation::new(url)
            })
        });
    let store = open(&location).await?;
    let mut seq = 0;
    let started = Instant::now();
    for _ in 0..batches {
        let batch = Batch {
            events: (seq + 1..=seq + per_batch).map(event).collect(),
            ..Batch::default()
        };
        seq = store.append(&batch).await?;
    }
    let appended = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let mut read = 0;
    while read < seq {
        let rows = store.events_after(read, 10_000).await?;
        read = rows.last().map_or(seq, |row| row.seq);
    }
    let replayed = started.elapsed().as_secs_f64();
    println!(
        "{seq} events in batches of {per_batch}: {:.0} appended/s, {:.0} read/s",
        seq as f64 / appended,
        seq as f64 / replayed
    );
    store.close().await?;
    for suffix in ["", "-wal", "-shm"] {
        // The last two are gone after a clean close.
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(())
}
