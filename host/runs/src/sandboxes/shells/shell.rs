//! A bash on its own terminal that outlives the requests that type into it.

use super::transcript::Transcript;
use super::typed::{self, LINE_BYTES_MAX, Nonce};
use crate::sandboxes::output_room::Reserved;
use regex::bytes::Regex;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use treadle_sandbox::{Event, Exec, Input, Running, Sandbox, SandboxError, Share, Stopper};

/// How long the terminal may refuse input.
const TYPING_MAX: Duration = Duration::from_secs(10);
/// How long a shell may take from an interrupt to its prompt, per attempt.
const PROMPT_MAX: Duration = Duration::from_millis(500);
/// The exit code of an interrupted command.
const INTERRUPTED: i32 = 130;
/// How long a stopped job may take to be killed.
const KILL_MAX: Duration = Duration::from_secs(2);

/// The state of a shell.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Doing {
    /// It waits for a command.
    Nothing,
    /// It runs a command, which has started or is still being typed.
    Runs(Nonce, bool),
    /// An interactive program has its terminal.
    Talks(Option<Nonce>),
}

#[derive(Debug)]
struct Screen {
    transcript: Transcript,
    doing: Doing,
    /// How often it was interrupted.
    interrupts: u64,
    /// Whether a client waits for a command's end.
    is_followed: bool,
    has_ended: bool,
}

/// The outcome of typed input.
#[derive(Debug)]
pub enum Became {
    /// It ended: its output and exit code.
    Ended(Vec<u8>, i32),
    /// One of the expected patterns appeared, after this output.
    Matched(Vec<u8>, usize),
    /// It still runs. Its output stays for the next request.
    Late,
    /// The shell itself is gone, with its last output.
    Gone(Vec<u8>),
}

/// A shell.
#[derive(Debug)]
pub struct Shell {
    keyboard: Arc<tokio::sync::Mutex<pipe::Sender>>,
    stopper: Stopper,
    prompt: String,
    turn: Arc<tokio::sync::Mutex<()>>,
    screen: Arc<(Mutex<Screen>, Notify)>,
    /// Memory for its output.
    _reserved: Reserved,
}

impl Drop for Shell {
    fn drop(&mut self) {
        let stopper = self.stopper.clone();
        tokio::spawn(async move { stopper.kill().await });
    }
}

impl Shell {
    /// Starts a shell that runs some commands first.
    pub(super) async fn start(
        sandbox: &Arc<Sandbox>,
        first: &str,
        reserved: Reserved,
    ) -> Result<Self, SandboxError> {
        let random = |error| SandboxError::System("a number", error);
        let nonces = (Nonce::new().map_err(random)?, Nonce::new().map_err(random)?);
        let prompt = Nonce::new().map_err(random)?.prompt();
        let mut running = sandbox
            .run(Exec {
                command: typed::start(&nonces.0),
                env: BTreeMap::from([("TERM".to_owned(), "dumb".to_owned())]),
                input: Input::Piped,
                merged: true,
                share: Share::Background,
                ..Exec::default()
            })
            .await?;
        let keyboard = running.stdin.take().ok_or(SandboxError::Gone)?;
        let screen = Screen {
            transcript: Transcript::new(&prompt, reserved.bytes()),
            doing: Doing::Runs(nonces.1.clone(), false),
            interrupts: 0,
            is_followed: false,
            has_ended: false,
        };
        let shell = Self {
            keyboard: Arc::new(keyboard.into()),
            stopper: running.stopper(),
            prompt,
            turn: Arc::default(),
            screen: Arc::new((Mutex::new(screen), Notify::new())),
            _reserved: reserved,
        };
        tokio::spawn(read(running, shell.screen.clone()));
        // Nothing is typed while the terminal still echoes.
        let has_terminal = |screen: &mut Screen| {
            (screen.transcript.ended(&nonces.0).is_some() || screen.has_ended).then_some(())
        };
        let until = Instant::now() + TYPING_MAX;
        if shell.until(Some(until), has_terminal).await.is_some() && !shell.lock().has_ended {
            let keys = typed::command(&nonces.1, &shell.prompt, first, false);
            shell.press(keys).await;
        }
        Ok(shell)
    }

