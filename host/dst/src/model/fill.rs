//! What the core has learnt of an engine: how much of it must stay free, and which prompts it has
//! yet to compute. The numbers are the core's; here are their bounds, and when they may change.

use super::Model;
use super::caches::Way;
use super::facts::At;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::programs::ProgramEvent;
use treadle_core::{Core, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{StepId, WorkerId};

/// What was known of workers after the previous event.
#[derive(Clone, Debug, Default)]
pub(super) struct Learnt {
    /// Share of each worker, in millionths, that must stay free.
    headroom: BTreeMap<WorkerId, u32>,
    /// Steps whose prompts each worker has yet to compute.
    prompts: BTreeMap<WorkerId, BTreeSet<StepId>>,
    /// Workers that have enough prompts to compute.
    backlogged: BTreeSet<WorkerId>,
}

impl Learnt {
    fn of(model: &Model, core: &Core) -> Self {
        let workers = &core.programs().workers;
        let loads = |worker: WorkerId| {
            let mut under_way = model.caches.under_way.values();
            under_way.any(|u| u.way == Way::Back(worker))
        };
        let headroom = workers
            .iter()
            .filter_map(|(id, w)| Some((*id, w.ledger.engine().headroom_ppm()?)));
        let prompts = workers
            .iter()
            .filter(|(_, w)| w.ledger.engine().has_prompts());
        let busy = workers.iter().filter(|(_, w)| core.is_busy(w));
        Self {
            headroom: headroom.collect(),
            prompts: prompts
                .map(|(id, w)| (*id, w.ledger.engine().prompts().collect()))
                .collect(),
            backlogged: busy.map(|(id, _)| *id).filter(|id| !loads(*id)).collect(),
        }
    }
}

impl Model {
    /// Checks that the core takes no worker to hold more than its high watermark, learns how much
    /// must stay free only as steps end, and forgets no prompt that is still to be computed.
    pub(super) fn check_fill(&mut self, core: &Core, event: &Event) -> Checked {
        if !self.config.kv.retention {
            return Ok(());
        }
        let before = std::mem::take(&mut self.learnt);
        self.learnt = Learnt::of(self, core);
        for (id, known) in &core.programs().workers {
            let high = self.watermark(core, *id, self.config.high_watermark_ppm);
            let fill = core.fill_tokens(known);
            if fill > high {
                return broken(
                    "fill",
                    format!("{id} is filled up to {fill} of {high} tokens"),
                );
            }
            let free = before.headroom.get(id).copied();
            let rises = known.ledger.engine().headroom_ppm() > free;
            let learns = matches!(event, Event::Program(ProgramEvent::StepFinished { .. }));
            let changes =
                free.is_some() && known.ledger.engine().headroom_ppm() != free && is_quiet(event);
            if changes && (!learns || rises && self.found_all) {
                let (now, event) = (known.ledger.engine().headroom_ppm(), event.kind());
                return broken(
                    "fill",
                    format!("{id} was to keep {free:?} ppm free, and now {now:?}, after {event}"),
                );
            }
        }
        self.check_prompts(&before, event)?;
        let answered = self.answered.is_some();
        let mut admitted = self.admitted.iter().filter(|_| answered);
        match admitted.find(|(_, worker)| before.backlogged.contains(worker)) {
            Some((program, worker)) => broken(
                "fill",
                format!("{program} comes to {worker}, which has enough prompts to compute"),
            ),
            None => Ok(()),
        }
    }

    /// A prompt leaves the backlog of a worker once it has a first token, its step is not there any
    /// more, or it must have been computed by now, for which the core looks when it sends another
    /// one, and at times.
    fn check_prompts(&self, before: &Learnt, event: &Event) -> Checked {
        if !is_quiet(event) {
            return Ok(());
        }
        for (worker, prompts) in &before.prompts {
            let (now, none) = (self.learnt.prompts.get(worker), BTreeSet::new());
            let now = now.unwrap_or(&none);
            let is_served = self.dispatched.iter().any(|sent| sent.worker == *worker)
                || now.difference(prompts).next().is_some();
            let waits = |step: &&StepId| {
                let s = self.steps.get(*step);
                s.is_some_and(|s| !s.began && matches!(s.at, At::Worker(at, _) if at == *worker))
            };
            let mut forgotten = prompts.difference(now).filter(waits);
            if let Some(step) = forgotten.next().filter(|_| !is_served) {
                return broken(
                    "fill",
                    format!("{worker} has yet to compute {step}, which is forgotten"),
                );
            }
        }
        Ok(())
    }
}

/// Whether an event changes no settings, no worker and no time.
fn is_quiet(event: &Event) -> bool {
    let Event::Program(event) = event else {
        return !matches!(event, Event::Daemon(_));
    };
    !matches!(
        event,
        ProgramEvent::WorkerAdded { .. }
            | ProgramEvent::WorkerCapacityRead { .. }
            | ProgramEvent::WorkerLost { .. }
            | ProgramEvent::WorkerRecovered { .. }
            | ProgramEvent::WorkerRemoved { .. }
    )
}
