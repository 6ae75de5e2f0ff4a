//! One attempt from its start to its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use treadle_core::actions::{Grant, Outcome};
use treadle_model::Span;

use super::{ExecutorEvent, Parts, Slot, StartRequest, blocking};
use crate::body::{ActionBody, HttpBody, ProcessBody};
use crate::markers::{AttemptId, end_leftovers};
use crate::process::{
    Cgroup, Ended, MARK, Order, Report, Stop, Taken, Waiting, inherited, stopped,
};
use crate::requests::Answer;
use crate::services::Devices;

/// The resource that cores are.
const CPU: &str = "cpu";
/// The resource that memory is, in bytes.
const MEMORY: &str = "memory";
/// What a shell says where something can't be executed. No answer of HTTP has it as its status.
const EXIT_NOT_ALLOWED: i32 = 126;

/// What an attempt came to.
enum End {
    Over(Outcome, Vec<u8>),
    QuotaRefused(Span),
}

/// What an attempt has to run with.
struct Run {
    parts: Arc<Parts>,
    id: AttemptId,
    mark: String,
    request: StartRequest,
    stop: watch::Receiver<Stop>,
}

pub(super) async fn run(slot: Slot, request: StartRequest, stop: watch::Receiver<Stop>) {
    let parts = slot.parts.clone();
    let run = Run {
        parts: parts.clone(),
        id: slot.id,
        mark: mark(),
        request,
        stop,
    };
    let id = run.id;
    let event = match run.end().await {
        End::Over(outcome, output) => record(&parts, id, outcome, output).await,
        End::QuotaRefused(retry_after) => forget(&parts, id, retry_after).await,
    };
    // Whoever hears of the end finds the place free.
    drop(slot);
    // Nobody takes events any more where this fails: the daemon ends.
    let _ = parts.events.send(event).await;
}

/// Keeps the output, and puts the end on the disk.
async fn record(
    parts: &Arc<Parts>,
    id: AttemptId,
    outcome: Outcome,
    bytes: Vec<u8>,
) -> ExecutorEvent {
    let kept = if bytes.is_empty() {
        Ok(None)
    } else {
        parts.outputs.put(bytes).await.map(Some)
    };
    let (outcome, output) = match kept {
        Ok(output) => (outcome, output),
        Err(error) => (failed(error.to_string()), None),
    };
    let (markers, end, digest) = (parts.markers.clone(), outcome.clone(), output.clone());
    if let Err(error) = blocking(move || markers.ended(id, end, digest)).await {
        tracing::error!(%id, %error, "the end of an action is not on the disk; after a crash it is unknown");
    }
    let AttemptId { action, attempt } = id;
    ExecutorEvent::Ended {
        action,
        attempt,
        outcome,
        output,
    }
}

/// Takes an attempt off the record that came to nothing.
async fn forget(parts: &Arc<Parts>, id: AttemptId, retry_after: Span) -> ExecutorEvent {
    let markers = parts.markers.clone();
    let AttemptId { action, attempt } = id;
    match blocking(move || markers.erase(id)).await {
        Ok(()) => {
            parts.lock().held.remove(&id);
            ExecutorEvent::QuotaRefused {
                action,
                attempt,
                retry_after,
            }
        }
        Err(error) => {
            let outcome = failed(format!("its marker can't be removed: {error}"));
            record(parts, id, outcome, Vec::new()).await
        }
    }
}

fn failed(cause: impl Into<Box<str>>) -> Outcome {
    let cause = cause.into();
    Outcome::InfrastructureFailure { cause }
}

/// A text that no other attempt has.
fn mark() -> String {
    use std::fmt::Write as _;
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        tracing::warn!("no random numbers; leftovers of an action may go unfound after a crash");
    }
    let mut text = String::with_capacity(32);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn granted(grants: &[Grant], resource: &str) -> Option<u64> {
    let grant = grants.iter().find(|grant| *grant.resource == *resource);
    grant.map(|grant| grant.units)
}

impl Run {
    async fn end(mut self) -> End {
        let service = match self.load().await {
            Ok(service) => service,
            Err(outcome) => return End::Over(outcome, Vec::new()),
        };
        match &*self.request.body.clone() {
            ActionBody::Process(body) => {
                let (outcome, output) = self.process(body, service.as_deref()).await;
                End::Over(outcome, output)
            }
            ActionBody::Http(body) => self.http(body, None).await,
            ActionBody::Service(body) => self.http(&body.http, service.as_deref()).await,
        }
    }

