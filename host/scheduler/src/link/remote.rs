//! The gateway's end: events of its steps, kept until they are on record.

use super::frames::{FromGateway, ToGateway};
use crate::{DriverStopped, Instruction, LiveLimit, Recorder, Recording};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use treadle_core::Event;
use treadle_core::programs::OpenStep;
use treadle_core::programs::{ProgramEvent, StepArrival};
use treadle_model::{GatewayId, StepId, WorkerId};

/// Maximum number of events that wait to be on record; beyond it no new step is accepted.
const UNRECORDED_MAX: usize = 200_000;
/// Number of waiting events beyond which the progress of streams is not kept.
const UNRECORDED_TIGHT: usize = UNRECORDED_MAX / 4;

/// A scheduler in another process, which may be absent for a while.
pub struct RemoteScheduler {
    gateway: GatewayId,
    known: Mutex<Known>,
    /// Notified when something is to be sent.
    pub wake: Notify,
}

struct Unrecorded {
    number: u64,
    event: Event,
    live: Option<LiveLimit>,
}

/// A handler that waits for an event to be on record.
struct Waiting {
    number: u64,
    step: Option<StepId>,
    recorded: Recorder,
}

struct Open {
    instructions: UnboundedSender<Instruction>,
    at: Option<WorkerId>,
}

#[derive(Default)]
struct Known {
    last_number: u64,
    /// Last event sent on the present connection, or known to the scheduler before.
    sent: u64,
    unrecorded: VecDeque<Unrecorded>,
    waiting: VecDeque<Waiting>,
    steps: BTreeMap<StepId, Open>,
}

