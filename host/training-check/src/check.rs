//! Rules that concern the batches, and how they agree with the events.

use crate::batch::{Group, Member, Received};
use crate::event::{Capture, Event, Recorded, Settings};
use crate::history::History;
use crate::member::{Attempt, digits, same, shown};
use crate::payload::{Payload, Sampled};
use crate::report::{Place, Report, Rule};
use crate::run::{Facts, Run, Since, Window, held, last_run};
use std::collections::{BTreeMap, BTreeSet};

/// Compares the events of a job with the batches that its trainer received.
pub fn check(events: &[Recorded], batches: &[Received]) -> Report {
    let events = own(events, batches);
    let mut report = Report::default();
    let history = History::check(&events, &mut report);
    let mut receptions: BTreeMap<u64, Vec<&Received>> = BTreeMap::new();
    for batch in batches {
        receptions.entry(batch.number).or_default().push(batch);
    }
    check_numbers(&receptions, &history, &mut report);
    let mut checker = Checker {
        run: Run::of(&events),
        report,
        seen: BTreeMap::new(),
    };
    for (number, receptions) in &receptions {
        checker.batch(*number, receptions);
    }
    checker.report
}

/// The events of the job that batches are of, in its last run.
pub(crate) fn own<'e>(events: &'e [Recorded], batches: &[Received]) -> Vec<&'e Event> {
    let named = events.iter().find_map(|recorded| recorded.event.job());
    let received = batches.first().map(|batch| &*batch.content.job);
    let job = received.or(named).unwrap_or_default();
    let is_own = |event: &&Event| event.job().is_none_or(|of| of == job);
    let events = events[last_run(events, job)].iter();
    events.map(|r| &r.event).filter(is_own).collect()
}

fn check_numbers(
    receptions: &BTreeMap<u64, Vec<&Received>>,
    history: &History,
    report: &mut Report,
) {
    let mut numbers = receptions.keys().copied();
    let mut last = numbers.next().unwrap_or(0);
    if !receptions.is_empty() && last == 0 {
        let what = "batches begin with 1".to_owned();
        report.add(Rule::Numbering, Place::batch(0), what);
    }
    for number in numbers {
        if number - last > 1 {
            let what = format!("{last} is the batch before it that was received");
            report.add(Rule::Numbering, Place::batch(number), what);
        }
        last = number;
    }
    for number in history.trained.range(last.saturating_add(1)..) {
        let what = format!("it was trained, but {last} is the last that was received");
        report.add(Rule::Received, Place::batch(*number), what);
    }
    let reached = history.reached;
    if reached > last {
        let what = format!(
            "its weights or checkpoint were reported, but {last} is the last batch that was \
             received"
        );
        report.add(Rule::Received, Place::batch(reached), what);
    }
}

struct Checker<'a> {
    run: Run<'a>,
    report: Report,
    /// The batch of each group and program, which are kept apart by what they are.
    seen: BTreeMap<Key<'a>, u64>,
}

#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Key<'a> {
    Group(&'a str),
    Program(&'a str),
}

/// A batch, and what was declared when it was cut.
#[derive(Clone, Copy)]
struct Cut<'s, 'a> {
    number: u64,
    window: Window,
    settings: &'s [Since<&'a Settings>],
}

impl Cut<'_, '_> {
    /// Whether this held whenever the batch may have been cut.
    fn always(self, what: impl Fn(&Settings) -> bool) -> bool {
        let is_known = !self.settings.is_empty();
        is_known && self.settings.iter().all(|held| what(held.value))
    }
}

