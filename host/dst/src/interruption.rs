//! Steps that give way: the gateway drops the engine's request and goes on with
//! the answer when it is told to; or it can't, and the step runs to its end.

use super::Scene;
use treadle_model::StepId;

impl Scene {
    /// A step is to give way. Its request may have ended already.
    pub(crate) fn interrupt(&mut self, gateway: usize, step: StepId) {
        let Some(exchange) = self.gateways[gateway].exchanges.get_mut(&step) else {
            return;
        };
        let Some(request) = exchange.request else {
            return;
        };
        let runs_on = self.plan.habits.carrier.runs_on_percent;
        if self.streams.carrier.percent(runs_on) {
            self.ends.count("steps that could not give way");
            return;
        }
        exchange.request = None;
        if let Some(request) = self.requests.remove(&request) {
            exchange.generated = request.tokens;
        }
        self.ends.count("steps that gave way");
    }
}
