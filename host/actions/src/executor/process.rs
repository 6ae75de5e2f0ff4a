//! An attempt as a process: its environment, and the outcome by its end.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use treadle_core::actions::Outcome;

use super::attempt::{Attempt, failed};
use super::blocking;
use crate::body::ProcessBody;
use crate::process::{
    Cgroup, CoreLease, Ended, Identity, Leftover, MARK, ProcessOrder, Report, Stop, inherited,
};
use crate::requests::Server;

/// Name of the resource for cores.
const CPU: &str = "cpu";
/// Name of the resource for memory, in bytes.
const MEMORY: &str = "memory";

impl Attempt {
    pub(super) async fn process(
        mut self,
        body: &ProcessBody,
        service: Option<Server>,
    ) -> (Outcome, Vec<u8>) {
        let supervisors = self.parts.supervisors.clone();
        let supervisor = match supervisors.take().await {
            Ok(supervisor) => supervisor,
            Err(error) => return (failed(error.to_string()), Vec::new()),
        };
        let cores = self.granted(CPU).unwrap_or(0);
        let cores = usize::try_from(cores).unwrap_or(usize::MAX);
        let taken = self.parts.cores.take(cores);
        let (identity, pen) = (supervisor.identity(), supervisor.cgroup());
        let prepared = self.prepare(identity, pen, &taken).await;
        let is_stopped = *self.stop.borrow() != Stop::Not;
        let (cgroup, left) = match prepared {
            Ok(prepared) if !is_stopped => prepared,
            prepared => {
                supervisors.put(supervisor);
                let outcome = match prepared {
                    Ok((cgroup, _)) => {
                        remove(cgroup).await;
                        self.why_stopped()
                    }
                    Err(error) => failed(format!("could not record its start: {error}")),
                };
                return (outcome, Vec::new());
            }
        };
        let order = self.process_order(body, service, &taken, cgroup.as_ref());
        let (stdin, stop) = (body.stdin.as_bytes(), self.stop.clone());
        let began = self.tell_began();
        let ended = supervisors.run(supervisor, &order, stdin, left, stop, began);
        let ended = ended.await;
        let ran_out = cgroup.as_ref().is_some_and(Cgroup::ran_out_of_memory);
        remove(cgroup).await;
        let outcome = self.outcome(&ended, ran_out);
        (outcome, ended.output)
    }

    /// Makes its cgroup, and records its start.
    async fn prepare(
        &mut self,
        supervisor: Identity,
        pen: Option<PathBuf>,
        taken: &CoreLease,
    ) -> io::Result<(Option<Cgroup>, Leftover)> {
        let (parts, id) = (self.parts.clone(), self.id);
        let memory = self.granted(MEMORY);
        let cores = taken.cores().to_vec();
        // Ids of actions are unique only within a shard.
        let name = format!("{id}-{}", self.mark);
        let own = parts
            .cgroups
            .as_ref()
            .map(|cgroups| cgroups.folder_of(&name));
        let left = parts
            .markers
            .leftover(&self.mark, Some(supervisor), own.or(pen));
        blocking(move || {
            parts.markers.began(id, &left)?;
            let cgroups = parts.cgroups.as_ref();
            let cgroup = cgroups.map(|cgroups| cgroups.make(&name, &cores, memory));
            Ok((cgroup.transpose()?, left))
        })
        .await
    }

    fn process_order(
        &self,
        body: &ProcessBody,
        service: Option<Server>,
        taken: &CoreLease,
        cgroup: Option<&Cgroup>,
    ) -> ProcessOrder {
        let config = &self.parts.config;
        let cgroups = self.parts.cgroups.as_ref();
        ProcessOrder {
            command: body.command.clone(),
            env: self.environment(body, service),
            cwd: match &body.cwd {
                Some(cwd) => config.workdir.join(cwd),
                None => config.workdir.clone(),
            },
            run_ms_max: Some(self.order.run_max.micros().div_ceil(1_000)),
            grace_ms: config.grace.as_millis() as u64,
            cores: taken.cores().to_vec(),
            memory_bytes_max: self.granted(MEMORY),
            output_bytes_max: config.output_bytes_max,
            cgroup: cgroup.map(|cgroup| cgroup.folder().to_owned()),
            cgroup_home: cgroups.map(|cgroups| cgroups.home().to_owned()),
        }
    }

    fn environment(&self, body: &ProcessBody, service: Option<Server>) -> BTreeMap<String, String> {
        let mut env = inherited(&self.parts.config.inherit);
        env.extend(body.env.clone());
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        set("TREADLE_ACTION_ID", self.id.action.0.to_string());
        set("TREADLE_ATTEMPT", self.id.attempt.to_string());
        set("TREADLE_JOB", self.order.job.clone());
        let cores = self.granted(CPU).unwrap_or(1);
        set("TREADLE_PARALLELISM", cores.to_string());
        set(MARK, self.mark.clone());
        if let Some(chunk) = self.chunk() {
            self.parts.config.gpus.announce(chunk, &mut set);
        }
        if let Some(server) = service {
            set("TREADLE_SERVICE_URL", server.base);
        }
        env
    }

    fn outcome(&self, ended: &Ended, ran_out_of_memory: bool) -> Outcome {
        match &ended.report {
            Report::Exited(_) | Report::Killed(_) if ran_out_of_memory => Outcome::OutOfMemory,
            Report::Exited(code) => Outcome::Exited { code: *code },
            Report::Killed(signal) => Outcome::Killed { signal: *signal },
            Report::TimedOut => Outcome::TimedOut,
            Report::OutOfMemory => Outcome::OutOfMemory,
            Report::Stopped => self.why_stopped(),
            Report::Failed(cause) => failed(cause.as_str()),
            Report::Lost => Outcome::Unknown,
        }
    }
}

async fn remove(cgroup: Option<Cgroup>) {
    if let Some(cgroup) = cgroup {
        let removed = blocking(move || {
            cgroup.remove();
            Ok(())
        });
        let _ = removed.await;
    }
}