    /// Has the service that it needs on its devices; gives where that answers.
    async fn load(&mut self) -> Result<Option<String>, Outcome> {
        let load = self
            .request
            .load
            .as_ref()
            .map(|load| load.service.to_string());
        let asked = match &*self.request.body {
            ActionBody::Service(body) => Some(body.service.clone()),
            _ => None,
        };
        let Some(name) = asked.or(load) else {
            return Ok(None);
        };
        let (services, devices) = (self.parts.services.clone(), self.devices());
        // It goes on if the action is stopped: devices are never left half changed.
        let ensured = tokio::spawn(async move { services.ensure(&name, &devices).await });
        tokio::select! {
            ensured = ensured => match ensured {
                Ok(Ok(url)) => Ok(Some(url)),
                Ok(Err(cause)) => Err(failed(cause)),
                Err(error) => Err(failed(error.to_string())),
            },
            () = stopped(&mut self.stop) => Err(self.why_stopped()),
        }
    }

    fn devices(&self) -> Devices {
        Devices::among(&self.request.grants)
    }

    fn run_max(&self) -> Duration {
        Duration::from_micros(self.request.run_max.micros())
    }

    fn why_stopped(&self) -> Outcome {
        match *self.stop.borrow() {
            Stop::Cancelled => Outcome::Cancelled,
            Stop::Not | Stop::Shutdown => failed("the daemon stopped while it ran"),
        }
    }

    async fn tell_began(&self) {
        let AttemptId { action, attempt } = self.id;
        let event = ExecutorEvent::Began { action, attempt };
        let _ = self.parts.events.send(event).await;
    }

    async fn process(mut self, body: &ProcessBody, service: Option<&str>) -> (Outcome, Vec<u8>) {
        // It starts while the disk is written, and does nothing before it has its order.
        let waiting = match Waiting::start(&self.parts.config.supervisor) {
            Ok(waiting) => waiting,
            Err(error) => return (failed(error.to_string()), Vec::new()),
        };
        let cores = granted(&self.request.grants, CPU).unwrap_or(0);
        let taken = self
            .parts
            .cores
            .take(usize::try_from(cores).unwrap_or(usize::MAX));
        let prepared = self.prepare(cores, taken.as_ref()).await;
        let cgroup = match prepared {
            Ok(cgroup) => cgroup,
            Err(error) => {
                waiting.dismiss().await;
                return (
                    failed(format!("it can't be put on record: {error}")),
                    Vec::new(),
                );
            }
        };
        if *self.stop.borrow() != Stop::Not {
            waiting.dismiss().await;
            remove(cgroup).await;
            return (self.why_stopped(), Vec::new());
        }
        let order = self.order(body, service, taken.as_ref(), cgroup.as_ref());
        let bytes_max = self.parts.config.output_bytes_max;
        let stop = self.stop.clone();
        let running = waiting.run(&order, body.stdin.as_bytes(), bytes_max, stop);
        let (ended, ()) = tokio::join!(running, self.tell_began());
        if matches!(ended.report, Report::Failed { .. }) {
            let (pids, mark) = (order.pids.clone(), std::mem::take(&mut self.mark));
            let _ = blocking(move || Ok(end_leftovers(&pids, &mark))).await;
        }
        let ran_out = cgroup.as_ref().is_some_and(Cgroup::ran_out_of_memory);
        remove(cgroup).await;
        drop(taken);
        let outcome = self.outcome(&ended, ran_out);
        (outcome, ended.output)
    }

    /// Puts on the disk that it begins, and makes its cgroup.
    async fn prepare(&self, cores: u64, taken: Option<&Taken>) -> std::io::Result<Option<Cgroup>> {
        let (parts, id, mark) = (self.parts.clone(), self.id, self.mark.clone());
        let memory = granted(&self.request.grants, MEMORY);
        let distinct = taken.map_or(Vec::new(), |taken| taken.cores().to_vec());
        blocking(move || {
            let cgroups = parts.cgroups.as_ref();
            let name = id.to_string();
            let cgroup = cgroups.map(|cgroups| cgroups.make(&name, (cores, &distinct), memory));
            let cgroup = cgroup.transpose()?;
            parts.markers.began(id, &mark)?;
            Ok(cgroup)
        })
        .await
    }

