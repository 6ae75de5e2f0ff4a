//! When a shaping policy is asked, and with what.

use crate::LivePrograms;
use crate::finished::hash;
use crate::group::{End, Group, Member};
use crate::job::Job;
use crate::shape::{OpenAsk, ShapedGroups, ShapedMembers, ShapingPurpose, ShapingQuestion};
use std::collections::BTreeSet;
use treadle_model::{AskId, Span, Timestamp};

/// How long an answer is waited for.
pub(crate) const ASK_DEADLINE: Span = Span::from_secs(1);
/// How often running members are looked at that a policy may end.
pub(crate) const LOOK_EVERY: Span = Span::from_secs(1);
/// Groups in a question.
const GROUPS_MAX: usize = 1_024;
/// Members in a question; of more, the rest is asked about next.
const MEMBERS_MAX: usize = 4_096;

impl Group {
    /// Members that have ended well.
    pub(crate) fn ended(&self) -> usize {
        let members = self.members.values();
        members.filter(|member| member.has_ended_well()).count()
    }

    /// Whether a policy may still end members of it.
    pub(crate) fn is_open_to_policy(&self) -> bool {
        self.shape.by_policy && !self.shape.selected && !self.stale
    }

    /// Whether others run after as many as are trained have ended well.
    pub(crate) fn is_watched(&self) -> bool {
        let size = usize::from(self.size);
        let may_lose = self.is_open_to_policy() && self.members.len() > size;
        may_lose && (size..self.members.len()).contains(&self.ended())
    }
}

impl Job {
    /// Members that a policy may have a group sample.
    pub(crate) fn size_max(&self, group: &Group) -> u16 {
        let factor = self.settings.redundancy_max;
        let most = group.size.saturating_mul(factor);
        most.min(crate::GROUP_SIZE_MAX).max(group.size)
    }

    /// Whether it is to be decided how many members a group samples.
    pub(crate) fn is_unsized(&self, group: &Group) -> bool {
        self.shaping.by_policy && group.shape.sampled == 0 && group.members.is_empty()
    }

    /// A policy is asked at once when another member of a watched group has ended.
    pub(crate) fn notice_ends(&mut self, key: &str) {
        let is_watched = self.shaping.watched.contains(key);
        let Some(group) = self.groups.get_mut(key).filter(|_| is_watched) else {
            return;
        };
        let ended = group.ended();
        if std::mem::replace(&mut group.shape.ended, ended) != ended {
            self.shaping.to_curtail.insert(key.into());
        }
    }

    /// Whether all members of a group have ended well and are to be selected from. Those beyond its
    /// size that have not begun by then are not waited for: their clients may not know of them.
    pub(crate) fn needs_selection(&self, group: &Group) -> bool {
        group.is_open_to_policy()
            && group.members.len() >= usize::from(group.size)
            && group.members.values().all(|member| self.is_whole(member))
    }

    /// The next question, if there is one and no other is open.
    pub(crate) fn next_question(
        &mut self,
        name: &str,
        ask: AskId,
        now: Timestamp,
        programs: &dyn LivePrograms,
    ) -> Option<ShapingQuestion> {
        self.look(now);
        if self.shaping.ask.is_some() {
            return None;
        }
        let (purpose, keys) = self.next_groups()?;
        let mut groups = ShapedGroups::default();
        let mut members = ShapedMembers {
            batch_groups: self.settings.batch_groups,
            ready_groups: u32::try_from(self.ready.len()).unwrap_or(u32::MAX),
            ..ShapedMembers::default()
        };
        for key in keys {
            let Some(group) = self.groups.get(&key) else {
                continue;
            };
            let is_full = members.program.len() + group.members.len() > MEMBERS_MAX;
            if is_full && !members.program.is_empty() {
                break;
            }
            if purpose != ShapingPurpose::Size {
                let row = u32::try_from(groups.key.len()).unwrap_or(u32::MAX);
                self.add_members(&mut members, row, group, now, programs);
            }
            self.add_group(&mut groups, &key, group);
            if purpose == ShapingPurpose::Curtail {
                self.shaping.to_curtail.remove(&key);
            }
        }
        self.shaping.ask = Some(OpenAsk {
            ask,
            purpose,
            groups: groups.key.clone(),
            deadline: now + ASK_DEADLINE,
        });
        Some(ShapingQuestion {
            job: name.into(),
            purpose,
            groups,
            members,
        })
    }

