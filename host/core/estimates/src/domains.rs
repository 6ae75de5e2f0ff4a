//! What members of training runs need, by domain: turns, prompts and answers; how long they take on
//! each class of hardware by its learnt speeds; and which class suits which domain.
//!
//! Domains compete for the same engines, so only comparative advantage counts: a domain belongs on a
//! class if it gains more there, relative to another class, than the other domains do. A class that
//! is faster at everything is no reason to move one domain rather than another.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Jobs with profiles.
pub const PROFILED_JOBS_MAX: usize = 1_024;
/// Domains of a job that are told apart.
pub const PROFILED_DOMAINS_MAX: usize = 64;
/// The domain of members whose own is one too many.
const OTHER: &str = "other";
/// Sums are halved at this many members, so that they follow a run whose answers change.
const MEMBERS_MAX: u64 = 1_024;
/// Members of a domain before anything is said of it.
pub const PROFILED_LEAST: u64 = 8;
/// A choice of classes is renewed after this many members.
const RENEWED_AFTER: u64 = 16;
/// A declaration looks wrong if an exchange would be this many times as fast, in thousandths.
const WRONG_FROM_MILLI: u128 = 1_200;

/// A member that came to its end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FinishedMember {
    /// Its finished steps.
    pub turns: u64,
    /// Prompt tokens that were not in a cache.
    pub prefill_tokens: u64,
    /// Tokens that it generated.
    pub output_tokens: u64,
}

/// Sums over the latest members of a domain.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DomainProfile {
    /// Members.
    pub members: u64,
    /// Their finished steps.
    pub turns: u64,
    /// Prompt tokens that were not in a cache.
    pub prefill_tokens: u64,
    /// Tokens that they generated.
    pub output_tokens: u64,
}

/// The speed of the workers of a class.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClassSpeed {
    /// The class.
    pub class: Box<str>,
    /// Workers with it, or their KV memory in tokens if all of it is known.
    pub size: u64,
    /// Time per prompt token, in nanoseconds.
    pub prefill_ns: u64,
    /// Time per generated token beside other steps, in nanoseconds.
    pub token_ns: u64,
}

impl DomainProfile {
    fn add(&mut self, member: FinishedMember) {
        let sums = [
            (&mut self.members, 1),
            (&mut self.turns, member.turns),
            (&mut self.prefill_tokens, member.prefill_tokens),
            (&mut self.output_tokens, member.output_tokens),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        if self.members >= MEMBERS_MAX {
            self.members /= 2;
            self.turns /= 2;
            self.prefill_tokens /= 2;
            self.output_tokens /= 2;
        }
    }

    /// Nanoseconds that all its members take on a class, for prompts and for answers.
    fn parts_ns(&self, speed: &ClassSpeed) -> [u128; 2] {
        [
            u128::from(self.prefill_tokens) * u128::from(speed.prefill_ns),
            u128::from(self.output_tokens) * u128::from(speed.token_ns),
        ]
    }

    fn all_ns(&self, speed: &ClassSpeed) -> u128 {
        let [prefill, decode] = self.parts_ns(speed);
        (prefill + decode).max(1)
    }

    /// Milliseconds that a member takes on a class, on average, without tools and waits.
    pub fn member_ms(&self, speed: &ClassSpeed) -> u64 {
        let ms = self.all_ns(speed) / u128::from(self.members.max(1)) / 1_000_000;
        u64::try_from(ms).unwrap_or(u64::MAX)
    }
}

/// The profile of a job, and the classes that were chosen by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProfile {
    /// Sums by domain.
    pub domains: BTreeMap<Box<str>, DomainProfile>,
    /// Whether classes are chosen for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chooses: bool,
    /// The latest choice. It acts once it is the same after more members.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proposed: BTreeMap<Box<str>, Box<str>>,
    /// The choice that acts: members that begin prefer these classes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_force: BTreeMap<Box<str>, Box<str>>,
    /// Members since the choice was renewed.
    #[serde(default)]
    fresh: u64,
}

