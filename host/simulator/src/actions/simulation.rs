//! Runs a batch under an action scheduler: `treadle` in virtual time.
//!
//! Cores belong to nodes. A trajectory stays on the node that has the fewest when its first action
//! starts, as its files are there (`ARL-Tangram` §5.2); each node's cores are one resource. So are
//! the devices, and each quota.

use super::api::Gate;
use super::clock::Clock;
use super::machine::{Allocator, Machine};
use super::outcome::{Outcome, Times};
use super::search::Api;
use super::services::Services;
use super::work::{Draws, Trajectory, Work, micros};
use treadle_core::actions::{
    ActionCommand, ActionEvent, ActionSpec, Demand, Grant, Load, Outcome as Ending, Resource,
    Supply,
};
use treadle_model::{ActionId, PolicyRef, Span, Timestamp};

/// Maximum run time of an action, which no action of a workload approaches.
const RUN_MAX: Span = Span::from_secs(86_400);

/// Resources of actions, and the overheads of starting them.
#[derive(Clone, Debug)]
pub struct Pools {
    /// Number of cores of each node.
    pub node_cores: Vec<u64>,
    /// Number of devices of each node.
    pub node_devices: Vec<u32>,
    /// Models on devices.
    pub services: Option<Services>,
    /// External services.
    pub apis: Vec<Api>,
    /// Overhead of starting an action, in seconds.
    pub exec_s: f64,
    /// Additional overhead of a trajectory's first action on cores, in seconds: its container.
    pub container_s: f64,
}

impl Pools {
    /// Nodes with cores only.
    pub fn cores(nodes: u32, node_cores: u64, exec_s: f64, container_s: f64) -> Self {
        Self {
            node_cores: vec![node_cores; nodes as usize],
            node_devices: Vec::new(),
            services: None,
            apis: Vec::new(),
            exec_s,
            container_s,
        }
    }

    fn resources(&self) -> Vec<Resource> {
        let units = |(node, total): (usize, &u64)| Resource {
            name: cores_of(node),
            supply: Supply::Units { total: *total },
        };
        let mut resources: Vec<Resource> = self.node_cores.iter().enumerate().map(units).collect();
        if !self.node_devices.is_empty() {
            resources.push(Resource {
                name: "gpu".into(),
                supply: Supply::Devices {
                    nodes: self.node_devices.clone(),
                },
            });
        }
        resources.extend(self.apis.iter().map(|api| Resource {
            name: api.name.into(),
            supply: Supply::Quota {
                concurrent_max: api.concurrent_max,
                requests_max: api.requests_max,
                period: Span(api.period_us),
            },
        }));
        resources
    }
}

fn cores_of(node: usize) -> Box<str> {
    format!("cpu-{node}").into()
}

fn service(service: u32) -> Box<str> {
    format!("model-{service}").into()
}

enum Due {
    Submit(u32),
    Begin(u64),
    End(u64),
    Wake,
}

/// Index of an action among the submitted ones: ids start at 1.
fn place(id: u64) -> usize {
    id as usize - 1
}

/// A submitted action.
struct Submitted {
    trajectory: u32,
    turn: usize,
    at_us: u64,
    times: Times,
    refused: bool,
}

struct Simulation<'a> {
    pools: &'a Pools,
    trajectories: &'a [Trajectory],
    machine: &'a mut dyn Machine,
    allocator: &'a mut dyn Allocator,
    clock: Clock<Due>,
    gates: Vec<Gate>,
    node: Vec<Option<usize>>,
    on_node: Vec<u32>,
    submitted: Vec<Submitted>,
    turns_begun: Vec<usize>,
    wake_us: Option<u64>,
    outcome: Outcome,
}