    /// What is asked for next, and about which groups.
    fn next_groups(&mut self) -> Option<(ShapingPurpose, Vec<Box<str>>)> {
        let first = |keys: &BTreeSet<Box<str>>| keys.iter().take(GROUPS_MAX).cloned().collect();
        let mut to_curtail = std::mem::take(&mut self.shaping.to_curtail);
        to_curtail.retain(|key| self.can_curtail(key));
        self.shaping.to_curtail = to_curtail;
        if !self.shaping.to_select.is_empty() {
            return Some((ShapingPurpose::Select, first(&self.shaping.to_select)));
        }
        if !self.shaping.to_curtail.is_empty() {
            return Some((ShapingPurpose::Curtail, first(&self.shaping.to_curtail)));
        }
        let is_next = |key: &str| {
            let group = self.groups.get(key);
            let could_begin = self.wait_for_others(key).is_none();
            could_begin && group.is_some_and(|group| self.is_unsized(group))
        };
        let mut held = self.held.keys().filter(|_| self.shaping.by_policy);
        let first = held.find(|key| is_next(key))?;
        // Those that are next in the queue too: how many all sample together is decided at once.
        let most = (self.settings.batch_groups as usize).clamp(1, GROUPS_MAX);
        let open = self.open.iter().map(|(_, _, key)| key);
        let others = open.filter(|key| *key != first);
        let others = others.filter(|key| {
            let group = self.groups.get(*key);
            group.is_some_and(|group| self.is_unsized(group))
        });
        let keys = std::iter::once(first).chain(others.take(most - 1));
        Some((ShapingPurpose::Size, keys.cloned().collect()))
    }

    /// Looks at running members from time to time, as long as a policy may end some.
    fn look(&mut self, now: Timestamp) {
        let is_full = self.ready.len() >= self.settings.batch_groups as usize;
        let can_cut = is_full && self.shaping.by_policy;
        if can_cut || !self.shaping.watched.is_empty() {
            let at = *self.shaping.look_at.get_or_insert(now + LOOK_EVERY);
            if at <= now {
                self.shaping.look_at = Some(now + LOOK_EVERY);
                let watched = self.shaping.watched.iter().cloned();
                self.shaping.to_curtail.extend(watched);
                if can_cut {
                    self.look_at_all();
                }
            }
        } else {
            self.shaping.look_at = None;
        }
    }

    /// Engines have a version: members that run are older from now on.
    pub(crate) fn weights_changed(&mut self, version: u64) {
        if self.version.replace(version) != Some(version) {
            self.look_at_all();
        }
    }

    /// A policy is to be asked about all members that run.
    pub(crate) fn look_at_all(&mut self) {
        let begun = self.begun.iter().map(|(_, key)| key);
        let running = begun.filter(|key| self.can_curtail(key));
        let running: Vec<Box<str>> = running.cloned().collect();
        self.shaping.to_curtail.extend(running);
    }

    /// Whether members of a group run that a policy may end.
    fn can_curtail(&self, key: &str) -> bool {
        let group = self.groups.get(key);
        group.is_some_and(|g| g.is_open_to_policy() && g.running().next().is_some())
    }

    fn add_group(&self, groups: &mut ShapedGroups, key: &str, group: &Group) {
        let prompt = group.content.as_deref().unwrap_or(key);
        let domain = group.domain.as_deref().map_or(0, |name| hash(name).max(1));
        groups.key.push(key.into());
        groups.prompt.push(hash(prompt));
        groups.domain.push(domain);
        groups.size.push(group.size.into());
        groups.size_max.push(self.size_max(group).into());
        groups.sampled.push(group.shape.sampled.into());
        groups.postponed.push(group.shape.postponed);
    }

    fn add_members(
        &self,
        members: &mut ShapedMembers,
        row: u32,
        group: &Group,
        now: Timestamp,
        programs: &dyn LivePrograms,
    ) {
        let version = self.version.unwrap_or_default();
        for (program, member) in in_order(group) {
            let (tokens, turns) = match member.end {
                Some(_) => (member.tokens, member.turns),
                None => programs.sampled(program).unwrap_or_default(),
            };
            let until = member.ended.unwrap_or(now);
            let lag = version.saturating_sub(member.version);
            members.program.push(program.into());
            members.group.push(row);
            members.state.push(match member.end {
                None => 0,
                Some(End::Truncated) => 2,
                Some(_) => 1,
            });
            members.tokens.push(tokens);
            members.turns.push(turns);
            members.elapsed_ms.push(until.since(member.begun).millis());
            members.lag.push(u32::try_from(lag).unwrap_or(u32::MAX));
        }
    }
}

/// The members of a group in the order in which they began.
pub(crate) fn in_order(group: &Group) -> Vec<(&str, &Member)> {
    let members = group.members.iter();
    let mut members: Vec<_> = members
        .map(|(program, member)| (&**program, member))
        .collect();
    members.sort_by_key(|(program, member)| (member.begun, *program));
    members
}
