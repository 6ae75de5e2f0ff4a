//! Circuit breakers: a judge that fails again and again is asked nothing for a while, and then by
//! one reward only. One that says when to ask again is asked then.

use crate::waits::Waiting;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Failures in a row after which a judge is left in peace.
const FAILURES_MAX: u32 = 8;
/// For how long.
const PAUSE: Duration = Duration::from_mins(1);
/// Longest pause that a judge may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(10);
/// How often a reward looks whether the one that asks again was answered.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Judges that failed lately, by job.
#[derive(Default)]
pub struct Breakers {
    jobs: Mutex<BTreeMap<Box<str>, Breaker>>,
}

/// A judge that failed at its last call.
struct Breaker {
    /// What the job says of it.
    judge: Box<str>,
    /// Failures in a row.
    failures: u32,
    /// The last one.
    cause: String,
    /// It is asked nothing until then.
    until: Instant,
    /// A reward asks it whether it works again.
    is_probed: bool,
}

impl Breaker {
    fn is_open(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

/// The right to ask a judge once.
pub(crate) struct Permit<'b> {
    breakers: &'b Breakers,
    job: Box<str>,
    judge: Box<str>,
    is_probe: bool,
}

impl Breakers {
    /// The right to ask a job's judge now; else for how long to wait.
    pub(crate) fn permit(
        &self,
        job: &str,
        judge: &str,
        now: Instant,
    ) -> Result<Permit<'_>, Duration> {
        let mut permit = Permit {
            breakers: self,
            job: job.into(),
            judge: judge.into(),
            is_probe: false,
        };
        let mut jobs = self.jobs();
        let known = jobs.get_mut(job).filter(|known| *known.judge == *judge);
        let Some(known) = known else {
            return Ok(permit);
        };
        if now < known.until {
            return Err((known.until - now).min(LOOK_EVERY));
        }
        if !known.is_open() {
            return Ok(permit);
        }
        if std::mem::replace(&mut known.is_probed, true) {
            return Err(LOOK_EVERY);
        }
        permit.is_probe = true;
        Ok(permit)
    }

    /// What is said of a job whose judge is left in peace.
    pub(crate) fn waiting(&self, job: &str, now: Instant) -> Option<Waiting> {
        let jobs = self.jobs();
        let known = jobs.get(job);
        let known = known.filter(|known| known.is_open() || now < known.until)?;
        let (failures, cause) = (known.failures, &known.cause);
        let left = known.until.saturating_duration_since(now).as_secs_f64();
        Some(Waiting {
            who: "trainer",
            waits_for: "judge",
            message: format!(
                "rewards wait: what computes them failed {failures} times in a row ({cause}); it \
                 is asked again in {} s",
                left.ceil()
            ),
        })
    }

    /// Forgets a job that was removed.
    pub(crate) fn forget(&self, job: &str) {
        self.jobs().remove(job);
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Breaker>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// The judge answered, whatever it said. If another one failed before, the job has this one now.
    pub(crate) fn answered(self) {
        self.breakers.jobs().remove(&self.job);
    }

    /// The judge failed, and may have said when to ask again.
    pub(crate) fn failed(self, cause: &str, retry_after: Option<Duration>, now: Instant) {
        let mut jobs = self.breakers.jobs();
        let fresh = || Breaker {
            judge: self.judge.clone(),
            failures: 0,
            cause: String::new(),
            until: now,
            is_probed: false,
        };
        let known = jobs.entry(self.job.clone()).or_insert_with(fresh);
        if known.judge != self.judge {
            // The job has another judge now, or this one is that.
            *known = fresh();
        }
        known.failures = known.failures.saturating_add(1);
        cause.clone_into(&mut known.cause);
        // Calls that were under way when it was closed do not put it off.
        if self.is_probe || known.failures == FAILURES_MAX {
            known.until = now + PAUSE;
        }
        if let Some(wait) = retry_after {
            known.until = known.until.max(now + wait.min(RETRY_AFTER_MAX));
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut jobs = self.breakers.jobs();
        let known = jobs.get_mut(&self.job).filter(|_| self.is_probe);
        if let Some(known) = known.filter(|known| known.judge == self.judge) {
            known.is_probed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(breakers: &Breakers, times: u32, now: Instant) {
        for _ in 0..times {
            let permit = breakers.permit("j", "one", now).ok();
            permit
                .expect("it may be asked")
                .failed("status 503", None, now);
        }
    }

    #[test]
    fn after_failures_in_a_row_one_reward_asks_again() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        failing(&breakers, FAILURES_MAX - 1, now);
        assert_eq!(breakers.waiting("j", now), None);
        let late = breakers.permit("j", "one", now).expect("it is under way");
        failing(&breakers, 1, now);
        assert_eq!(breakers.permit("j", "one", now).err(), Some(LOOK_EVERY));
        assert!(breakers.permit("j", "other", now).is_ok(), "another judge");
        assert!(breakers.permit("k", "one", now).is_ok(), "of another job");
        let later = now + PAUSE / 2;
        late.failed("status 500", None, later);
        let waiting = breakers.waiting("j", later).expect("it is shown").message;
        assert!(
            waiting.contains("9 times in a row (status 500)"),
            "{waiting}"
        );
        assert!(waiting.contains("again in 30 s"), "{waiting}");
        let due = now + PAUSE;
        let probe = breakers.permit("j", "one", due).expect("one may");
        assert!(breakers.permit("j", "one", due).is_err(), "one only");
        drop(probe);
        let probe = breakers.permit("j", "one", due).expect("that one gave up");
        probe.failed("status 503", None, due);
        assert!(breakers.permit("j", "one", due).is_err());
        let due = due + PAUSE;
        let probe = breakers.permit("j", "one", due).expect("it is time again");
        probe.answered();
        assert_eq!(breakers.waiting("j", due), None);
        let [first, second] = [(); 2].map(|()| breakers.permit("j", "one", due));
        assert!(first.is_ok() && second.is_ok(), "it works again");
    }

    #[test]
    fn a_judge_is_asked_again_when_it_says() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        let wait = Duration::from_secs(7);
        let permit = breakers.permit("j", "one", now).ok();
        let permit = permit.expect("it may be asked");
        permit.failed("status 429", Some(wait), now);
        assert!(breakers.permit("j", "one", now).is_err());
        let waiting = breakers.waiting("j", now).expect("it is shown").message;
        assert!(
            waiting.contains("1 times in a row (status 429)"),
            "{waiting}"
        );
        assert!(waiting.contains("again in 7 s"), "{waiting}");
        let due = now + wait;
        let all = [(); 2].map(|()| breakers.permit("j", "one", due).is_ok());
        assert_eq!(all, [true, true], "and by all");
        assert_eq!(breakers.waiting("j", due), None);
    }

    #[test]
    fn an_answer_in_between_counts_from_the_start() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        failing(&breakers, FAILURES_MAX - 1, now);
        breakers.permit("j", "one", now).expect("it may").answered();
        failing(&breakers, FAILURES_MAX - 1, now);
        assert!(breakers.permit("j", "one", now).is_ok());
        failing(&breakers, 1, now);
        assert!(breakers.permit("j", "one", now).is_err());
        let other = breakers.permit("j", "other", now);
        other.expect("another judge").answered();
        assert_eq!(breakers.waiting("j", now), None, "it is the job's now");
        failing(&breakers, FAILURES_MAX, now);
        breakers.forget("j");
        assert!(breakers.permit("j", "one", now).is_ok());
    }
}
