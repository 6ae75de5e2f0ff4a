//! Kubernetes pods: one for each trajectory during its whole life (`ARL-Tangram` §6.1, baseline of
//! AI coding).
//!
//! Pods are admitted in the order of their requests, if they fit, to the node with the most free
//! cores. With the limit equal to the request, a pod is a static reservation of whole cores.

mod node;

use super::clock::Clock;
use super::outcome::{Outcome, Times};
use super::work::{Trajectory, micros};
use node::Node;
use std::collections::VecDeque;

/// Wait for a pod after which it is requested again (§6.1).
pub const TIMEOUT_US: u64 = 600_000_000;
/// Maximum number of repeated requests (§6.1).
pub const RETRIES_MAX: u32 = 3;

/// Parameters of nodes and pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Pods {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of cores of a node.
    pub node_cores: u32,
    /// CPU request of a pod, in thousandths of a core.
    pub request_milli: u64,
    /// CPU limit of a pod, in cores.
    pub limit: u32,
    /// Time to start a pod, in seconds.
    pub start_s: f64,
    /// Number of pods that the control plane starts per second.
    pub starts_per_s: f64,
    /// Overhead of starting an action in a pod, in seconds.
    pub exec_s: f64,
}

enum Due {
    /// A generation has ended.
    Submit(u32),
    /// A pod is ready.
    Ready(u32),
    /// An action begins.
    Begin(u32),
    /// The wait for the pod times out, at this attempt.
    TimeOut(u32, u32),
}

#[derive(Clone, Default)]
struct Pod {
    turn: usize,
    node: Option<usize>,
    attempts: u32,
    is_ready: bool,
    submitted_us: u64,
    waits: bool,
    times: Times,
    is_gone: bool,
}

struct Simulation<'a> {
    options: &'a Pods,
    trajectories: &'a [Trajectory],
    clock: Clock<Due>,
    nodes: Vec<Node>,
    free_milli: Vec<u64>,
    pods: Vec<Pod>,
    queue: VecDeque<u32>,
    /// Time at which the control plane has started the pods so far.
    control_us: u64,
    outcome: Outcome,
}

impl Pods {
    /// Runs a batch.
    pub fn run(&self, trajectories: &[Trajectory]) -> Outcome {
        let mut simulation = Simulation {
            options: self,
            trajectories,
            clock: Clock::new(),
            nodes: (0..self.nodes)
                .map(|_| Node::new(f64::from(self.node_cores)))
                .collect(),
            free_milli: vec![u64::from(self.node_cores) * 1_000; self.nodes as usize],
            pods: vec![Pod::default(); trajectories.len()],
            queue: VecDeque::new(),
            control_us: 0,
            outcome: Outcome {
                trajectories: trajectories.len() as u32,
                ..Outcome::default()
            },
        };
        for (index, trajectory) in trajectories.iter().enumerate() {
            simulation.ask(0, index as u32);
            if let Some(turn) = trajectory.turns.first() {
                simulation
                    .clock
                    .at(turn.generation_us, Due::Submit(index as u32));
            }
        }
        simulation.admit(0);
        simulation.run();
        simulation.outcome
    }
}