impl Pools {
    /// Runs a batch.
    pub fn run(
        &self,
        trajectories: &[Trajectory],
        machine: &mut dyn Machine,
        allocator: &mut dyn Allocator,
    ) -> Outcome {
        let mut simulation = Simulation {
            pools: self,
            trajectories,
            machine,
            allocator,
            clock: Clock::new(),
            gates: self.apis.iter().map(|api| Gate::new(*api)).collect(),
            node: vec![None; trajectories.len()],
            on_node: vec![0; self.node_cores.len()],
            submitted: Vec::new(),
            turns_begun: vec![0; trajectories.len()],
            wake_us: None,
            outcome: Outcome {
                trajectories: trajectories.len() as u32,
                ..Outcome::default()
            },
        };
        simulation.set_up();
        while let Some((now_us, due)) = simulation.clock.next() {
            simulation.happens(now_us, &due);
        }
        simulation.outcome
    }
}

impl Simulation<'_> {
    fn set_up(&mut self) {
        let resources = self.pools.resources();
        self.tell(0, ActionEvent::ResourcesSet { resources });
        if let Some(services) = &self.pools.services {
            for index in 0..services.services {
                let load = Span(services.load_us(4));
                let service = service(index);
                self.tell(0, ActionEvent::ServiceDeclared { service, load });
            }
        }
        for (index, trajectory) in self.trajectories.iter().enumerate() {
            if let Some(turn) = trajectory.turns.first() {
                self.clock.at(turn.generation_us, Due::Submit(index as u32));
            }
        }
    }

    fn happens(&mut self, now_us: u64, due: &Due) {
        match *due {
            Due::Submit(trajectory) => self.submit(now_us, trajectory),
            Due::Begin(id) => {
                let event = ActionEvent::ActionBegan {
                    action: ActionId(id),
                    attempt: 1,
                };
                self.tell(now_us, event);
            }
            Due::End(id) => self.end(now_us, id),
            Due::Wake => {
                if self.wake_us == Some(now_us) {
                    self.wake_us = None;
                    self.machine.wake(Timestamp(now_us));
                    self.follow(now_us);
                }
            }
        }
    }

    fn tell(&mut self, now_us: u64, event: ActionEvent) {
        self.machine.handle(Timestamp(now_us), event);
        self.follow(now_us);
    }

    /// Executes the scheduler's commands.
    fn follow(&mut self, now_us: u64) {
        while let Some(command) = self.machine.poll() {
            match command {
                ActionCommand::StartAction {
                    action,
                    grants,
                    load,
                    ..
                } => self.start(now_us, action.0, &grants, load.as_ref()),
                ActionCommand::AskElastic { ask, question, .. } => {
                    let answer = self.allocator.allocate(&question);
                    let event = ActionEvent::ElasticAnswered {
                        ask,
                        policy: PolicyRef("allocator".into()),
                        answer,
                    };
                    self.machine.handle(Timestamp(now_us), event);
                }
                ActionCommand::AnswerAction { action } => self.answered(now_us, action.0),
                ActionCommand::StopAction { .. } => {}
            }
        }
        let deadline = self.machine.deadline().map(|at| at.0.max(now_us));
        if let Some(at_us) = deadline
            && self.wake_us.is_none_or(|wake_us| at_us < wake_us)
        {
            self.wake_us = Some(at_us);
            self.clock.at(at_us, Due::Wake);
        }
    }

    fn submit(&mut self, now_us: u64, trajectory: u32) {
        let place = trajectory as usize;
        let turn = self.turns_begun[place];
        let work = &self.trajectories[place].turns[turn].work;
        let id = self.submitted.len() as u64 + 1;
        let spec = self.spec(trajectory, work, id);
        self.submitted.push(Submitted {
            trajectory,
            turn,
            at_us: now_us,
            times: Times {
                trajectory,
                last: turn + 1 == self.trajectories[place].turns.len(),
                ..Times::default()
            },
            refused: false,
        });
        self.turns_begun[place] += 1;
        let event = ActionEvent::ActionSubmitted {
            action: ActionId(id),
            spec: Box::new(spec),
        };
        self.tell(now_us, event);
    }

    fn spec(&mut self, trajectory: u32, work: &Work, id: u64) -> ActionSpec {
        let resource = match work.draws {
            Draws::Cores => cores_of(self.node_of(trajectory as usize)),
            Draws::Devices { .. } => "gpu".into(),
            Draws::Quota { api } => self.pools.apis[api as usize].name.into(),
        };
        ActionSpec {
            program: None,
            job: "batch".into(),
            kind: work.kind.into(),
            demands: vec![Demand {
                resource,
                options: work.options.to_vec(),
            }],
            durations: work.expected_us().into_iter().map(Span).collect(),
            service: match work.draws {
                Draws::Devices { service: index } => Some(service(index)),
                Draws::Cores | Draws::Quota { .. } => None,
            },
            run_max: RUN_MAX,
            start_by: None,
            idempotent: false,
            idempotency_key: None,
            body: format!("{id:x}").into(),
        }
    }

    /// The node of a trajectory; if it has none yet, it gets the one with the fewest trajectories.
    fn node_of(&mut self, trajectory: usize) -> usize {
        if let Some(node) = self.node[trajectory] {
            return node;
        }
        let fewest = (0..self.on_node.len()).min_by_key(|node| self.on_node[*node]);
        let node = fewest.unwrap_or(0);
        self.node[trajectory] = Some(node);
        self.on_node[node] += 1;
        node
    }

    fn start(&mut self, now_us: u64, id: u64, grants: &[Grant], load: Option<&Load>) {
        let submitted = &mut self.submitted[place(id)];
        let work = &self.trajectories[submitted.trajectory as usize].turns[submitted.turn].work;
        let units = grants.first().map_or(1, |grant| grant.units);
        let mut overhead_us = micros(self.pools.exec_s);
        if work.draws == Draws::Cores && submitted.turn == 0 {
            overhead_us += micros(self.pools.container_s);
        }
        let service = load.and_then(|load| load.service.as_ref());
        if let (Some(_), Some(services)) = (service, &self.pools.services) {
            overhead_us += services.load_us(units);
        }
        if let Draws::Quota { api } = work.draws {
            submitted.refused = !self.gates[api as usize].begin(now_us);
        }
        submitted.times.queue_us = now_us - submitted.at_us;
        submitted.times.overhead_us = overhead_us;
        submitted.times.units = units;
        submitted.times.run_us = work.time_us(units as f64);
        let begins_us = now_us + overhead_us;
        let ends_us = begins_us + submitted.times.run_us;
        self.clock.at(begins_us, Due::Begin(id));
        self.clock.at(ends_us, Due::End(id));
    }

    fn end(&mut self, now_us: u64, id: u64) {
        let submitted = &mut self.submitted[place(id)];
        let work = &self.trajectories[submitted.trajectory as usize].turns[submitted.turn].work;
        if let Draws::Quota { api } = work.draws
            && !submitted.refused
        {
            self.gates[api as usize].end();
        }
        submitted.times.failed = submitted.refused;
        let event = ActionEvent::ActionEnded {
            action: ActionId(id),
            attempt: 1,
            outcome: Ending::Exited { code: 0 },
            output: None,
        };
        self.tell(now_us, event);
    }

    fn answered(&mut self, now_us: u64, id: u64) {
        let submitted = &self.submitted[place(id)];
        let trajectory = submitted.trajectory;
        let next = submitted.turn + 1;
        self.outcome.actions.push(submitted.times);
        self.outcome.end_us = self.outcome.end_us.max(now_us);
        let turns = &self.trajectories[trajectory as usize].turns;
        if let Some(turn) = turns.get(next) {
            let at_us = now_us + turn.generation_us;
            self.clock.at(at_us, Due::Submit(trajectory));
        } else if let Some(node) = self.node[trajectory as usize] {
            self.on_node[node] -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