    fn lock(&self) -> MutexGuard<'_, Screen> {
        self.screen.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its prompt.
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Options that make another bash parse commands as this one does. Only the holder of the turn
    /// may call this.
    pub async fn reads_so(&self, turn: &OwnedMutexGuard<()>) -> Vec<&'static str> {
        let until = Instant::now() + TYPING_MAX;
        let told = self.run(turn, typed::TELL_OPTIONS, &[], Some(until)).await;
        match told {
            Ok(Became::Ended(options, _)) => typed::reads_so(&String::from_utf8_lossy(&options)),
            _ => Vec::new(),
        }
    }

    /// Waits until it is ready for its first command.
    pub(super) async fn started(&self, max: Duration) -> Became {
        let _turn = self.turn.lock().await;
        let ended = |screen: &mut Screen| screen.end();
        let until = Instant::now() + max;
        self.until(Some(until), ended).await.unwrap_or(Became::Late)
    }

    /// Ends it and all its processes.
    pub(super) async fn close(&self) {
        let _ = self.stopper.kill().await;
    }

    /// Waits for the exclusive right to type.
    pub async fn turn(&self, until: Option<Instant>) -> Option<OwnedMutexGuard<()>> {
        let turn = self.turn.clone().lock_owned();
        match until {
            Some(until) => timeout_at(until, turn).await.ok(),
            None => Some(turn.await),
        }
    }

    /// Waits until nothing runs in it. Returns false at the deadline.
    pub async fn rests(&self, until: Option<Instant>) -> bool {
        let idle = |screen: &mut Screen| screen.is_idle().then_some(());
        self.until(until, idle).await.is_some()
    }

    /// Types to the end even if the caller stops waiting: a partial line would corrupt the next
    /// one.
    async fn press(&self, keys: Vec<u8>) -> bool {
        let keyboard = self.keyboard.clone();
        let typing = tokio::spawn(async move {
            let mut keyboard = keyboard.lock().await;
            timeout(TYPING_MAX, keyboard.write_all(&keys)).await
        });
        matches!(typing.await, Ok(Ok(Ok(()))))
    }

    /// Waits until `look` returns a value, at most until the deadline.
    async fn until<T>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut(&mut Screen) -> Option<T>,
    ) -> Option<T> {
        let far = Instant::now() + Duration::from_hours(24);
        loop {
            let changed = self.screen.1.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return Some(found);
            }
            timeout_at(until.unwrap_or(far), changed).await.ok()?;
        }
    }

    /// Runs a command, once earlier ones have ended. Only the holder of the turn may call this.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub async fn run(
        &self,
        _turn: &OwnedMutexGuard<()>,
        text: &str,
        patterns: &[Regex],
        until: Option<Instant>,
    ) -> io::Result<Became> {
        let idle = |screen: &mut Screen| screen.is_idle().then(|| screen.transcript.take());
        let Some(late) = self.until(until, idle).await else {
            return Ok(Became::Late);
        };
        let nonce = Nonce::new()?;
        let follow = Follow::new(&self.screen);
        let interrupts = {
            let mut screen = self.lock();
            if screen.has_ended {
                return Ok(Became::Gone(late));
            }
            screen.doing = Doing::Runs(nonce.clone(), false);
            screen.interrupts
        };
        // A pattern may match a program's question that the client answers.
        let keys = typed::command(&nonce, &self.prompt, text, !patterns.is_empty());
        if !self.press(keys).await {
            return Ok(Became::Gone(late));
        }
        let look = |screen: &mut Screen| {
            if screen.interrupts > interrupts {
                return Some(Became::Ended(screen.transcript.take(), INTERRUPTED));
            }
            screen.end().or_else(|| screen.asks(patterns))
        };
        let became = self.until(until, look).await.unwrap_or(Became::Late);
        drop(follow);
        Ok(match became {
            Became::Ended(output, code) => Became::Ended([late, output].concat(), code),
            Became::Matched(output, which) => Became::Matched([late, output].concat(), which),
            Became::Gone(output) => Became::Gone([late, output].concat()),
            Became::Late => Became::Late,
        })
    }

    /// Types a line unchanged, and waits for one of some patterns, or for the prompt as a further
    /// pattern.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub async fn talk(
        &self,
        _turn: &OwnedMutexGuard<()>,
        line: &str,
        patterns: &[Regex],
        until: Option<Instant>,
    ) -> io::Result<Became> {
        let nonce = Nonce::new()?;
        let (before, mut keys, mut has_begun) = {
            let mut screen = self.lock();
            let is_idle = screen.is_idle();
            if screen.has_ended {
                return Ok(Became::Gone(screen.transcript.take()));
            }
            // A command that asked a question may also end by itself.
            screen.doing = Doing::Talks(match &screen.doing {
                Doing::Talks(nonce) => nonce.clone(),
                Doing::Runs(nonce, true) => Some(nonce.clone()),
                _ => None,
            });
            // The previous command's prompt may still appear and does not belong to this one.
            let keys = if is_idle {
                typed::begin(&nonce)
            } else {
                String::new()
            };
            (screen.transcript.take(), keys, !is_idle)
        };
        keys.push_str(line);
        keys.push('\n');
        if !self.press(keys.into_bytes()).await {
            return Ok(Became::Gone(before));
        }
        let look = |screen: &mut Screen| {
            has_begun = has_begun || screen.transcript.skip_to(&nonce);
            let matched = has_begun.then(|| screen.transcript.matched(patterns));
            let Some((output, which)) = matched.flatten() else {
                return screen
                    .has_ended
                    .then(|| Became::Gone(screen.transcript.take()));
            };
            if patterns[which].as_str() == self.prompt {
                screen.doing = Doing::Nothing;
            }
            Some(Became::Matched([before.clone(), output].concat(), which))
        };
        Ok(self.until(until, look).await.unwrap_or(Became::Late))
    }

    /// Ends the running command: with Ctrl-C, or else by stopping and killing it. Returns the
    /// output meanwhile, unless another request waits for it.
    ///
    /// # Errors
    /// The command still runs; or the system has no random numbers.
    pub async fn interrupt(&self, tries: u32, each: Duration) -> io::Result<Became> {
        let each = each.clamp(PROMPT_MAX, TYPING_MAX);
        self.lock().transcript.forget_prompts();
        for _ in 0..tries.clamp(1, 10) {
            self.press(vec![3]).await;
            if let Some(became) = self.has_stopped(each).await? {
                return Ok(became);
            }
        }
        self.press(vec![26]).await;
        sleep(PROMPT_MAX).await;
        self.press(b" builtin kill -9 %%\n".to_vec()).await;
        let killed = self.has_stopped(KILL_MAX).await?;
        Ok(killed.unwrap_or(Became::Late))
    }

    /// Waits up to `max` until a shell accepts commands again.
    async fn has_stopped(&self, max: Duration) -> io::Result<Option<Became>> {
        // A prompt shows it early, but is absent if a command redirected the output.
        let until = Instant::now() + max / 2;
        let shows = |screen: &mut Screen| screen.transcript.has_prompt().then_some(());
        self.until(Some(until), shows).await;
        let nonce = Nonce::new()?;
        self.press(typed::probe(&nonce, &self.prompt).into_bytes())
            .await;
        let look = |screen: &mut Screen| {
            if screen.has_ended {
                return Some(Became::Gone(screen.transcript.take()));
            }
            let (output, code) = screen.transcript.ended(&nonce)?;
            screen.doing = Doing::Nothing;
            screen.interrupts += 1;
            if screen.is_followed {
                screen.transcript.add(&output);
                return Some(Became::Ended(Vec::new(), code));
            }
            Some(Became::Ended(output, code))
        };
        let stopped = self.until(Some(Instant::now() + max), look).await;
        self.screen.1.notify_waiters();
        Ok(stopped)
    }
}

