//! Runs one request: writes its files, compiles, runs the program, and returns files.

use super::languages::{FILE, Language};
use super::single::Single;
use super::{FusionAnswer, FusionRequest, FusionResult, KIND};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use treadle_model::Tenant;
use treadle_runs::actions::Failure;
use treadle_runs::sandboxes::{Host, Task};
use treadle_sandbox::{End, Exec, FileKind, Input, Sandbox, SandboxError, SandboxSpec};

/// Largest part of each output that is returned, in bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Largest total size of returned files.
const FETCHED_BYTES_MAX: u64 = 16 << 20;
/// Largest number of returned files.
const FETCHED_MAX: usize = 256;
/// Smallest memory limit of a sandbox: a compiler needs more than many programs may use.
const MEMORY_MIN: u64 = 512 << 20;
/// Time to live of a sandbox beyond its commands' time limits, because they may be queued. It is
/// normally removed with its request; this removes it after a crash.
const SPARE: Duration = Duration::from_hours(3);
/// Longest time limit of a command.
const RUN_MAX: Duration = Duration::from_hours(24);
/// Folders with programs.
const PLACES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The request's tenant and job, and its sandbox's image.
pub(super) struct RunContext {
    pub(super) tenant: Tenant,
    pub(super) image: String,
    pub(super) job: String,
}

/// Why the code could not be run.
struct NotRun(String);

impl From<Failure> for NotRun {
    fn from(failure: Failure) -> Self {
        Self(match failure {
            Failure::Refused(error) => error.message,
            Failure::Stopped => "treadle is shutting down".to_owned(),
            Failure::Store(error) => {
                tracing::error!(%error, "the store failed");
                "the store failed; see the log".to_owned()
            }
        })
    }
}

impl From<SandboxError> for NotRun {
    fn from(error: SandboxError) -> Self {
        Self(error.to_string())
    }
}

/// Code in its sandbox.
struct Run<'a> {
    host: &'a Arc<Host>,
    sandbox: &'a Arc<Sandbox>,
    request: &'a FusionRequest,
    /// The folder that it runs in.
    folder: String,
    /// The file that it is in.
    file: String,
}

pub(super) async fn run(
    host: &Arc<Host>,
    context: &RunContext,
    language: &Language,
    mut request: FusionRequest,
) -> FusionAnswer {
    let limit = |seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(RUN_MAX)
            .min(RUN_MAX)
    };
    let ttl = limit(request.compile_timeout) + limit(request.run_timeout) + SPARE;
    let memory = u64::try_from(request.memory_limit_mb).unwrap_or(0) << 20;
    let spec = SandboxSpec {
        job: context.job.clone(),
        image: context.image.clone(),
        ttl: Some(ttl),
        memory_bytes: (memory > 0).then(|| memory.max(MEMORY_MIN).min(host.memory_bytes_max)),
        ..SandboxSpec::default()
    };
    let single = match Single::new(host, &context.tenant, spec).await {
        Ok(single) => single,
        Err(failure) => return FusionAnswer::failed(NotRun::from(failure).0),
    };
    let stdin = request.stdin.take().unwrap_or_default().into_bytes();
    let answer = async {
        let run = Run::prepare(host, &single.sandbox, language, &request).await?;
        run.all(language, stdin).await
    };
    answer
        .await
        .unwrap_or_else(|NotRun(message)| FusionAnswer::failed(message))
}

fn random() -> Result<String, NotRun> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| NotRun(error.to_string()))?;
    Ok(format!("tmp{:016x}", u64::from_ne_bytes(bytes)))
}

impl<'a> Run<'a> {
    /// Writes the code and its files.
    async fn prepare(
        host: &'a Arc<Host>,
        sandbox: &'a Arc<Sandbox>,
        language: &Language,
        request: &'a FusionRequest,
    ) -> Result<Self, NotRun> {
        let file = match language.file {
            ending if ending.starts_with('.') => random()? + ending,
            whole => whole.to_owned(),
        };
        let run = Self {
            host,
            sandbox,
            request,
            folder: format!("/tmp/{}", random()?),
            file,
        };
        sandbox.make_folder(&run.folder).await?;
        for (path, content) in &request.files {
            let Some(content) = content else {
                continue;
            };
            let bytes = STANDARD
                .decode(content)
                .map_err(|error| NotRun(format!("{path} is not Base64: {error}")))?;
            sandbox.write(&run.path(path), bytes).await?;
        }
        let code = request.code.clone().into_bytes();
        sandbox.write(&run.path(&run.file), code).await?;
        Ok(run)
    }

    fn path(&self, path: &str) -> String {
        if path.starts_with('/') {
            return path.to_owned();
        }
        format!("{}/{path}", self.folder)
    }