impl JobProfile {
    fn add(&mut self, domain: &str, member: FinishedMember) {
        let is_full =
            self.domains.len() >= PROFILED_DOMAINS_MAX && !self.domains.contains_key(domain);
        let name = if is_full { OTHER } else { domain };
        self.domains.entry(name.into()).or_default().add(member);
        self.fresh = self.fresh.saturating_add(1);
    }

    fn known(&self) -> impl Iterator<Item = (&str, &DomainProfile)> {
        let known = self.domains.iter();
        let known = known.filter(|(_, sums)| sums.members >= PROFILED_LEAST);
        known.map(|(name, sums)| (&**name, sums))
    }

    /// Whether a choice is due.
    pub fn is_due(&self) -> bool {
        self.chooses && self.fresh >= RENEWED_AFTER
    }

    /// Renews the choice: a choice that is the same as the last one acts.
    pub fn renew(&mut self, speeds: &[ClassSpeed]) {
        self.fresh = 0;
        let chosen = self.chosen(speeds);
        if !chosen.is_empty() && chosen == self.proposed {
            self.in_force.clone_from(&chosen);
        }
        self.proposed = chosen;
    }

    /// The domains with the largest share of decoding get the class that is relatively best at it,
    /// as far as its part of all engines goes, then the next class. Nothing before all domains have
    /// members and two classes have speeds.
    fn chosen(&self, speeds: &[ClassSpeed]) -> BTreeMap<Box<str>, Box<str>> {
        let mut domains: Vec<_> = self.known().collect();
        if speeds.len() < 2 || domains.len() < 2 || domains.len() < self.domains.len() {
            return BTreeMap::new();
        }
        let mut classes: Vec<&ClassSpeed> = speeds.iter().collect();
        // The least time for a token of an answer, in times for one of a prompt.
        classes.sort_by(|a, b| {
            let left = u128::from(a.token_ns) * u128::from(b.prefill_ns);
            let right = u128::from(b.token_ns) * u128::from(a.prefill_ns);
            left.cmp(&right).then_with(|| a.class.cmp(&b.class))
        });
        let parts = |sums: &DomainProfile| {
            let of = speeds.iter().map(|speed| sums.parts_ns(speed));
            of.fold([0, 0], |[p, d], [prefill, decode]| {
                [p + prefill, d + decode]
            })
        };
        let decode_ppm = |sums: &DomainProfile| {
            let [prefill, decode] = parts(sums);
            decode.saturating_mul(1_000_000) / (prefill + decode).max(1)
        };
        domains.sort_by_key(|(name, sums)| (std::cmp::Reverse(decode_ppm(sums)), *name));
        let load = |sums: &DomainProfile| parts(sums).iter().sum::<u128>().max(1);
        let all_load: u128 = domains.iter().map(|(_, sums)| load(sums)).sum();
        let all_size: u128 = classes.iter().map(|c| u128::from(c.size.max(1))).sum();
        let mut before = 0;
        let class_at = |middle: u128| {
            let mut size = 0;
            let at = classes.iter().find(|class| {
                size += u128::from(class.size.max(1));
                middle.saturating_mul(all_size) < size.saturating_mul(2 * all_load)
            });
            at.or(classes.last()).map(|class| class.class.clone())
        };
        let chosen = domains.into_iter().filter_map(|(name, sums)| {
            let own = load(sums);
            // Twice the middle of its part of the load.
            let middle = 2 * before + own;
            before += own;
            Some((name.into(), class_at(middle)?))
        });
        chosen.collect()
    }

