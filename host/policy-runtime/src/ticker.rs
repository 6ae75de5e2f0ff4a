//! The thread that advances the engine's epoch, so that calls past their deadline are stopped. It
//! parks when nothing has run for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// Length of a tick.
pub(crate) const TICK_MS: u64 = 1;
/// Ticks without a call after which the thread parks. Waking it costs a caller microseconds, so it
/// must not happen between the calls of a busy period.
const IDLE_TICKS_MAX: u32 = 50;

#[derive(Default)]
struct Shared {
    started: AtomicU64,
    finished: AtomicU64,
    parked: AtomicBool,
    stop: AtomicBool,
}

impl Shared {
    fn is_running(&self) -> bool {
        self.started.load(Ordering::SeqCst) != self.finished.load(Ordering::SeqCst)
    }
}

/// Owns the thread; dropping it ends the thread.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

/// Keeps the thread ticking while it lives.
pub(crate) struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::SeqCst);
    }
}

impl Ticker {
    pub(crate) fn start(engine: Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let handle = thread::Builder::new()
            .name("policy-ticker".to_owned())
            .spawn(move || tick(&engine, &of_thread))?;
        Ok(Self {
            shared,
            thread: handle.thread().clone(),
            handle: Some(handle),
        })
    }

    /// Starts ticking; call it before guest code runs.
    pub(crate) fn run(&self) -> Running<'_> {
        self.shared.started.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Running(&self.shared)
    }

    /// Whether the thread is parked.
    #[cfg(test)]
    pub(crate) fn is_parked(&self) -> bool {
        self.shared.parked.load(Ordering::SeqCst)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.thread.unpark();
        if let Some(handle) = self.handle.take() {
            // It cannot have panicked: it only sleeps and counts.
            let _ = handle.join();
        }
    }
}

fn tick(engine: &Engine, shared: &Shared) {
    let (mut seen, mut idle_ticks) = (0, 0);
    while !shared.stop.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(TICK_MS));
        engine.increment_epoch();
        let started = shared.started.load(Ordering::SeqCst);
        if started != seen || shared.is_running() {
            (seen, idle_ticks) = (started, 0);
            continue;
        }
        idle_ticks += 1;
        if idle_ticks < IDLE_TICKS_MAX {
            continue;
        }
        // A caller counts itself and then reads `parked`; here it is the other way around, so one
        // of the two sees the other.
        shared.parked.store(true, Ordering::SeqCst);
        while shared.started.load(Ordering::SeqCst) == seen && !shared.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        shared.parked.store(false, Ordering::SeqCst);
        idle_ticks = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn wait_until(what: &str, done: impl Fn() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(5), "never {what}");
            thread::yield_now();
        }
    }

    #[test]
    fn it_parks_when_idle_and_wakes_for_a_call() {
        let ticker = Ticker::start(Engine::default()).unwrap();
        wait_until("parked", || ticker.is_parked());
        let running = ticker.run();
        wait_until("awake", || !ticker.is_parked());
        drop(running);
        wait_until("parked again", || ticker.is_parked());
    }
}
