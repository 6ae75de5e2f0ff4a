//! The forms of a run: the features of the daemons in use during the kills.

use std::path::Path;

use clap::ValueEnum;

/// A form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A cluster with its defaults.
    Plain,
    /// Old rows are removed during the run.
    Retention,
    /// Memory is short, and KV caches go to host memory and back.
    HostTier,
    /// Policies rank steps, which wait in line for engines.
    Rollout,
    /// The jobs are divided between two schedulers.
    Shards,
    /// A single daemon runs the programs' tools, some of them in sandboxes here and on a node.
    Actions,
    /// Agents are members of a training run, whose trainer is killed too.
    Training,
}

/// A part of the jobs, which has a journal and a scheduler of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) name: &'static str,
    /// Where its store is.
    pub(crate) schema: &'static str,
    /// Prefix of its exchanges' names.
    pub(crate) prefix: &'static str,
}

const FIRST: Shard = Shard {
    name: "main",
    schema: "chaos",
    prefix: "treadle",
};
const SECOND: Shard = Shard {
    name: "second",
    schema: "chaos_second",
    prefix: "treadle.second",
};

/// KV memory of an engine: less than all programs together need.
const KV_TOKENS: u64 = 60_000;
/// KV memory per program and engine in forms with scarce memory; a context has some hundred tokens.
const SHORT_KV_TOKENS: u64 = 40;

/// The cluster secret of the daemon and its node.
pub(crate) const NODE_SECRET: &str = "cluster.secret=the same for the daemon and its node";

impl Form {
    /// All of them, in the order of a run.
    pub(crate) const ALL: [Self; 7] = [
        Self::Plain,
        Self::Retention,
        Self::HostTier,
        Self::Rollout,
        Self::Shards,
        Self::Actions,
        Self::Training,
    ];

    /// Its name on the command line and in the report.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Retention => "retention",
            Self::HostTier => "host-tier",
            Self::Rollout => "rollout",
            Self::Shards => "shards",
            Self::Actions => "actions",
            Self::Training => "training",
        }
    }

    /// The shards, the first one first.
    pub(crate) const fn shards(self) -> &'static [Shard] {
        match self {
            Self::Shards => &[FIRST, SECOND],
            _ => &[FIRST],
        }
    }

    /// Newest events that stay, and seconds for which ended programs stay; `None` if nothing may be
    /// removed.
    pub(crate) const fn keeps(self) -> Option<(u64, u64)> {
        match self {
            Self::Retention => Some((500, 3)),
            _ => None,
        }
    }

    /// Number of daemons, given the requested number: the checker reads the folder of one machine,
    /// and only a daemon that schedules by itself begins members of training runs.
    pub(crate) const fn daemons(self, wanted: u16) -> u16 {
        match self {
            Self::Actions | Self::Training => 1,
            _ => wanted,
        }
    }

    /// Number of programs, given the requested number. In a training run it is the number of agents,
    /// and each runs one program after another.
    pub(crate) fn programs(self, wanted: u32) -> u32 {
        match self {
            Self::Training => wanted.clamp(8, 16),
            _ => wanted,
        }
    }

    /// How many times as often as others the daemon and the trainer are killed, given the number of
    /// kills of others: 5 times in all in a run with 1 of these, and 45 times in one with 3.
    pub(crate) const fn often(self, kills: u32) -> usize {
        match self {
            Self::Training => 5 * kills as usize,
            _ => 1,
        }
    }

    /// What the pauses between kills are divided by.
    pub(crate) const fn haste(self) -> u32 {
        match self {
            Self::Training => 5,
            _ => 1,
        }
    }

    /// Settings of the daemons, with their records below a folder.
    pub(crate) fn settings(self, folder: &Path) -> Vec<String> {
        let (events, ended_s) = self.keeps().unwrap_or((1_000_000_000, 604_800));
        let mut settings = vec![
            format!("store.keep_events={events}"),
            format!("store.keep_ended_s={ended_s}"),
        ];
        let own: &[&str] = match self {
            Self::Plain => &["store.snapshot_events=5000"],
            // A journal is removed up to its latest snapshot only.
            Self::Retention => &["store.snapshot_events=200"],
            Self::HostTier => &[
                "store.snapshot_events=5000",
                "kv.host_tokens_max=100000",
                "scheduler.quantum_share=0",
                "scheduler.starvation_s_max=1",
            ],
            Self::Rollout => &[
                "store.snapshot_events=5000",
                "rollout.engine_steps_max=1",
                // The policy below is bound without a token.
                "auth.anonymous_scope=admin",
                "rollout.migration_interval_ms=1000",
                "kv.migration_tokens_per_s=100000",
            ],
            Self::Shards => &["store.snapshot_events=5000", "cluster.shards=main,second"],
            Self::Actions => &[
                "store.snapshot_events=5000",
                "actions.enabled=true",
                "sandboxes.enabled=true",
                NODE_SECRET,
                // Programs run actions without a token.
                "auth.anonymous_scope=admin",
            ],
            Self::Training => &[
                "store.snapshot_events=500",
                // The job is declared without a token.
                "auth.anonymous_scope=admin",
            ],
        };
        if self == Self::Actions {
            let folder = folder.display();
            settings.push(format!("actions.workdir={folder}"));
            settings.push(format!("actions.folder={folder}/executor"));
            settings.push(format!("sandboxes.folder={folder}/sandboxes"));
        }
        settings.extend(own.iter().map(|&setting| setting.to_owned()));
        settings
    }

    /// KV memory of each engine, given the number of programs.
    pub(crate) fn kv_tokens(self, programs: u32) -> u64 {
        match self {
            Self::HostTier => (u64::from(programs) * SHORT_KV_TOKENS).max(2_000),
            _ => KV_TOKENS,
        }
    }

    /// A policy from `plugins/` that decides, its world, and its configuration.
    pub(crate) const fn policy(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            // Steps of programs that have generated more go first, and others give way.
            Self::Rollout => Some((
                "heddle-priority",
                "priority",
                r#"{"rank": "total", "default_tokens": 1000, "preempt_margin_tokens": 0}"#,
            )),
            _ => None,
        }
    }

    /// Virtual seconds of the engines in a real one. They are fast, so that a run takes minutes; in
    /// a rollout no faster than that steps wait for each other.
    pub(crate) const fn time_scale(self) -> &'static str {
        match self {
            Self::Rollout => "4",
            _ => "20",
        }
    }

    /// Whether a program ends once it may, and not only after the last kill.
    pub(crate) const fn ends_early(self, program: u32) -> bool {
        matches!(self, Self::Retention) && program.is_multiple_of(2)
    }

    /// Counters of `/metrics` that each scheduler must have raised: otherwise the form has shown
    /// nothing.
    pub(crate) const fn counters(self) -> &'static [&'static str] {
        match self {
            Self::HostTier => &["treadle_kv_offloads_total", "treadle_kv_loads_total"],
            Self::Rollout => &["treadle_preemptions_total"],
            Self::Actions => &["treadle_actions_exited_total"],
            Self::Plain | Self::Retention | Self::Shards | Self::Training => {
                &["treadle_steps_finished_total"]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_a_name_of_its_own_and_settings_that_the_daemon_takes() {
        let mut names = std::collections::BTreeSet::new();
        for form in Form::ALL {
            assert_eq!(Form::from_str(form.as_str(), false), Ok(form));
            assert!(names.insert(form.as_str()));
            let settings = form.settings(Path::new("/nowhere"));
            assert!(settings.iter().all(|setting| setting.contains('=')));
        }
    }
}