impl Screen {
    /// Whether it waits for a command. Output of a command that no client waited for is kept.
    fn is_idle(&mut self) -> bool {
        match self.end() {
            Some(Became::Ended(output, _)) => {
                let rest = self.transcript.take();
                self.transcript.add(&output);
                self.transcript.add(&rest);
            }
            Some(Became::Gone(output)) => self.transcript.add(&output),
            _ => {}
        }
        self.has_ended || self.doing == Doing::Nothing
    }

    /// The end of the running command, if it has ended.
    fn end(&mut self) -> Option<Became> {
        let nonce = match &mut self.doing {
            Doing::Runs(nonce, has_begun) => {
                *has_begun = *has_begun || self.transcript.skip_to(nonce);
                nonce
            }
            Doing::Talks(Some(nonce)) => nonce,
            Doing::Talks(None) | Doing::Nothing => return None,
        };
        if let Some((output, code)) = self.transcript.ended(nonce) {
            self.doing = Doing::Nothing;
            return Some(Became::Ended(output, code));
        }
        self.has_ended.then(|| Became::Gone(self.transcript.take()))
    }

    /// Whether the output of the running command matches an expected pattern.
    fn asks(&mut self, patterns: &[Regex]) -> Option<Became> {
        let Doing::Runs(nonce, true) = &self.doing else {
            return None;
        };
        let nonce = nonce.clone();
        let (output, which) = self.transcript.matched(patterns)?;
        self.doing = Doing::Talks(Some(nonce));
        Some(Became::Matched(output, which))
    }
}

/// Marks that a client waits for a command's end.
struct Follow(Arc<(Mutex<Screen>, Notify)>);

impl Follow {
    fn new(screen: &Arc<(Mutex<Screen>, Notify)>) -> Self {
        let follow = Self(screen.clone());
        follow.set(true);
        follow
    }

    fn set(&self, is_followed: bool) {
        let mut screen = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        screen.is_followed = is_followed;
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Reads a shell's output until it is gone.
async fn read(mut running: Running, screen: Arc<(Mutex<Screen>, Notify)>) {
    loop {
        let event = running.next().await;
        {
            let mut screen = screen.0.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Output(bytes) | Event::Errors(bytes) => screen.transcript.add(&bytes),
                Event::Ended(_) => screen.has_ended = true,
            }
        }
        screen.1.notify_waiters();
        if screen
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .has_ended
        {
            return;
        }
    }
}

/// Whether a line may be typed unchanged.
pub fn is_typable(line: &str) -> bool {
    line.split('\n').all(|line| line.len() < LINE_BYTES_MAX)
}