impl RemoteScheduler {
    /// Creates the gateway's end, without events.
    pub fn new(gateway: GatewayId) -> Self {
        Self {
            gateway,
            known: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// The gateway's id.
    pub fn gateway(&self) -> GatewayId {
        self.gateway
    }

    /// Submits a step and returns the channel for its instructions.
    pub fn submit(
        &self,
        arrival: StepArrival,
        live: Option<LiveLimit>,
    ) -> Result<UnboundedReceiver<Instruction>, DriverStopped> {
        let (instructions, received) = unbounded_channel();
        let mut known = self.known();
        if known.unrecorded.len() >= UNRECORDED_MAX {
            return Err(DriverStopped);
        }
        let open = Open {
            instructions,
            at: None,
        };
        known.steps.insert(arrival.step, open);
        known.push(Event::Program(ProgramEvent::StepArrived(arrival)), live);
        drop(known);
        self.wake.notify_one();
        Ok(received)
    }

    /// Queues an event.
    pub fn event(&self, event: Event) {
        let mut known = self.known();
        let is_progress = matches!(event, Event::Program(ProgramEvent::StepProgressed { .. }));
        if is_progress && known.unrecorded.len() >= UNRECORDED_TIGHT {
            return;
        }
        known.observe(&event);
        known.push(event, None);
        drop(known);
        self.wake.notify_one();
    }

    /// Queues an event, and returns a future that completes once it is on record.
    pub fn event_to_record(&self, event: Event) -> Recording {
        let (recorded, done) = Recording::new();
        let step = match &event {
            Event::Program(ProgramEvent::StepFinished { step, .. }) => Some(*step),
            _ => None,
        };
        let mut known = self.known();
        known.observe(&event);
        known.push(event, None);
        let number = known.last_number;
        known.waiting.push_back(Waiting {
            number,
            step,
            recorded,
        });
        drop(known);
        self.wake.notify_one();
        done
    }

    /// The messages to send first to a scheduler that has handled events up to `handled`.
    pub fn resume(&self, handled: u64) -> Vec<FromGateway> {
        let mut known = self.known();
        known.sent = handled;
        let mut frames = known.unsent(usize::MAX);
        let steps = known.steps.iter().map(|(step, open)| OpenStep {
            step: *step,
            at: open.at,
        });
        frames.push(FromGateway::Open {
            steps: steps.collect(),
        });
        frames
    }

    /// Up to `max` events that were not sent yet.
    pub fn unsent(&self, max: usize) -> Vec<FromGateway> {
        self.known().unsent(max)
    }

    /// Handles a message of the scheduler. Withdrawals are left to the caller.
    pub fn hear(&self, said: ToGateway) {
        let mut known = self.known();
        match said {
            ToGateway::Recorded { number } => known.recorded(number),
            ToGateway::Step { step, word } => known.instruct(step, word.into()),
            ToGateway::Welcome { .. } | ToGateway::Withdraw(_) => {}
        }
    }

    /// Locks the state. A poisoned lock is still consistent: every change is one push or one
    /// removal.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn push(&mut self, event: Event, live: Option<LiveLimit>) {
        self.last_number += 1;
        let number = self.last_number;
        self.unrecorded.push_back(Unrecorded {
            number,
            event,
            live,
        });
    }

    /// Updates the list of open steps.
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Program(ProgramEvent::StepFailed { step, failure }) if failure.retryable => {
                self.leaves_engine(*step);
            }
            Event::Program(ProgramEvent::StepInterrupted { step }) => self.leaves_engine(*step),
            Event::Program(
                ProgramEvent::StepFinished { step, .. }
                | ProgramEvent::StepCancelled { step }
                | ProgramEvent::StepFailed { step, .. },
            ) => {
                self.steps.remove(step);
            }
            _ => {}
        }
    }

    /// Records that a step is at no engine, as the next dispatch may name the same worker again.
    fn leaves_engine(&mut self, step: StepId) {
        if let Some(open) = self.steps.get_mut(&step) {
            open.at = None;
        }
    }

    fn unsent(&mut self, max: usize) -> Vec<FromGateway> {
        let first = self.unrecorded.front().map_or(0, |first| first.number);
        let skip = usize::try_from((self.sent + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let unsent = self.unrecorded.iter().skip(skip).take(max);
        let frames: Vec<_> = unsent
            .map(|each| FromGateway::Event {
                number: each.number,
                event: each.event.clone(),
                live: each.live.clone().map(Into::into),
            })
            .collect();
        if let Some(FromGateway::Event { number, .. }) = frames.last() {
            self.sent = *number;
        }
        frames
    }

    fn recorded(&mut self, number: u64) {
        while self
            .unrecorded
            .front()
            .is_some_and(|each| each.number <= number)
        {
            self.unrecorded.pop_front();
        }
        while self
            .waiting
            .front()
            .is_some_and(|each| each.number <= number)
        {
            if let Some(each) = self.waiting.pop_front() {
                each.recorded.settle(Ok(()));
            }
        }
    }

    fn instruct(&mut self, step: StepId, instruction: Instruction) {
        if matches!(instruction, Instruction::Forget) {
            // Its answer will not be on record as one: the handler that waits for that must stop
            // waiting.
            self.waiting.retain(|each| each.step != Some(step));
        }
        let Some(open) = self.steps.get_mut(&step) else {
            return;
        };
        let is_over = match &instruction {
            Instruction::Dispatch(dispatch) => {
                if open.at.replace(dispatch.worker) == Some(dispatch.worker) {
                    // The message was sent twice, because the first one was thought to be lost.
                    return;
                }
                false
            }
            Instruction::Preempt | Instruction::Abort(_) | Instruction::Cut => false,
            Instruction::Forget => {
                // A running attempt gets this, later waiters get the rest.
                let cause = "the scheduler no longer has this step".into();
                let _ = open.instructions.send(Instruction::Abort(cause));
                true
            }
            Instruction::Refuse(_) | Instruction::RefuseLive { .. } => true,
        };
        let _ = open.instructions.send(instruction);
        if is_over {
            self.steps.remove(&step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::WireInstruction;
    use super::*;
    use crate::NotRecorded;
    use futures_util::FutureExt;

    fn arrival(counter: u64) -> StepArrival {
        StepArrival {
            step: StepId::of(GatewayId(2), counter),
            program: "p".into(),
            job: "j".into(),
            prompt_tokens: 1,
            exact: true,
            prompt_bytes: 1,
            text: None,
            output_tokens_max: None,
            prefix: vec![],
            one_shot: false,
            inferred: false,
            parent: None,
            group: None,
            model: None,
        }
    }

    fn numbers(frames: &[FromGateway]) -> Vec<u64> {
        let number = |frame: &FromGateway| match frame {
            FromGateway::Event { number, .. } => Some(*number),
            _ => None,
        };
        frames.iter().filter_map(number).collect()
    }

    #[test]
    fn what_is_not_on_record_is_sent_again_and_only_that() {
        let remote = RemoteScheduler::new(GatewayId(2));
        for counter in 1..=3 {
            let _ = remote
                .submit(arrival(counter), None)
                .expect("there is room");
        }
        assert_eq!(numbers(&remote.unsent(2)), [1, 2]);
        assert_eq!(numbers(&remote.unsent(9)), [3]);
        assert!(remote.unsent(9).is_empty());
        remote.hear(ToGateway::Recorded { number: 1 });
        // The next scheduler has one event more than is on record here.
        assert_eq!(numbers(&remote.resume(2)), [3]);
        // A scheduler that has fewer than were confirmed gets everything that is left.
        assert_eq!(numbers(&remote.resume(0)), [2, 3]);
        remote.hear(ToGateway::Recorded { number: 3 });
        assert!(numbers(&remote.resume(0)).is_empty());
    }

    #[test]
    fn a_record_completes_what_waits_for_it() {
        let remote = RemoteScheduler::new(GatewayId(2));
        let step = StepId::of(GatewayId(2), 1);
        let _fate = remote.submit(arrival(1), None).expect("there is room");
        let mut done = remote.event_to_record(Event::Program(ProgramEvent::StepCancelled { step }));
        remote.hear(ToGateway::Recorded { number: 1 });
        assert_eq!((&mut done).now_or_never(), None, "not yet");
        remote.hear(ToGateway::Recorded { number: 2 });
        assert_eq!(done.now_or_never(), Some(Ok(())));
    }

    #[test]
    fn the_record_of_an_abandoned_step_is_not_awaited() {
        let remote = RemoteScheduler::new(GatewayId(2));
        let step = StepId::of(GatewayId(2), 1);
        let _fate = remote.submit(arrival(1), None).expect("there is room");
        let done = remote.event_to_record(Event::Program(ProgramEvent::StepFinished {
            step,
            tokens: treadle_core::programs::StepTokens {
                prompt: 1,
                output: 1,
                cached: None,
            },
            finish: treadle_model::FinishReason::Stop,
            weights: None,
        }));
        let word = WireInstruction::Forget;
        remote.hear(ToGateway::Step { step, word });
        remote.hear(ToGateway::Recorded { number: 2 });
        let told = done.now_or_never();
        assert_eq!(
            told,
            Some(Err(NotRecorded::Stopped)),
            "its client must see a break"
        );
    }

    #[test]
    fn open_steps_report_their_state() {
        let remote = RemoteScheduler::new(GatewayId(2));
        let mut instructions = remote.submit(arrival(1), None).expect("there is room");
        let step = StepId::of(GatewayId(2), 1);
        let word = || WireInstruction::Dispatch {
            worker: WorkerId(4),
            url: "http://e".into(),
            engine: treadle_model::EngineKind::Vllm,
            slot: None,
            priority: None,
            interruptible: false,
            prefill: None,
        };
        let open = |remote: &RemoteScheduler| match remote.resume(1).pop() {
            Some(FromGateway::Open { steps }) => steps,
            other => panic!("{other:?}"),
        };
        assert_eq!(open(&remote), [OpenStep { step, at: None }]);
        let message_of = |word| ToGateway::Step { step, word };
        remote.hear(message_of(word()));
        remote.hear(message_of(word()));
        assert!(matches!(
            instructions.try_recv(),
            Ok(Instruction::Dispatch(_))
        ));
        assert!(
            instructions.try_recv().is_err(),
            "the same message twice counts once"
        );
        let at = Some(WorkerId(4));
        assert_eq!(open(&remote), [OpenStep { step, at }]);
        remote.hear(message_of(WireInstruction::Forget));
        assert!(matches!(instructions.try_recv(), Ok(Instruction::Abort(_))));
        assert!(matches!(instructions.try_recv(), Ok(Instruction::Forget)));
        assert!(open(&remote).is_empty());
    }
}
