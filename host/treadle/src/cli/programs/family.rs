//! `treadle programs KEY --family`: a tree of agents with a timeline of each.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::client::{Client, escaped};
use super::super::error::CliError;
use super::super::output::{Column, plain, print_json, print_table};

const FAMILY: &[Column] = &[
    ("PROGRAM", "/name"),
    ("STATUS", "/status"),
    ("PHASE", "/phase"),
    ("STEPS", "/steps"),
    ("ACTIVE S", "/active_us"),
    ("QUEUED S", "/queued_us"),
    ("BLOCKED S", "/blocked_us"),
    ("CONTEXT TOKENS", "/context_tokens"),
    ("WORKER", "/worker"),
    ("BEGAN (UTC)", "/created_at_us"),
    ("UPDATED (UTC)", "/updated_at_us"),
    ("ENDED", "/ended"),
    ("TIMELINE", "/timeline"),
];
/// Maximum depth of a family tree.
const GENERATIONS_MAX: usize = 16;
/// Maximum number of steps fetched per program, from the first on.
const STEPS_MAX: u32 = 1_000;
/// Width of a timeline, in characters.
const TIMELINE_CHARS: u64 = 40;

/// Shows the root of the program's family and all its descendants.
pub(super) async fn show(
    client: &Client,
    program: Value,
    limit: u32,
    json: bool,
) -> Result<(), CliError> {
    let first = first_of(client, program).await;
    let mut rows = tree(client, first, limit as usize).await?;
    let mut members = Vec::new();
    for program in &mut rows {
        members.push(Member::of(client, program).await?);
    }
    let begin = members.iter().map(|member| member.alive.begin).min();
    let end = members.iter().map(|member| member.alive.end).max();
    let all = Period {
        begin: begin.unwrap_or(0),
        end: end.unwrap_or(0),
    };
    for (program, member) in rows.iter_mut().zip(&members) {
        program["active_us"] = member.active_us(all.end).into();
        program["queued_us"] = member.queued_us.into();
        program["timeline"] = member.timeline(all).into();
    }
    if json {
        return print_json(&json!({"programs": rows}));
    }
    print_table(FAMILY, &rows, "")
}

/// The root of a program's family.
async fn first_of(client: &Client, program: Value) -> Value {
    let mut first = program;
    for _ in 0..GENERATIONS_MAX {
        let Some(parent) = first["parent"].as_str() else {
            break;
        };
        // The parent may no longer be stored: then this program is the root.
        let path = format!("/api/v1/programs/{}", escaped(parent));
        let Ok(parent) = client.get(&path).await else {
            break;
        };
        first = parent;
    }
    first
}

/// A program and its descendants, children after their parents.
async fn tree(client: &Client, first: Value, limit: usize) -> Result<Vec<Value>, CliError> {
    let mut seen = BTreeSet::new();
    let mut left = vec![(first, 0)];
    let mut rows = Vec::new();
    while let Some((mut program, depth)) = left.pop() {
        let key = plain(&program["program_id"]);
        if !seen.insert(key.clone()) {
            // Guards against programs that name each other as parent.
            continue;
        }
        program["name"] = Value::String(format!("{}{key}", "  ".repeat(depth)));
        rows.push(program);
        let room = limit.saturating_sub(rows.len() + left.len());
        if depth < GENERATIONS_MAX && room > 0 {
            let query = format!("parent={}&sort=-created_at_us&limit={room}", escaped(&key));
            let children = client.get(&format!("/api/v1/programs?{query}")).await?;
            let children = children["programs"].as_array().cloned().unwrap_or_default();
            left.extend(children.into_iter().map(|child| (child, depth + 1)));
        }
    }
    Ok(rows)
}

/// A period, in microseconds since 1970.
#[derive(Clone, Copy)]
struct Period {
    begin: u64,
    end: u64,
}

impl Period {
    /// Whether some of it is in a part of the time axis.
    const fn overlaps(self, part: Self) -> bool {
        self.begin < part.end && part.begin <= self.end
    }
}

