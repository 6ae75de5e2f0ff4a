//! What members of each domain need, and which class of hardware suits them.

use serde::Serialize;
use std::collections::BTreeMap;
use treadle_core::estimates::{ClassSpeed, DomainProfile, Exchange, JobProfile};
use treadle_core::programs;
use treadle_core::training::Affinity;
use utoipa::ToSchema;

/// What members need, by domain, and the classes of hardware that they prefer.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrainingProfile {
    /// By domain; `default` is of groups without one, `other` of domains beyond the first 64.
    domains: BTreeMap<String, TrainingDomain>,
    /// With affinity `auto`: the classes that were chosen last. They act once the same are chosen
    /// again, 16 members later.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    proposed: BTreeMap<String, String>,
    /// A declaration that looks wrong, with figures: nothing is changed because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Means over the latest members of a domain that came to their end, about 1,000, of those whose
/// requests treadle forwarded.
#[derive(Serialize, ToSchema)]
struct TrainingDomain {
    /// The class of hardware that its members prefer.
    class: Option<String>,
    /// Members.
    members: u64,
    /// Steps of a member.
    turns: f64,
    /// Prompt tokens of a member that were not in a cache.
    prefill_tokens: f64,
    /// Tokens that a member generated.
    output_tokens: f64,
    /// Seconds that a member takes on each class, without tools and waits, as far as its speeds are
    /// learnt.
    seconds: BTreeMap<String, f64>,
}

impl TrainingDomain {
    fn of(class: Option<&str>, sums: &DomainProfile, speeds: &[ClassSpeed]) -> Self {
        let mean = |sum: u64| sum as f64 / sums.members.max(1) as f64;
        let seconds = speeds.iter();
        let seconds = seconds.map(|speed| {
            let ms = sums.member_ms(speed);
            (speed.class.to_string(), ms as f64 / 1e3)
        });
        Self {
            class: class.map(str::to_owned),
            members: sums.members,
            turns: mean(sums.turns),
            prefill_tokens: mean(sums.prefill_tokens),
            output_tokens: mean(sums.output_tokens),
            seconds: seconds.collect(),
        }
    }
}

impl TrainingProfile {
    /// The profile of a job; `None` before the first member has ended.
    pub(crate) fn of(
        job: &str,
        affinity: Option<&Affinity>,
        programs: &programs::State,
    ) -> Option<Self> {
        let profile = programs.estimates.profiles().get(job)?;
        let speeds = programs.class_speeds();
        let class_of = |domain: &str| class_of(affinity, profile, domain);
        let domains = profile.domains.iter().map(|(name, sums)| {
            let class = class_of(name);
            let view = TrainingDomain::of(class.as_deref(), sums, &speeds);
            (name.to_string(), view)
        });
        let proposed = profile.proposed.iter();
        let proposed = proposed.map(|(domain, class)| (domain.to_string(), class.to_string()));
        let is_declared = matches!(affinity, Some(Affinity::Classes(_)));
        let wrong = is_declared.then(|| profile.better_exchange(class_of, &speeds));
        Some(Self {
            domains: domains.collect(),
            proposed: proposed.collect(),
            note: wrong.flatten().map(|exchange| note_of(&exchange)),
        })
    }
}

fn class_of(affinity: Option<&Affinity>, profile: &JobProfile, domain: &str) -> Option<Box<str>> {
    match affinity? {
        Affinity::Auto(_) => profile.in_force.get(domain).cloned(),
        declared @ Affinity::Classes(_) => declared.class_of(domain).map(Box::from),
    }
}

fn note_of(exchange: &Exchange) -> String {
    let [one, other] = &exchange.sides;
    let seconds = |ms: u64| ms as f64 / 1e3;
    let gain = exchange.gain_milli as f64 / 1e3;
    format!(
        "the affinity looks wrong: a member of `{}` takes {:.1} s on {} and {:.1} s on {}, one of \
         `{}` {:.1} s on {} and {:.1} s on {}; exchanging the classes of both would gain {gain:.2} \
         times",
        one.domain,
        seconds(one.ms),
        one.class,
        seconds(one.other_ms),
        other.class,
        other.domain,
        seconds(other.ms),
        other.class,
        seconds(other.other_ms),
        one.class,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_core::estimates::ExchangeSide;

    #[test]
    fn a_wrong_declaration_is_told_with_figures() {
        let side = |domain: &str, class: &str, ms, other_ms| ExchangeSide {
            domain: domain.into(),
            class: class.into(),
            ms,
            other_ms,
        };
        let exchange = Exchange {
            sides: [
                side("game", "h20", 28_000, 14_400),
                side("math", "h800", 48_012, 48_080),
            ],
            gain_milli: 1_941,
        };
        assert_eq!(
            note_of(&exchange),
            "the affinity looks wrong: a member of `game` takes 28.0 s on h20 and 14.4 s on h800, \
             one of `math` 48.0 s on h800 and 48.1 s on h20; exchanging the classes of both would \
             gain 1.94 times"
        );
    }
}