impl<'a> Checker<'a> {
    fn batch(&mut self, number: u64, receptions: &[&'a Received]) {
        let Some(first) = receptions.first() else {
            return;
        };
        let place = Place::batch(number);
        self.report.batches += 1;
        let (own, before) = (first.content.batch, number.saturating_sub(1));
        let trained_on = first.content.trained_on.unwrap_or(before);
        if own != number || trained_on != before {
            let what = format!("it says that it is batch {own}, trained on version {trained_on}");
            self.report.add(Rule::Contents, place, what);
        }
        let payload = self.receptions(place, first, receptions);
        let window = self.run.cut(number).unwrap_or_else(|| {
            let what = "it was received, but never requested".to_owned();
            self.report.add(Rule::Existing, place, what);
            self.run.all()
        });
        let settings = held(&self.run.settings, window).to_vec();
        let cut = Cut {
            number,
            window,
            settings: &settings,
        };
        let groups = first.content.groups.len() as u64;
        if cut.always(|settings| settings.batch_groups != groups) {
            let declared = settings.first().map_or(0, |held| held.value.batch_groups);
            let what = format!("it has {groups} groups; {declared} were declared");
            self.report.add(Rule::Contents, place, what);
        }
        for group in &first.content.groups {
            self.group(cut, group, payload);
        }
        if let Some(payload) = payload {
            self.payload(place, first, payload);
        }
    }

    /// Whether what was stored of a member of a batch was deleted, after which the batch comes
    /// without that.
    fn has_deleted(&self, batch: &Received) -> bool {
        batch.content.groups.iter().any(|group| {
            let is_deleted = |member: &Member| {
                let facts = self.run.facts(&group.key, &member.program);
                facts.is_some_and(|facts| facts.deleted)
            };
            group.members.iter().any(is_deleted)
        })
    }

    /// Compares the receptions of a batch, unless it may have changed. Answers its payload.
    fn receptions(
        &mut self,
        place: Place<'_>,
        first: &Received,
        receptions: &[&'a Received],
    ) -> Option<&'a Payload> {
        let may_change = self.has_deleted(first);
        let mut payload: Option<&'a Payload> = None;
        for (index, received) in receptions.iter().enumerate() {
            if may_change && index > 0 {
                break;
            }
            if received.unchanging != first.unchanging {
                let what = format!("reception {index} has other JSON than the first");
                self.report.add(Rule::Unchanged, place, what);
            }
            match &received.payload {
                Some(Ok(found)) if payload.is_some_and(|p| p.file != found.file) => {
                    let what = format!("reception {index} has another payload than the first");
                    self.report.add(Rule::Unchanged, place, what);
                }
                Some(Ok(found)) => payload = Some(found),
                Some(Err(fault)) => {
                    let what = format!("the payload of reception {index}: {fault}");
                    self.report.add(Rule::Payload, place, what);
                }
                None => {}
            }
        }
        payload
    }

    fn once(&mut self, key: Key<'a>, place: Place<'_>, number: u64) {
        if let Some(earlier) = self.seen.insert(key, number) {
            let what = match key {
                Key::Group(_) => "the group",
                Key::Program(_) => "the program",
            };
            let what = format!("{what} was in batch {earlier} already");
            self.report.add(Rule::Once, place, what);
        }
    }

    fn group(&mut self, cut: Cut<'_, 'a>, group: &'a Group, payload: Option<&Payload>) {
        let place = Place {
            group: Some(&group.key),
            ..Place::batch(cut.number)
        };
        self.report.groups += 1;
        self.once(Key::Group(&group.key), place, cut.number);
        let members = group.members.len() as u64;
        let sizes: Vec<u64> = self.run.sizes(&group.key).collect();
        if !sizes.is_empty() && !sizes.contains(&members) {
            let what = format!("it has {members} members; its size is {sizes:?}");
            self.report.add(Rule::Selected, place, what);
        }
        let trained_on = cut.number.saturating_sub(1);
        let oldest = group.members.iter().map(|member| member.version).min();
        let version = oldest.unwrap_or(group.version);
        let lag = trained_on.saturating_sub(version);
        if version != group.version || lag != group.lag || version > trained_on {
            let (says, of) = (group.version, group.lag);
            let what = format!(
                "it says version {says} and lag {of}; its members have version \
                 {version}, which makes the lag {lag} on version {trained_on}"
            );
            self.report.add(Rule::Contents, place, what);
        }
        self.report.lag_max_seen = self.report.lag_max_seen.max(lag);
        if cut.always(|settings| lag > settings.lag_max) {
            let allowed = cut.settings.iter().map(|held| held.value.lag_max).max();
            let allowed = allowed.unwrap_or_default();
            let what = format!(
                "version {version} has lag {lag} on version {trained_on}; at most {allowed} was \
                 declared"
            );
            self.report.add(Rule::Lag, place, what);
        }
        for member in &group.members {
            let place = Place {
                program: Some(&member.program),
                ..place
            };
            self.report.members += 1;
            self.once(Key::Program(&member.program), place, cut.number);
            self.member(cut, place, &group.key, member);
            let sampled = payload.map(|payload| payload.members.get(&member.program));
            match sampled {
                Some(Some(sampled)) => self.sampled(place, member, sampled),
                Some(None) => {
                    let what = "the payload does not have this member".to_owned();
                    self.report.add(Rule::Payload, place, what);
                }
                None => {}
            }
        }
    }

    fn member(&mut self, cut: Cut<'_, 'a>, place: Place<'_>, group: &str, member: &Member) {
        let none = Facts::default();
        let facts = self.run.facts(group, &member.program).unwrap_or(&none);
        let window = cut.window;
        let arrivals = facts.arrivals.partition_point(|at| *at < window.to);
        let arrivals = &facts.arrivals[..arrivals];
        let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
            let what = "it never arrived in this group before the batch".to_owned();
            self.report.add(Rule::Ended, place, what);
            return;
        };
        let mut span = Window {
            from: *first,
            to: window.to,
        };
        let ends = facts.ends.partition_point(|end| end.at < window.to);
        let attempt = Attempt {
            facts,
            member,
            window,
            last: *last,
            ends: &facts.ends[..ends],
        };
        let released = self.run.released(&member.program, span);
        let reported = attempt.ends.last().map(|end| end.at);
        span.to = reported.or(released).unwrap_or(window.to);
        let has_ended = released.is_some();
        let needs = |what: fn(&Settings) -> bool| cut.always(what);
        let faults = [
            (Rule::Ended, attempt.end(has_ended)),
            (Rule::Version, attempt.version(&self.run, span)),
            (Rule::Abandoned, attempt.abandoned(&self.run, released)),
            (Rule::Reward, attempt.reward(needs(|held| held.rewarded))),
            (
                Rule::Sample,
                attempt.sample(needs(|held| held.capture == Capture::Tokens)),
            ),
            (Rule::Captured, attempt.capture(&self.run)),
            (Rule::Selected, attempt.left_out()),
        ];
        for (rule, fault) in faults {
            if let Some(what) = fault {
                self.report.add(rule, place, what);
            }
        }
    }

