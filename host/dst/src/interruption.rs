//! Preempted steps: the gateway cancels the engine's request and continues the answer when the step
//! is dispatched again; or it can't, and the step runs to its end.

use super::Simulation;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_model::StepId;

impl Simulation {
    /// A step is to be preempted. Its request may have ended already.
    pub(crate) fn interrupt(&mut self, gateway: usize, step: StepId) {
        let Some(exchange) = self.gateways[gateway].exchanges.get_mut(&step) else {
            return;
        };
        let Some(request) = exchange.request else {
            return;
        };
        let runs_on = self.plan.behaviour.transfers.runs_on_percent;
        if self.streams.transfers.percent(runs_on) {
            self.ends.count("steps that could not give way");
            let runs_on = Event::Program(ProgramEvent::StepRunsOn { step });
            return self.send_report(gateway, runs_on, None);
        }
        exchange.request = None;
        if let Some(request) = self.requests.remove(&request) {
            exchange.generated = request.tokens;
        }
        self.ends.count("steps that gave way");
        let interrupted = Event::Program(ProgramEvent::StepInterrupted { step });
        self.send_report(gateway, interrupted, None);
    }
}