    /// The exchange of the classes of two domains that would gain most, if one would clearly gain.
    pub fn better_exchange(
        &self,
        class_of: impl Fn(&str) -> Option<Box<str>>,
        speeds: &[ClassSpeed],
    ) -> Option<Exchange> {
        let placed = self.known().filter_map(|(name, sums)| {
            let class = class_of(name)?;
            let at = speeds.iter().find(|speed| speed.class == class)?;
            Some((name, sums, at))
        });
        let placed: Vec<_> = placed.collect();
        let mut best: Option<Exchange> = None;
        for (row, (one, sums, here)) in placed.iter().enumerate() {
            for (other, others, there) in &placed[row + 1..] {
                if here.class == there.class {
                    continue;
                }
                let [now, then] = [[here, there], [there, here]]
                    .map(|[a, b]| sums.all_ns(a).saturating_mul(others.all_ns(b)));
                let milli = now.saturating_mul(1_000) / then.max(1);
                let gain_milli = u64::try_from(milli).unwrap_or(u64::MAX);
                let is_best = best.as_ref().is_none_or(|b| b.gain_milli < gain_milli);
                if milli >= WRONG_FROM_MILLI && is_best {
                    let side =
                        |domain: &str, sums: &DomainProfile, at: &ClassSpeed, to: &ClassSpeed| {
                            ExchangeSide {
                                domain: domain.into(),
                                class: at.class.clone(),
                                ms: sums.member_ms(at),
                                other_ms: sums.member_ms(to),
                            }
                        };
                    best = Some(Exchange {
                        sides: [
                            side(one, sums, here, there),
                            side(other, others, there, here),
                        ],
                        gain_milli,
                    });
                }
            }
        }
        best
    }
}

/// Two domains that would gain if they exchanged their classes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exchange {
    /// Both.
    pub sides: [ExchangeSide; 2],
    /// The product of both gains, in thousandths.
    pub gain_milli: u64,
}

/// One of two domains.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ExchangeSide {
    /// Its name.
    pub domain: Box<str>,
    /// Its class.
    pub class: Box<str>,
    /// Milliseconds of a member there.
    pub ms: u64,
    /// Milliseconds of a member on the class of the other domain.
    pub other_ms: u64,
}

/// Profiles by job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Profiles(BTreeMap<Box<str>, JobProfile>);

impl Profiles {
    /// True if no job has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The profile of a job.
    pub fn get(&self, job: &str) -> Option<&JobProfile> {
        self.0.get(job)
    }

    /// The profile of a job, which is begun if there is room.
    pub(super) fn of(&mut self, job: &str) -> Option<&mut JobProfile> {
        if self.0.len() >= PROFILED_JOBS_MAX && !self.0.contains_key(job) {
            return None;
        }
        Some(self.0.entry(job.into()).or_default())
    }

    pub(super) fn add(&mut self, job: &str, domain: &str, member: FinishedMember) {
        if let Some(profile) = self.of(job) {
            profile.add(domain, member);
        }
    }