    /// Compares a member with what the payload has of it.
    fn sampled(&mut self, place: Place<'_>, member: &Member, sampled: &Sampled) {
        let group = sampled.group.as_deref();
        if group.is_some() && group != place.group {
            let what = format!(
                "the payload has it in group `{}`",
                group.unwrap_or_default()
            );
            self.report.add(Rule::Payload, place, what);
        }
        let (served, held) = (member.reward, sampled.reward);
        if served.map_or(!held.is_nan(), |reward| !same(reward, held)) {
            let what = format!(
                "the payload has the reward {held}, the batch {}",
                shown(served)
            );
            self.report.add(Rule::Payload, place, what);
        }
        if let Some(oldest) = sampled.oldest.filter(|oldest| *oldest < member.version) {
            let stated = member.version;
            let what =
                format!("the payload has tokens of version {oldest}; the batch says {stated}");
            self.report.add(Rule::Version, place, what);
        }
        let (named, served) = (sampled.sample.as_deref(), member.sample.as_deref());
        if named.map(digits) != served.map(digits) {
            let what = format!(
                "the payload names sample {}, the batch {}",
                named.unwrap_or("none"),
                served.unwrap_or("none")
            );
            self.report.add(Rule::Sample, place, what);
        }
        let Some(served) = served else { return };
        self.report.samples_checked += 1;
        if digits(served) != sampled.digest {
            let hashed = &sampled.digest;
            let what = format!("its tokens have the digest {hashed}; the batch says {served}");
            self.report.add(Rule::Sample, place, what);
        }
    }

    fn payload(&mut self, place: Place<'_>, batch: &Received, payload: &Payload) {
        let content = &batch.content;
        if payload.job != content.job || payload.batch != content.batch {
            let what = format!(
                "the payload is batch {} of job `{}`",
                payload.batch, payload.job
            );
            self.report.add(Rule::Payload, place, what);
        }
        let served: BTreeSet<&str> = content.groups.iter().map(|group| &*group.key).collect();
        let held: BTreeSet<&str> = payload.groups.iter().map(|group| &**group).collect();
        if let Some(group) = served.symmetric_difference(&held).next() {
            let what = format!("group `{group}` is only in the batch or only in the payload");
            self.report.add(Rule::Payload, place, what);
        }
        let members: usize = content.groups.iter().map(|group| group.members.len()).sum();
        let held = payload.members.len();
        if held != members {
            let what = format!("the payload has {held} members, the batch {members}");
            self.report.add(Rule::Payload, place, what);
        }
    }
}