    /// Compiles the code if needed, runs it, and fetches files.
    async fn all(&self, language: &Language, stdin: Vec<u8>) -> Result<FusionAnswer, NotRun> {
        let mut answer = FusionAnswer::default();
        if let Some(compiler) = language.compiler(&self.request.code) {
            let words = self.words(&compiler).await?;
            let result = self
                .step(words, Vec::new(), self.request.compile_timeout)
                .await?;
            let is_made = result.return_code == Some(0);
            answer.compile_result = Some(result);
            if !is_made {
                self.fetch(&mut answer).await;
                answer.status = "Failed";
                return Ok(answer);
            }
        }
        let mut words = self.words(language.run).await?;
        let limit = self.request.memory_limit_mb;
        if limit > 0 && language.is_bounded {
            let bounded = "ulimit -v \"$1\" && shift && exec \"$@\"";
            let kilobytes = limit.saturating_mul(1_024).to_string();
            let before = ["/bin/sh", "-c", bounded, "sh", &kilobytes];
            words.splice(0..0, before.map(str::to_owned));
        }
        let result = self.step(words, stdin, self.request.run_timeout).await?;
        let is_good = result.return_code == Some(0);
        answer.status = if is_good { "Success" } else { "Failed" };
        answer.run_result = Some(result);
        self.fetch(&mut answer).await;
        Ok(answer)
    }

    /// The words of a command, with the alternative that exists.
    async fn words(&self, words: &[&str]) -> Result<Vec<String>, NotRun> {
        let mut found = Vec::with_capacity(words.len());
        for word in words {
            found.push(match *word {
                FILE => self.file.clone(),
                word => word.to_owned(),
            });
        }
        let wanted = words.first().copied().unwrap_or_default();
        if wanted.starts_with('.') {
            return Ok(found);
        }
        for name in wanted.split('|') {
            for place in PLACES {
                let path = format!("{place}/{name}");
                let entry = self.sandbox.stat(&path).await;
                if entry.is_ok_and(|entry| entry.kind != FileKind::Folder) {
                    found[0] = path;
                    return Ok(found);
                }
            }
        }
        let image = self.sandbox.status().spec.image;
        let name = wanted.replace('|', "` or `");
        Err(NotRun(format!(
            "the image `{image}` has no `{name}`, which `{}` needs; import one that has",
            self.request.language
        )))
    }

    /// Runs a command as an action.
    async fn step(
        &self,
        words: Vec<String>,
        stdin: Vec<u8>,
        seconds: f64,
    ) -> Result<FusionResult, NotRun> {
        let max = Duration::try_from_secs_f64(seconds).map_err(|_| {
            NotRun(format!(
                "{seconds} is not a time limit; send a number of seconds"
            ))
        })?;
        let program = words.first().map_or("", String::as_str);
        let task = Task {
            kind: KIND,
            what: format!("{} {program}", self.request.language),
            run_max: Some(max.min(RUN_MAX)),
        };
        let exec = Exec {
            cwd: self.folder.clone(),
            input: Input::Bytes(stdin),
            ..Exec::new(words)
        };
        let mut work = self.host.run(self.sandbox, task, exec).await?;
        let began = Instant::now();
        let (output, told, end) = work.follow(OUTPUT_BYTES_MAX).await;
        let mut result = FusionResult {
            status: "Finished",
            execution_time: Some(began.elapsed().as_secs_f64()),
            return_code: None,
            stdout: Some(String::from_utf8_lossy(&output).into_owned()),
            stderr: Some(String::from_utf8_lossy(&told).into_owned()),
        };
        let (code, why) = match end {
            _ if work.is_late() => {
                result.status = "TimeLimitExceeded";
                return Ok(result);
            }
            // The code may have been correct.
            _ if work.is_withdrawn() => {
                let message = treadle_runs::sandboxes::WITHDRAWN;
                return Err(NotRun(message.to_owned()));
            }
            End::Exited(code) => (code, ""),
            End::Killed(signal) => (-signal, ""),
            End::OutOfMemory => (-9, "\n[treadle: out of memory]\n"),
            End::OutOfDisk => (-9, "\n[treadle: out of disk space]\n"),
            End::Gone => {
                return Err(NotRun("the sandbox ended while the code ran".to_owned()));
            }
        };
        result.return_code = Some(code);
        if let Some(told) = &mut result.stderr {
            told.push_str(why);
        }
        Ok(result)
    }

    /// Adds the requested files that exist.
    async fn fetch(&self, answer: &mut FusionAnswer) {
        let mut room = FETCHED_BYTES_MAX;
        for path in self.request.fetch_files.iter().take(FETCHED_MAX) {
            match self.sandbox.read(&self.path(path), room).await {
                Ok(bytes) => {
                    room -= bytes.len() as u64;
                    answer.files.insert(path.clone(), STANDARD.encode(bytes));
                }
                Err(SandboxError::File { error, .. })
                    if error.kind() == std::io::ErrorKind::FileTooLarge =>
                {
                    let message =
                        format!("{path} and the files before it exceed the response limit");
                    answer.message = message;
                }
                Err(_) => {}
            }
        }
    }
}