impl Simulation<'_> {
    fn run(&mut self) {
        loop {
            let soonest = (0..self.nodes.len())
                .filter_map(|node| self.nodes[node].next_us().map(|at_us| (at_us, node)))
                .min();
            match (self.clock.next_us(), soonest) {
                (None, None) => return,
                (event, Some((at_us, node))) if event.is_none_or(|event| at_us <= event) => {
                    for trajectory in self.nodes[node].ended(at_us) {
                        self.ended(at_us, trajectory);
                    }
                }
                _ => {
                    if let Some((now_us, due)) = self.clock.next() {
                        self.happens(now_us, &due);
                    }
                }
            }
        }
    }

    fn happens(&mut self, now_us: u64, due: &Due) {
        match *due {
            Due::Submit(index) => {
                let pod = &mut self.pods[index as usize];
                pod.submitted_us = now_us;
                pod.waits = true;
                if pod.is_gone {
                    self.give_up(now_us, index);
                } else if pod.is_ready {
                    self.start(now_us, index);
                }
            }
            Due::Ready(index) => {
                self.pods[index as usize].is_ready = true;
                if self.pods[index as usize].waits {
                    self.start(now_us, index);
                }
            }
            Due::Begin(index) => self.begin(now_us, index),
            Due::TimeOut(index, attempt) => self.timed_out(now_us, index, attempt),
        }
    }

    /// Requests a pod.
    fn ask(&mut self, now_us: u64, index: u32) {
        let pod = &mut self.pods[index as usize];
        pod.attempts += 1;
        self.queue.push_back(index);
        self.clock
            .at(now_us + TIMEOUT_US, Due::TimeOut(index, pod.attempts));
    }

    /// Admits pods as long as the first one fits.
    fn admit(&mut self, now_us: u64) {
        while let Some(index) = self.queue.front().copied() {
            let most = (0..self.nodes.len())
                .rev()
                .max_by_key(|n| self.free_milli[*n]);
            let Some(node) = most else { return };
            if self.free_milli[node] < self.options.request_milli {
                return;
            }
            self.queue.pop_front();
            self.free_milli[node] -= self.options.request_milli;
            self.control_us = self.control_us.max(now_us) + micros(1.0 / self.options.starts_per_s);
            self.pods[index as usize].node = Some(node);
            let ready_us = self.control_us + micros(self.options.start_s);
            self.clock.at(ready_us, Due::Ready(index));
        }
    }

    /// Requests a pod again, behind all others, after its wait has timed out.
    fn timed_out(&mut self, now_us: u64, index: u32, attempt: u32) {
        let pod = &self.pods[index as usize];
        if pod.node.is_some() || pod.attempts != attempt || pod.is_gone {
            return;
        }
        self.outcome.timeouts += 1;
        self.queue.retain(|queued| *queued != index);
        if attempt <= RETRIES_MAX {
            self.ask(now_us, index);
        } else {
            self.pods[index as usize].is_gone = true;
            if self.pods[index as usize].waits {
                self.give_up(now_us, index);
            }
        }
        self.admit(now_us);
    }

    /// Ends a trajectory that gets no pod; its action fails.
    fn give_up(&mut self, now_us: u64, index: u32) {
        let pod = &mut self.pods[index as usize];
        pod.waits = false;
        self.outcome.actions.push(Times {
            trajectory: index,
            last: true,
            queue_us: now_us - pod.submitted_us,
            failed: true,
            ..Times::default()
        });
        self.outcome.end_us = self.outcome.end_us.max(now_us);
    }

    fn start(&mut self, now_us: u64, index: u32) {
        let pod = &mut self.pods[index as usize];
        pod.waits = false;
        let overhead_us = micros(self.options.exec_s);
        pod.times = Times {
            trajectory: index,
            queue_us: now_us - pod.submitted_us,
            overhead_us,
            ..Times::default()
        };
        self.clock.at(now_us + overhead_us, Due::Begin(index));
    }

    fn begin(&mut self, now_us: u64, index: u32) {
        let pod = &mut self.pods[index as usize];
        let Some(node) = pod.node else { return };
        let work = &self.trajectories[index as usize].turns[pod.turn].work;
        let most = work.options.last().copied().unwrap_or(1);
        let cores = most.min(u64::from(self.options.limit));
        pod.submitted_us = now_us;
        pod.times.units = cores;
        let single_us = work.single_s * 1e6;
        self.nodes[node].begin(now_us, index, single_us, cores as f64, work.speedup);
    }

    fn ended(&mut self, now_us: u64, index: u32) {
        let turns = &self.trajectories[index as usize].turns;
        let pod = &mut self.pods[index as usize];
        pod.times.run_us = now_us - pod.submitted_us;
        pod.turn += 1;
        pod.times.last = pod.turn == turns.len();
        self.outcome.actions.push(pod.times);
        if let Some(turn) = turns.get(pod.turn) {
            self.clock
                .at(now_us + turn.generation_us, Due::Submit(index));
            return;
        }
        self.outcome.end_us = self.outcome.end_us.max(now_us);
        if let Some(node) = pod.node {
            self.free_milli[node] += self.options.request_milli;
        }
        self.admit(now_us);
    }
}

#[cfg(test)]
mod tests;