    pub(super) fn remove(&mut self, job: &str) {
        self.0.remove(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(class: &str, size: u64, prefill_ns: u64, token_ns: u64) -> ClassSpeed {
        ClassSpeed {
            class: class.into(),
            size,
            prefill_ns,
            token_ns,
        }
    }

    /// One with fast prompts, and one whose answers are as fast for less.
    fn speeds() -> [ClassSpeed; 2] {
        [
            speed("h20", 1, 400_000, 12_000_000),
            speed("h800", 1, 60_000, 12_000_000),
        ]
    }

    fn member(turns: u64, prefill_tokens: u64, output_tokens: u64) -> FinishedMember {
        FinishedMember {
            turns,
            prefill_tokens,
            output_tokens,
        }
    }

    /// Long answers in math, long prompts in games.
    fn profile(members: u64) -> JobProfile {
        let mut profile = JobProfile::default();
        for _ in 0..members {
            profile.add("math", member(1, 200, 4_000));
            profile.add("game", member(40, 40_000, 1_000));
        }
        profile
    }

    fn declared(math: &'static str, game: &'static str) -> impl Fn(&str) -> Option<Box<str>> {
        move |domain| Some(if domain == "math" { math } else { game }.into())
    }

    #[test]
    fn means_are_of_the_latest_members() {
        let mut profile = JobProfile::default();
        for _ in 0..5_000 {
            profile.add("math", member(1, 100, 1_000));
        }
        for _ in 0..5_000 {
            profile.add("math", member(2, 100, 3_000));
        }
        let sums = profile.domains["math"];
        assert!(sums.members < MEMBERS_MAX, "{sums:?}");
        let mean = sums.output_tokens / sums.members;
        assert!((2_900..=3_000).contains(&mean), "{mean}");
    }

    #[test]
    fn domains_beyond_the_limit_are_one() {
        let mut profile = JobProfile::default();
        for number in 0..2 * PROFILED_DOMAINS_MAX {
            profile.add(&format!("d{number}"), member(1, 1, 1));
        }
        assert_eq!(profile.domains.len(), PROFILED_DOMAINS_MAX + 1);
        assert_eq!(profile.domains[OTHER].members, 64);
    }

    #[test]
    fn jobs_beyond_the_limit_have_no_profile() {
        let mut profiles = Profiles::default();
        for number in 0..2 * PROFILED_JOBS_MAX {
            profiles.add(&format!("j{number}"), "math", member(1, 1, 1));
        }
        assert_eq!(profiles.0.len(), PROFILED_JOBS_MAX);
    }

    #[test]
    fn times_are_by_the_speeds_of_the_class() {
        let profile = profile(10);
        let times = |domain: &str| speeds().map(|speed| profile.domains[domain].member_ms(&speed));
        assert_eq!(times("math"), [48_080, 48_012]);
        assert_eq!(times("game"), [28_000, 14_400]);
    }

    #[test]
    fn a_declaration_that_is_the_wrong_way_round_is_found() {
        let profile = profile(PROFILED_LEAST);
        let found = profile.better_exchange(declared("h800", "h20"), &speeds());
        let found = found.expect("games have long prompts");
        assert_eq!(found.gain_milli, 1_941);
        let [game, math] = &found.sides;
        assert_eq!(
            (&*game.domain, game.ms, game.other_ms),
            ("game", 28_000, 14_400)
        );
        assert_eq!(
            (&*math.domain, math.ms, math.other_ms),
            ("math", 48_012, 48_080)
        );
        let right = profile.better_exchange(declared("h20", "h800"), &speeds());
        assert_eq!(right, None);
        // Both on the slower one: another class would be faster, but for both.
        let same = profile.better_exchange(declared("h20", "h20"), &speeds());
        assert_eq!(same, None);
    }

    #[test]
    fn nothing_is_said_before_enough_members() {
        let profile = profile(PROFILED_LEAST - 1);
        let found = profile.better_exchange(declared("h800", "h20"), &speeds());
        assert_eq!(found, None);
        assert!(profile.chosen(&speeds()).is_empty());
    }

    #[test]
    fn a_choice_is_proposed_before_it_acts() {
        let mut profile = profile(10);
        profile.chooses = true;
        assert!(profile.is_due());
        profile.renew(&speeds());
        assert!(profile.in_force.is_empty() && !profile.is_due());
        assert_eq!(&*profile.proposed["math"], "h20");
        assert_eq!(&*profile.proposed["game"], "h800");
        for _ in 0..RENEWED_AFTER {
            profile.add("math", member(1, 200, 4_000));
        }
        assert!(profile.is_due());
        profile.renew(&speeds());
        assert_eq!(profile.in_force, profile.proposed);
        // Speeds are not known for a while: what acts stays.
        profile.renew(&[]);
        assert_eq!(&*profile.in_force["math"], "h20");
    }

    #[test]
    fn classes_take_domains_as_far_as_their_size_goes() {
        let mut profile = profile(10);
        for _ in 0..10 {
            profile.add("code", member(4, 2_000, 4_000));
        }
        let chosen = |h20: u64, h800: u64| {
            let speeds = [
                speed("h20", h20, 400_000, 12_000_000),
                speed("h800", h800, 60_000, 12_000_000),
            ];
            let chosen = profile.chosen(&speeds);
            ["math", "code", "game"].map(|domain| chosen[domain].to_string())
        };
        assert_eq!(chosen(100, 1), ["h20", "h20", "h20"]);
        assert_eq!(chosen(3, 1), ["h20", "h20", "h800"]);
        assert_eq!(chosen(1, 1), ["h20", "h800", "h800"]);
        assert_eq!(chosen(1, 100), ["h800", "h800", "h800"]);
    }
}
