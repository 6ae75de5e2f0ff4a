//! Injected bugs: deliberate faults of the machine of training runs, to check that the model's
//! rules detect them.

use std::collections::BTreeMap;
use treadle_core::training::{
    Batch, End, Job, JobSettings, Report, Reward, ShapingAnswer, TrainingCommand, TrainingEvent,
    Wait,
};
use treadle_core::{Command, Event};

macro_rules! injected_bugs {
    ($bug:ident { $($(#[$doc:meta])* $kind:ident => $name:literal),+ $(,)? }) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $bug {
            $($(#[$doc])* $kind),+
        }

        impl $bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// The bug with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|bug| bug.name() == name)
            }
        }
    };
}
pub(crate) use injected_bugs;

injected_bugs! { TrainingBug {
    /// The bound on the lag is taken to be one more.
    LagOneMore => "lag-one-more",
    /// One batch more is begun ahead.
    PaceOneMore => "pace-one-more",
    /// Batches have a group less.
    BatchOneLess => "batch-one-less",
    /// A group that became too old is kept, though it is to be cut.
    KeepStale => "keep-stale",
    /// Prompts that returned too often are not waited for.
    NeverStarved => "never-starved",
    /// Groups have a member less.
    ShortGroup => "short-group",
    /// A member that failed is trained with reward 0.
    FailureIsZero => "failure-is-zero",
    /// A reward that could not be computed is 0.
    NoRewardIsZero => "no-reward-is-zero",
    /// Now and then a member is lost when it gets its reward.
    LoseRewarded => "lose-rewarded",
    /// The versions of a sample's tokens are ignored.
    IgnoreSampleVersion => "ignore-sample-version",
    /// The version of the first token is ignored.
    IgnoreFirstToken => "ignore-first-token",
    /// Programs begin before engines have the weights that they wait for.
    BeginTooEarly => "begin-too-early",
    /// Groups begin for which there is no batch that they are not too old for.
    BeginWithoutPlace => "begin-without-place",
    /// What was sampled with abandoned versions is kept.
    KeepAbandoned => "keep-abandoned",
    /// Batches after a checkpoint are forgotten with a resume.
    ResumeCutsAnew => "resume-cuts-anew",
    /// A reward in a batch changes later.
    RewardAfterCut => "reward-after-cut",
    /// A group that was served is served again.
    ServeTwice => "serve-twice",
    /// The oldest group is left out.
    NewestFirst => "newest-first",
    /// Whoever names an old lineage is taken to be of the present one.
    AnyLineage => "any-lineage",
    /// Now and then a program is not told that it may begin.
    ForgetAdmission => "forget-admission",
    /// A surplus program is taken to be a member.
    SurplusIsMember => "surplus-is-member",
    /// The trainer is not told that its batch is there.
    ForgetBatch => "forget-batch",
    /// Engines get new weights, and programs wait on.
    ForgetVersion => "forget-version",
    /// Members may be open for ever.
    NoTimer => "no-timer",
    /// No group is named to clients once some have begun.
    NameNoGroup => "name-no-group",
    /// Lost members are not on the account.
    ForgetLost => "forget-lost",
    /// A call that comes again is counted again.
    CountAgain => "count-again",
    /// A group is lost that waits for members.
    LoseGroup => "lose-group",
    /// Recovery leaves an event out.
    ReplayDropsEvent => "replay-drops-event",
    /// A batch is released before its checkpoint.
    ReleaseEarly => "release-early",
    /// Other members are trained than those that the policy selected.
    SelectOthers => "select-others",
    /// Members begin before the policy has sized their group.
    BeginUnsized => "begin-unsized",
    /// The policy is asked again while it is asked.
    AskTwice => "ask-twice",
    /// A policy that does not answer is waited for.
    AskForEver => "ask-for-ever",
    /// Members end early that the group needs.
    EndTooMany => "end-too-many",
} }

impl TrainingBug {
    /// The event that the core gets instead, if any.
    pub(super) fn event(self, event: Event, events: u64) -> Option<Event> {
        let Event::Training(event) = event else {
            let is_token = event.kind() == "step_first_token";
            return (self != Self::IgnoreFirstToken || !is_token).then_some(event);
        };
        self.training_event(event, events).map(Event::Training)
    }

    fn training_event(self, mut event: TrainingEvent, events: u64) -> Option<TrainingEvent> {
        match (self, &mut event) {
            (Self::ForgetVersion, TrainingEvent::VersionTold { .. }) => return None,
            (_, TrainingEvent::JobDeclared { settings, .. }) => self.settings(settings),
            (Self::ShortGroup, TrainingEvent::GroupSubmitted { size, .. }) => {
                *size = size.map(|size| (size - 1).max(1));
            }
            (Self::FailureIsZero, TrainingEvent::MemberEnded { report, .. })
                if !report.end.is_trained() =>
            {
                *report = Report {
                    reward: Reward::new(0.0),
                    sample: Some("none".into()),
                    ..Report::of(End::Completed, report.tokens, report.turns)
                };
            }
            (Self::NoRewardIsZero, TrainingEvent::RewardFailed { member, .. }) => {
                let (member, reward) = (member.clone(), Reward::new(0.0)?);
                return Some(TrainingEvent::RewardGiven { member, reward });
            }
            (Self::LoseRewarded, TrainingEvent::RewardGiven { member, .. })
                if events.is_multiple_of(5) =>
            {
                let (member, cause) = (member.clone(), "injected".into());
                return Some(TrainingEvent::RewardFailed { member, cause });
            }
            (Self::IgnoreSampleVersion, TrainingEvent::MemberEnded { report, .. }) => {
                report.version = None;
            }
            (
                Self::SelectOthers,
                TrainingEvent::ShapingAnswered {
                    answer: ShapingAnswer::Selected(groups),
                    ..
                },
            ) => groups.clear(),
            _ => {}
        }
        Some(event)
    }

    fn settings(self, settings: &mut JobSettings) {
        match self {
            Self::LagOneMore => {
                settings.pipeline = settings.pipeline.min(settings.lag_max);
                settings.lag_max += 1;
            }
            Self::PaceOneMore => settings.pipeline += 1,
            Self::BatchOneLess => settings.batch_groups = (settings.batch_groups - 1).max(1),
            Self::NeverStarved => settings.starved_after = u32::MAX,
            _ => {}
        }
    }

    /// Changes a job before an event is handled; true if it did.
    pub(super) fn before(self, job: &mut Job, event: &TrainingEvent, hidden: &mut Hidden) -> bool {
        match (self, event) {
            (Self::KeepAbandoned, TrainingEvent::RolledBack { batch, .. }) => {
                job.version = job.version.map(|version| version.min(*batch));
                let members = job.groups.values_mut().flat_map(|g| g.members.values_mut());
                for member in members {
                    member.newest = member.newest.min(*batch);
                }
                true
            }
            (Self::NewestFirst, _) if job.ready.len() > job.settings.batch_groups as usize => {
                let Some((version, place, key)) = job.ready.pop_first() else {
                    return false;
                };
                job.begun.remove(&(version, key.clone()));
                *hidden = job.groups.remove(&key).map(|group| {
                    let ready = (version, place, key);
                    (ready, group)
                });
                true
            }
            (Self::BeginTooEarly, TrainingEvent::MemberArrived { .. }) => {
                let waits = job.waits_for_weights().is_some();
                if waits {
                    job.version = Some(job.next_batch - 1);
                }
                waits
            }
            (Self::BeginWithoutPlace, TrainingEvent::MemberArrived { .. }) => {
                let place = job.waits_for_place();
                let place = place.filter(|_| job.waits_for_weights().is_none());
                let Some(Wait::Weights { version }) = place else {
                    return false;
                };
                job.version = Some(version);
                true
            }
            (Self::ServeTwice, TrainingEvent::BatchRequested { .. }) => serve_again(job),
            (Self::BeginUnsized, TrainingEvent::MemberArrived { .. }) => {
                std::mem::take(&mut job.shaping.by_policy)
            }
            (Self::EndTooMany, TrainingEvent::ShapingAnswered { .. }) => {
                for group in job.groups.values_mut() {
                    group.size = 1;
                }
                true
            }
            _ => false,
        }
    }

    /// Changes a job after an event was handled; true if it did.
    pub(super) fn after(
        self,
        job: &mut Job,
        event: &TrainingEvent,
        events: u64,
        hidden: &mut Hidden,
    ) -> bool {
        if let Some((ready, group)) = hidden.take() {
            job.begun.insert((ready.0, ready.2.clone()));
            job.groups.insert(ready.2.clone(), group);
            job.ready.insert(ready);
            return true;
        }
        match (self, event) {
            (Self::ResumeCutsAnew, TrainingEvent::RolledBack { batch, .. }) => {
                job.batches.split_off(&(batch + 1));
                job.next_batch = batch + 1;
                job.requested = *batch;
            }
            (Self::RewardAfterCut, TrainingEvent::BatchTrained { .. }) => {
                let batches = job.batches.values_mut();
                let groups = batches.flat_map(|batch: &mut Batch| batch.groups.values_mut());
                let Some(group) = groups.into_iter().next() else {
                    return false;
                };
                for member in group.members.values_mut() {
                    member.reward = Reward::new(0.125);
                }
            }
            (Self::ForgetLost, _) if !job.account.all.lost.is_empty() => {
                job.account.all.lost = BTreeMap::new();
            }
            (Self::CountAgain, TrainingEvent::GroupSubmitted { .. }) => job.submitted += 1,
            (Self::LoseGroup, TrainingEvent::MemberEnded { .. }) if events.is_multiple_of(5) => {
                let Some((is_new, place, key)) = job.open.last().cloned() else {
                    return false;
                };
                if !is_new || job.held.contains_key(&key) {
                    return false;
                }
                job.open.remove(&(is_new, place, key.clone()));
                job.groups.remove(&key);
            }
            (Self::ReleaseEarly, TrainingEvent::BatchTrained { batch, .. }) => {
                job.checkpoint = job.checkpoint.max(*batch);
                job.batches = job.batches.split_off(&(job.checkpoint + 1));
            }
            _ => return false,
        }
        true
    }

    /// Changes commands.
    pub(super) fn commands(self, commands: &mut Vec<Command>, events: u64) {
        match self {
            Self::ForgetAdmission if events.is_multiple_of(5) => commands.retain(|command| {
                !matches!(
                    command,
                    Command::Training(TrainingCommand::AdmitMember { surplus: false, .. })
                )
            }),
            Self::KeepStale => commands.retain(|command| {
                !matches!(
                    command,
                    Command::Training(TrainingCommand::DropMember { running: true, .. })
                )
            }),
            Self::ForgetBatch => commands.retain(|command| {
                !matches!(
                    command,
                    Command::Training(TrainingCommand::ServeBatch { .. })
                )
            }),
            Self::AskTwice => {
                let is_asked = |command: &&Command| {
                    matches!(
                        command,
                        Command::Training(TrainingCommand::AskShaping { .. })
                    )
                };
                let asked: Vec<_> = commands.iter().filter(is_asked).cloned().collect();
                commands.extend(asked);
            }
            Self::SurplusIsMember => {
                for command in commands {
                    if let Command::Training(TrainingCommand::AdmitMember { surplus, .. }) = command
                    {
                        *surplus = false;
                    }
                }
            }
            _ => {}
        }
    }
}

/// Makes a group of a batch ready again; true if there is one.
fn serve_again(job: &mut Job) -> bool {
    let version = job.next_batch - 1;
    let mut groups = job.batches.values().flat_map(|batch| &batch.groups);
    let Some((key, mut group)) = groups.next().map(|(k, g)| (k.clone(), g.clone())) else {
        return false;
    };
    for member in group.members.values_mut() {
        member.version = version;
    }
    job.begun.insert((version, key.clone()));
    job.ready.insert((version, group.place, key.clone()));
    job.groups.insert(key, group);
    true
}

/// A group that is hidden while an event is handled, with its place among those that are ready.
pub(super) type Hidden = Option<(
    (u64, treadle_core::training::Place, Box<str>),
    treadle_core::training::Group,
)>;
