//! The command line.

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::error::ChaosError;
use crate::form::Form;
use crate::schedule::Victim;

/// Kill daemons, broker, database and engines under load, and count what was lost.
#[derive(Parser, Clone, Debug)]
pub(crate) struct Options {
    /// The daemon; the newest of target/release and target/debug unless given.
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
    /// Features in use during the kills: each form is a separate run, one after another.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Form::ALL)]
    pub(crate) forms: Vec<Form>,
    /// Number of forms that run at once.
    #[arg(long, default_value_t = 1)]
    pub(crate) at_once: usize,
    /// Daemons on one store.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) daemons: u16,
    /// Simulated engines.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) engines: u16,
    /// Agent programs.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) programs: u32,
    /// Fewest steps of a program; it goes on until the last kill is survived.
    #[arg(long, default_value_t = 8)]
    pub(crate) steps_min: u32,
    /// Longest pause for a tool between two steps, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    pub(crate) pause_ms_max: u64,
    /// Kills of each kind: leading daemon, other daemon, broker, database, engine, what runs an
    /// action, agent of a node. In a training run those of the daemon, of the trainer and of both
    /// are five times the square of that, and loads of weights fail this often in each of four ways.
    #[arg(long, default_value_t = 3)]
    pub(crate) kills: u32,
    /// Times that everything is killed at once, after the other kills.
    #[arg(long, default_value_t = 1)]
    pub(crate) blackouts: u32,
    /// Leave the broker and its consumer out.
    #[arg(long)]
    pub(crate) without_broker: bool,
    /// Seed of the order and times of the kills, and of the programs' behaviour.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Time in seconds after which unfinished work counts as stuck.
    #[arg(long, default_value_t = 900)]
    pub(crate) seconds_max: u64,
    /// Folder for records and logs; by default a new one under target/chaos.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// More settings of the daemons, as for `treadle serve`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Be the trainer of the form `training`: its daemon is at this URL, its files in --folder.
    #[arg(long, hide = true, value_name = "URL", requires = "folder")]
    pub(crate) trainer: Option<String>,
}

impl Options {
    /// The options with a form's changes.
    pub(crate) fn of(&self, form: Form) -> Self {
        Self {
            daemons: form.daemons(self.daemons),
            programs: form.programs(self.programs),
            ..self.clone()
        }
    }

    /// The processes that kills of a form can hit, each as often as it is hit for one kill of others.
    pub(crate) fn victims(&self, form: Form) -> Vec<Victim> {
        let is_there = |victim: &Victim| match victim {
            Victim::Follower => self.daemons > 1,
            Victim::Broker => !self.without_broker,
            Victim::Executor | Victim::Node => form == Form::Actions,
            Victim::Trainer | Victim::DaemonAndTrainer => form == Form::Training,
            Victim::Leader | Victim::Database | Victim::Engine => true,
            Victim::Everything => false,
        };
        let times = |victim: Victim| match victim {
            Victim::Leader | Victim::Trainer | Victim::DaemonAndTrainer => form.often(self.kills),
            _ => 1,
        };
        let victims = Victim::ALL.into_iter().filter(is_there);
        victims
            .flat_map(|victim| std::iter::repeat_n(victim, times(victim)))
            .collect()
    }

    /// The daemon's binary.
    pub(crate) fn binary(&self) -> Result<PathBuf, ChaosError> {
        if let Some(path) = &self.binary {
            return std::path::absolute(path).map_err(ChaosError::file("--binary"));
        }
        let target = repository().join("target");
        let built = ["release", "debug"].map(|profile| target.join(profile).join("treadle"));
        let age = |path: &PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let newest = built
            .iter()
            .filter(|path| age(path).is_some())
            .max_by_key(|path| age(path));
        newest.cloned().ok_or_else(|| ChaosError::Binary {
            path: built[0].clone(),
            cause: "is not there".to_owned(),
        })
    }

    /// Refuses options that a form does not support.
    pub(crate) fn check(&self, form: Form) -> Result<(), ChaosError> {
        let refusal = match form {
            Form::Retention if self.without_broker => {
                "only the broker's consumer records removed events; leave out --without-broker"
            }
            Form::Shards if self.daemons == 1 => {
                "a single daemon has no shards; give more --daemons"
            }
            _ => return Ok(()),
        };
        Err(ChaosError::Form {
            name: form.as_str(),
            refusal,
        })
    }

    /// Creates the folder for records and logs of a form.
    pub(crate) fn folder(&self, form: Form) -> Result<PathBuf, ChaosError> {
        let name = format!("seed-{}-{}", self.seed, std::process::id());
        let folder = self
            .folder
            .clone()
            .unwrap_or_else(|| repository().join("target/chaos").join(name))
            .join(form.as_str());
        std::fs::create_dir_all(&folder).map_err(ChaosError::file(folder.display().to_string()))?;
        std::path::absolute(&folder).map_err(ChaosError::file("--folder"))
    }
}

/// The checkout that this was built in.
pub(crate) fn repository() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().unwrap_or(folder)
}
