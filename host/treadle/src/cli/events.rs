//! `treadle events`: shows the journal, and replays it.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{Asking, Client, escaped};
use super::error::CliError;
use super::output::{instant, plain, print_text, shortened};
use super::replay::ReplayArgs;

/// Pause between two polls.
const POLL_PAUSE: Duration = Duration::from_millis(500);
/// Events per request.
const PAGE_EVENTS: u64 = 1_000;
/// Default number of events.
const DEFAULT_EVENTS: u64 = 20;
/// Longest event body that is shown to people, in characters.
const BODY_CHARS_MAX: usize = 160;

/// Arguments of `treadle events`.
#[derive(Args, Clone, Debug)]
pub(super) struct EventsArgs {
    #[command(subcommand)]
    command: EventsCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum EventsCommand {
    /// Show the newest events of the journal.
    Tail(Asking<TailArgs>),
    /// Replay the journal of a store, without a daemon, and print a checksum of the state.
    Replay(ReplayArgs),
}

#[derive(Args, Clone, Debug)]
struct TailArgs {
    /// Keep printing new events, until interrupted.
    #[arg(short, long)]
    follow: bool,
    /// Only events of this program.
    #[arg(long, value_name = "KEY")]
    program: Option<String>,
    /// Only events of this kind, such as step_arrived.
    #[arg(long)]
    kind: Option<String>,
    /// All events after this one, instead of the newest.
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Maximum number of events, not counting those printed by --follow; by default 20, or all with
    /// --after.
    #[arg(short = 'n', long = "lines", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    count: Option<u64>,
}

impl EventsArgs {
    /// Shows events. With JSON, each is one line.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let Asking { server, args: tail } = match self.command {
            EventsCommand::Tail(tail) => tail,
            EventsCommand::Replay(replay) => return replay.run(self.json).await,
        };
        let reader = Reader {
            client: server.client(),
            filter: filter(&tail),
            json: self.json,
        };
        let mut last = match tail.after {
            None => reader.newest(tail.count.unwrap_or(DEFAULT_EVENTS)).await?,
            Some(after) => {
                let count = tail.count.unwrap_or(u64::MAX);
                reader.after(after, count).await?
            }
        };
        if !tail.follow {
            return Ok(());
        }
        loop {
            tokio::time::sleep(POLL_PAUSE).await;
            last = reader.after(last, u64::MAX).await?;
        }
    }
}

fn filter(tail: &TailArgs) -> String {
    let fields = [("program", &tail.program), ("kind", &tail.kind)];
    let given = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let parts =
        given.flat_map(|(name, value)| ["&".into(), name.into(), "=".into(), escaped(value)]);
    parts.collect()
}

/// Fetches and shows events.
struct Reader {
    client: Client,
    filter: String,
    json: bool,
}

impl Reader {
    /// Shows the newest events and returns the position of the last.
    async fn newest(&self, count: u64) -> Result<u64, CliError> {
        let events = self.page(&format!("latest=true&limit={count}")).await?;
        self.show(&events)?;
        Ok(last_of(&events).unwrap_or(0))
    }

    /// Shows up to `count` events after a position and returns the position of the last.
    async fn after(&self, mut seq: u64, mut count: u64) -> Result<u64, CliError> {
        while count > 0 {
            let limit = count.min(PAGE_EVENTS);
            let events = self.page(&format!("after={seq}&limit={limit}")).await?;
            self.show(&events)?;
            seq = last_of(&events).unwrap_or(seq);
            if (events.len() as u64) < limit {
                break;
            }
            count -= limit;
        }
        Ok(seq)
    }

    async fn page(&self, range: &str) -> Result<Vec<Value>, CliError> {
        let path = format!("/api/v1/events?{range}{}", self.filter);
        let mut answer = self.client.get(&path).await?;
        match answer["events"].take() {
            Value::Array(events) => Ok(events),
            _ => Ok(Vec::new()),
        }
    }

    fn show(&self, events: &[Value]) -> Result<(), CliError> {
        if events.is_empty() {
            return Ok(());
        }
        let lines = events.iter().map(|event| {
            if self.json {
                event.to_string()
            } else {
                line(event)
            }
        });
        print_text(&lines.collect::<Vec<_>>().join("\n"))
    }
}

fn last_of(events: &[Value]) -> Option<u64> {
    events.last()?["seq"].as_u64()
}

/// Position, time, kind, program and body of an event.
fn line(event: &Value) -> String {
    let at = instant(event["at_us"].as_u64().unwrap_or(0));
    let seq = event["seq"].as_u64().unwrap_or(0);
    let (kind, program) = (plain(&event["kind"]), plain(&event["program"]));
    let body = shortened(&body(&event["event"]), BODY_CHARS_MAX);
    let line = format!("{seq:>8}  {at}  {kind:<20}  {program:<16}  {body}");
    line.trim_end().to_owned()
}

/// `name=value` for each field that is not empty and not elsewhere in the line.
fn body(event: &Value) -> String {
    let Value::Object(fields) = event else {
        return String::new();
    };
    let is_told = |name: &str| matches!(name, "event" | "program" | "job");
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let told = fields
        .iter()
        .filter(|(name, value)| !is_told(name) && !is_empty(value));
    told.map(|(name, value)| format!("{name}={}", plain(value)))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_each_field_once_and_no_empty_one() {
        let event = json!({"seq": 7, "at_us": 0, "kind": "step_arrived", "job": "j",
            "program": "p-1", "event": {"event": "step_arrived", "program": "p-1", "job": "j",
            "step": 3, "prefix": [], "output_tokens_max": null, "exact": true}});
        assert_eq!(
            line(&event),
            "       7  1970-01-01 00:00:00.000  step_arrived          p-1               \
             exact=yes step=3"
        );
    }

    #[test]
    fn filters_are_escaped() {
        let tail = TailArgs {
            follow: false,
            program: Some("a&b".into()),
            kind: Some("step_arrived".into()),
            after: None,
            count: None,
        };
        assert_eq!(filter(&tail), "&program=a%26b&kind=step_arrived");
    }
}
