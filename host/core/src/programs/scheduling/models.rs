//! Models: a program's steps go only to workers that serve the model that it asks for, a base model
//! or an adapter of one.
//!
//! KV caches of two models have nothing in common. So if a program's workers do not serve the model
//! of a step, its steps for that model form a separate program, placed by itself, whose key ends in
//! the model's name; it ends with the original one.

use crate::Programs;
use crate::programs::program::Program;
use crate::programs::worker::Worker;
use crate::programs::{Refusal, StepArrival};
use treadle_model::{EngineKind, ProgramId, StepId, WorkerId};

/// Separator of a program's key and the model's name in the key of a separate program.
const APART: char = '@';
/// Maximum number of models that a refusal names.
const SHOWN_MAX: usize = 20;

/// See [`Programs::model_and_key`].
type ModelAndKey = (Option<Box<str>>, Option<Box<str>>);

impl Worker {
    /// Whether it reported that it serves a model of this name.
    pub fn lists(&self, model: &str) -> bool {
        let Some(own) = self.model.as_deref() else {
            return false;
        };
        let is_other = |name: &str| self.other_models.contains(name);
        // SGLang's notation for an adapter of a model.
        let adapter = || model.strip_prefix(own)?.strip_prefix(':');
        let is_adapter = || self.engine == EngineKind::Sglang && adapter().is_some_and(is_other);
        own == model || is_other(model) || is_adapter()
    }

    /// Whether its engine answers with the model that it has, whatever name is requested.
    fn takes_any_name(&self) -> bool {
        match self.engine {
            EngineKind::Sglang => true,
            // With several models it selects by name.
            EngineKind::Llamacpp => self.other_models.is_empty(),
            EngineKind::Vllm | EngineKind::Openai => false,
        }
    }
}

impl Programs {
    /// Workers that are not being removed.
    fn staying(&self) -> impl Iterator<Item = &Worker> {
        self.state.workers.values().filter(|w| !w.leaving)
    }

    /// Whether steps for a model may be sent to a worker: it reported that it serves the model, or
    /// has reported no model yet, or takes any name while all workers serve the same model and none
    /// has this one.
    pub(crate) fn serves(&self, worker: &Worker, model: Option<&str>) -> bool {
        let Some(model) = model else {
            return true;
        };
        if worker.model.is_none() || worker.lists(model) {
            return true;
        }
        worker.takes_any_name()
            && self.staying().all(|w| {
                let is_alike = w.model == worker.model && w.other_models == worker.other_models;
                w.model.is_none() || (is_alike && !w.lists(model))
            })
    }

    /// Whether a program's steps may be sent to a worker.
    pub(crate) fn serves_program(&self, worker: &Worker, program: &Program) -> bool {
        self.serves(worker, program.model.as_deref())
    }

    /// Whether a step may be sent to a worker.
    pub(super) fn serves_step(&self, worker: WorkerId, step: StepId) -> bool {
        let s = self.state.steps.get(&step);
        let p = s.and_then(|s| self.state.live.get(&s.program));
        let known = p.zip(self.state.workers.get(&worker));
        known.is_some_and(|(p, w)| self.serves_program(w, p))
    }

    /// The model of a step: the one that its client names, otherwise that of the worker that was
    /// registered first.
    fn model_of(&self, arrival: &StepArrival) -> Option<Box<str>> {
        let named = arrival.model.as_ref().filter(|model| !model.is_empty());
        let first = || self.staying().find_map(|w| w.model.clone());
        named.cloned().or_else(first)
    }

    /// The model of a step, and the key of its program if that is a separate one, because not all
    /// of the workers that serve the client's program serve the model. Nothing if engines report no
    /// models.
    ///
    /// # Errors
    /// If no worker serves the model.
    pub(crate) fn model_and_key(&self, arrival: &StepArrival) -> Result<ModelAndKey, Refusal> {
        let Some(model) = self.model_of(arrival) else {
            return Ok((None, None));
        };
        if let Some(refusal) = self.unserved(&model) {
            return Err(refusal);
        }
        let program = self.program_called(&arrival.program);
        let other = program.filter(|p| p.model.as_ref() != Some(&model));
        let apart = other.and_then(|program| {
            let apart: Box<str> = format!("{}{APART}{model}", arrival.program).into();
            let lacks =
                |w: &Worker| self.serves_program(w, program) && !self.serves(w, Some(&model));
            let is_apart = self.state.keys.contains_key(&apart) || self.staying().any(lacks);
            is_apart.then_some(apart)
        });
        Ok((Some(model), apart))
    }

    fn program_called(&self, key: &str) -> Option<&Program> {
        self.state.live.get(self.state.keys.get(key)?)
    }

    /// The refusal of a step for this model, if no worker serves it.
    fn unserved(&self, model: &str) -> Option<Refusal> {
        let mut staying = self.staying().peekable();
        if staying.peek().is_none() || staying.any(|w| self.serves(w, Some(model))) {
            return None;
        }
        let mut served: Vec<&str> = Vec::new();
        for w in self.staying() {
            let others = w.other_models.iter().map(|name| &**name);
            served.extend(w.model.as_deref().into_iter().chain(others));
        }
        served.sort_unstable();
        served.dedup();
        served.truncate(SHOWN_MAX);
        Some(Refusal::ModelUnknown {
            model: model.into(),
            served: served.into_iter().map(Box::from).collect(),
        })
    }

    /// Refuses a waiting step if no worker serves its model any more.
    pub(crate) fn refuse_if_unserved(&mut self, step: StepId) -> bool {
        let s = self.state.steps.get(&step);
        let p = s.and_then(|s| self.state.live.get(&s.program));
        let refusal = p
            .and_then(|p| p.model.as_deref())
            .and_then(|model| self.unserved(model));
        let Some(refusal) = refusal else {
            return false;
        };
        self.refuse(step, refusal);
        true
    }

    /// Handles a changed list of models: programs whose model is gone leave the worker as soon as
    /// none of their steps runs there.
    pub(crate) fn leave_other_models(&mut self, worker: WorkerId) {
        self.state.waiting.want_restore();
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        let leaves = |id: &ProgramId| {
            let p = self.state.live.get(id);
            p.is_some_and(|p| p.running.is_empty() && !self.serves_program(w, p))
        };
        let leaving: Vec<ProgramId> = w.programs.iter().copied().filter(leaves).collect();
        for program in leaving {
            let is_idle = self.state.workers[&worker].idle.contains(&program);
            if is_idle {
                self.vacate_placement(program, worker);
            } else {
                self.ask_again(program);
            }
        }
        self.refuse_waiting_too_long();
    }

    /// The keys of a program's separate programs for other models.
    pub(crate) fn apart_from(&self, key: &str) -> Vec<Box<str>> {
        let from: Box<str> = format!("{key}{APART}").into();
        let own = self.state.keys.range(from.clone()..);
        let own = own.take_while(|(name, _)| name.starts_with(&*from));
        let model_of = |id| self.state.live.get(id)?.model.as_deref();
        own.filter(|(name, id)| model_of(*id) == Some(&name[from.len()..]))
            .map(|(name, _)| name.clone())
            .collect()
    }
}