/// When a program was live, and when it was in steps. Times are microseconds since 1970.
struct Member {
    alive: Period,
    /// When each step was sent to an engine, and when it finished if it has.
    steps: Vec<(u64, Option<u64>)>,
    queued_us: u64,
}

impl Member {
    async fn of(client: &Client, program: &Value) -> Result<Self, CliError> {
        let key = escaped(&plain(&program["program_id"]));
        let path = format!("/api/v1/programs/{key}/steps?limit={STEPS_MAX}");
        let answer = client.get(&path).await?;
        let rows = answer["steps"].as_array().map_or(&[][..], Vec::as_slice);
        let number = |row: &Value, field: &str| row[field].as_u64();
        let began = number(program, "created_at_us").unwrap_or(0);
        let updated = number(program, "updated_at_us").unwrap_or(0);
        // A step that was never sent has no time at an engine.
        let step = |row: &Value| {
            let sent = number(row, "dispatched_at_us")?;
            Some((sent, number(row, "finished_at_us")))
        };
        let steps: Vec<_> = rows.iter().filter_map(step).collect();
        let ends = steps.iter().map(|(sent, end)| end.unwrap_or(*sent));
        let queued = rows.iter().filter_map(|row| number(row, "waited_us"));
        Ok(Self {
            alive: Period {
                begin: began,
                end: ends.fold(updated, u64::max),
            },
            queued_us: queued.fold(0, u64::saturating_add),
            steps,
        })
    }

    /// Time with at least one step at an engine; running steps count until now.
    fn active_us(&self, now: u64) -> u64 {
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_unstable();
        let (mut sum, mut until) = (0, 0);
        for (sent, end) in steps {
            let (from, end) = ((*sent).max(until), end.unwrap_or(now));
            sum += end.saturating_sub(from);
            until = until.max(end);
        }
        sum
    }

    /// Steps and pauses on the time axis of the whole family.
    fn timeline(&self, all: Period) -> String {
        let Period { begin, end } = all;
        let at = |place: u64| {
            let passed =
                u128::from(end - begin + 1) * u128::from(place) / u128::from(TIMELINE_CHARS);
            begin + passed as u64
        };
        let letter = |place: u64| {
            // Each character covers at least one microsecond.
            let part = Period {
                begin: at(place),
                end: at(place + 1).max(at(place) + 1),
            };
            let is_at_engine = self.steps.iter().any(|(sent, ended)| {
                let step = Period {
                    begin: *sent,
                    end: ended.unwrap_or(end),
                };
                step.overlaps(part)
            });
            if is_at_engine {
                '#'
            } else if self.alive.overlaps(part) {
                '-'
            } else {
                ' '
            }
        };
        (0..TIMELINE_CHARS).map(letter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn period(begin: u64, end: u64) -> Period {
        Period { begin, end }
    }

    fn member(alive: Period, steps: &[(u64, Option<u64>)]) -> Member {
        Member {
            alive,
            steps: steps.to_vec(),
            queued_us: 0,
        }
    }

    #[test]
    fn a_timeline_has_steps_and_what_is_between_them() {
        let family = period(1_000, 1_000 + 40 * 100 - 1);
        let parent = member(family, &[(1_000, Some(1_399)), (4_600, None)]);
        let line = parent.timeline(family);
        assert_eq!(line, format!("####{}####", "-".repeat(32)));
        let child = member(period(1_500, 2_499), &[(2_000, Some(2_199))]);
        let line = child.timeline(family);
        assert_eq!(line, format!("     -----##---{}", " ".repeat(25)));
        let moment = member(period(7, 7), &[(7, Some(7))]);
        assert_eq!(moment.timeline(period(7, 7)).chars().next(), Some('#'));
    }

    #[test]
    fn steps_that_overlap_count_once() {
        let steps = [(10, Some(30)), (20, Some(40)), (25, Some(28)), (90, None)];
        assert_eq!(member(period(0, 100), &steps).active_us(100), 40);
        assert_eq!(member(period(0, 100), &[]).active_us(100), 0);
    }
}