    fn order(
        &self,
        body: &ProcessBody,
        service: Option<&str>,
        taken: Option<&Taken>,
        cgroup: Option<&Cgroup>,
    ) -> Order {
        let config = &self.parts.config;
        let cgroups = self.parts.cgroups.as_ref();
        Order {
            command: body.command.clone(),
            env: self.environment(body, service),
            cwd: match &body.cwd {
                Some(cwd) => config.workdir.join(cwd),
                None => config.workdir.clone(),
            },
            stdin_bytes: body.stdin.len() as u32,
            run_ms_max: Some(self.request.run_max.micros().div_ceil(1_000)),
            grace_ms: config.grace.as_millis() as u64,
            cores: taken.map_or(Vec::new(), |taken| taken.cores().to_vec()),
            memory_bytes_max: granted(&self.request.grants, MEMORY),
            cgroup: cgroup.map(|cgroup| cgroup.folder().to_owned()),
            cgroup_home: cgroups.map(|cgroups| cgroups.home().to_owned()),
            pids: self.parts.markers.pids(self.id),
        }
    }

    fn environment(&self, body: &ProcessBody, service: Option<&str>) -> BTreeMap<String, String> {
        let cores = granted(&self.request.grants, CPU).unwrap_or(1);
        let mut env = inherited(&self.parts.config.inherit);
        env.extend(body.env.clone());
        let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
        set("TREADLE_ACTION_ID", self.id.action.to_string());
        set("TREADLE_ATTEMPT", self.id.attempt.to_string());
        set("TREADLE_PARALLELISM", cores.to_string());
        set(MARK, self.mark.clone());
        let devices = self.devices().list();
        if !devices.is_empty() {
            set("TREADLE_DEVICES", devices.clone());
            set("CUDA_VISIBLE_DEVICES", devices);
        }
        if let Some(url) = service {
            set("TREADLE_SERVICE_URL", url.to_owned());
        }
        env
    }

    fn outcome(&self, ended: &Ended, ran_out_of_memory: bool) -> Outcome {
        match &ended.report {
            Report::Exited { .. } | Report::Killed { .. } if ran_out_of_memory => {
                Outcome::OutOfMemory
            }
            Report::Exited { code } => Outcome::Exited { code: *code },
            Report::Killed { signal } => Outcome::Killed { signal: *signal },
            Report::TimedOut => Outcome::TimedOut,
            Report::OutOfMemory => Outcome::OutOfMemory,
            Report::Stopped => self.why_stopped(),
            Report::Failed { cause } => failed(cause.as_str()),
        }
    }

    async fn http(self, body: &HttpBody, service: Option<&str>) -> End {
        let (markers, id, mark) = (self.parts.markers.clone(), self.id, self.mark.clone());
        if let Err(error) = blocking(move || markers.began(id, &mark)).await {
            let outcome = failed(format!("it can't be put on record: {error}"));
            return End::Over(outcome, Vec::new());
        }
        let parts = self.parts.clone();
        let (tenant, limit) = (self.request.tenant.clone(), self.run_max());
        let sending = async {
            match service {
                Some(base) => {
                    let requests = &parts.requests;
                    requests.send_to(&parts.upstream, base, body, limit).await
                }
                None => parts.requests.send(&tenant, body, limit).await,
            }
        };
        let mut stop = self.stop.clone();
        let answered = async {
            tokio::select! {
                answer = sending => Some(answer),
                () = stopped(&mut stop) => None,
            }
        };
        let (answer, ()) = tokio::join!(answered, self.tell_began());
        match answer {
            None => End::Over(self.why_stopped(), Vec::new()),
            Some(Answer::Answered { status, output }) => {
                let code = i32::from(status);
                End::Over(Outcome::Exited { code }, output)
            }
            Some(Answer::QuotaRefused(retry_after)) => End::QuotaRefused(retry_after),
            Some(Answer::TimedOut) => End::Over(Outcome::TimedOut, Vec::new()),
            Some(Answer::Refused(told)) => {
                let code = EXIT_NOT_ALLOWED;
                End::Over(Outcome::Exited { code }, told.into_bytes())
            }
            Some(Answer::Failed(cause)) => End::Over(failed(cause), Vec::new()),
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
