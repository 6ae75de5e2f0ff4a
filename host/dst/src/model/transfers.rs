//! Commands about caches: each is checked against the model's state of the program, its copy and
//! both ends, before it is applied.

use super::Model;
use super::caches::{UnderWay, Way};
use treadle_core::programs::ProgramCommand;
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, WorkerId};

impl Model {
    /// It was decided that a program's cache goes to host memory.
    pub(super) fn decided_to_offload(&mut self, program: ProgramId, worker: WorkerId) -> Checked {
        let p = &self.programs[&program];
        if p.place != Some(worker)
            || !p.steps.is_empty()
            || self.caches.under_way.contains_key(&program)
        {
            return broken(
                "transfers",
                format!(
                    "{program} is to leave {worker}, but is at {:?}, with steps {:?}, or leaves already",
                    p.place, p.steps
                ),
            );
        }
        self.caches.wanted.insert(program);
        Ok(())
    }

    /// Follows a command that is about a cache.
    pub(super) fn cache_commanded(&mut self, command: &ProgramCommand) -> Checked {
        match command {
            ProgramCommand::OffloadProgram {
                program,
                from,
                tokens,
                ..
            } => self.offload_begins(*program, *from, *tokens),
            ProgramCommand::LoadProgram {
                program,
                to,
                tokens,
                copy,
                ..
            } => self.load_begins(*program, *to, *tokens, copy),
            ProgramCommand::MigrateProgram {
                program,
                from,
                to,
                to_slot,
                tokens,
                ..
            } => {
                self.move_begins(*program, (*from, *to), *tokens)?;
                self.check_slot(*program, *to, *to_slot)
            }
            ProgramCommand::DropCopy { program, copy } => self.copy_dropped(*program, copy),
            ProgramCommand::CancelTransfer { program } => self.transfer_stopped(*program),
            _ => Ok(()),
        }
    }

    fn begins(&mut self, program: ProgramId, way: Way, tokens: u64) -> Checked {
        let before = self.caches.under_way.get(&program);
        let Some(p) = self.programs.get(&program) else {
            return broken("transfers", format!("{way:?} of {program}, which is gone"));
        };
        let place = match way {
            Way::Out(at) | Way::Back(at) | Way::Move(at, _) => at,
        };
        let idle = p.steps.is_empty() || matches!(way, Way::Back(_));
        let healthy = self.workers.get(&place).is_some_and(|w| w.healthy);
        if let Some(before) = before {
            return broken(
                "transfers",
                format!("{program} is to go {way:?} while it goes {:?}", before.way),
            );
        }
        if p.place != Some(place) || !idle || !healthy || self.runs_anything(program) {
            return broken(
                "transfers",
                format!(
                    "{program} is at {:?} with steps {:?} and goes {way:?}",
                    p.place, p.steps
                ),
            );
        }
        let sent = p.steps_sent;
        let under_way = UnderWay {
            way,
            tokens,
            since: self.now,
            deadline: self.now + self.config.kv.transfer_max,
            sent,
        };
        self.caches.under_way.insert(program, under_way);
        Ok(())
    }

    fn check_context(&self, program: ProgramId, tokens: u64) -> Checked {
        let context = self.programs[&program].context_tokens;
        if context != tokens {
            return broken(
                "transfers",
                format!("{program} has {context} tokens, of which {tokens} are to go"),
            );
        }
        Ok(())
    }

    fn offload_begins(&mut self, program: ProgramId, from: WorkerId, tokens: u64) -> Checked {
        let others = self.caches.under_way.iter();
        let other = others.clone().find(|(_, u)| u.way == Way::Out(from));
        if let Some((other, _)) = other {
            return broken(
                "endpoints",
                format!("{program} leaves {from} while {other} leaves it"),
            );
        }
        let free_at = self.caches.link_free_at.get(&from).copied();
        if free_at.is_some_and(|at| at > self.now) {
            return broken(
                "endpoints",
                format!(
                    "{program} leaves {from} at {:?}, whose link is free at {free_at:?}",
                    self.now
                ),
            );
        }
        if !self.caches.wanted.remove(&program) {
            return broken("transfers", format!("{program} leaves {from} undecided"));
        }
        self.begins(program, Way::Out(from), tokens)?;
        self.check_context(program, tokens)?;
        self.check_host()
    }

    /// Checks that copies in host memory and those in progress are within the limit.
    pub(super) fn check_host(&self) -> Checked {
        let (tokens, most) = (self.caches.host_tokens(), self.config.kv.host_tokens_max);
        if tokens > most {
            return broken(
                "host",
                format!("host memory is to hold {tokens} tokens and has room for {most}"),
            );
        }
        Ok(())
    }

    fn load_begins(
        &mut self,
        program: ProgramId,
        to: WorkerId,
        tokens: u64,
        handle: &str,
    ) -> Checked {
        let sent = self.programs.get(&program).map(|p| p.steps_sent);
        let held = self.caches.held.get(&program);
        let valid = held.filter(|copy| {
            *copy.handle == *handle && copy.tokens == tokens && Some(copy.sent) == sent
        });
        if valid.is_none() {
            return broken(
                "copies",
                format!(
                    "{program} has sent {sent:?} steps and gets {handle} of {tokens} tokens back: {held:?}"
                ),
            );
        }
        self.begins(program, Way::Back(to), tokens)
    }

    fn move_begins(
        &mut self,
        program: ProgramId,
        (from, to): (WorkerId, WorkerId),
        tokens: u64,
    ) -> Checked {
        let mut others = self.caches.under_way.iter();
        let other = others.find(|(_, u)| {
            matches!(u.way, Way::Move(..)) && (u.way.touches(from) || u.way.touches(to))
        });
        if let Some((other, under_way)) = other {
            return broken(
                "endpoints",
                format!(
                    "{program} goes from {from} to {to} while {other} goes {:?}",
                    under_way.way
                ),
            );
        }
        if from == to || !self.workers.get(&to).is_some_and(|w| w.healthy) {
            return broken("transfers", format!("{program} goes from {from} to {to}"));
        }
        self.check_in_service(program, to)?;
        if self.is_aware() {
            self.is_admitted(program, to)?;
        }
        self.begins(program, Way::Move(from, to), tokens)?;
        self.check_context(program, tokens)
    }

    fn copy_dropped(&mut self, program: ProgramId, handle: &str) -> Checked {
        let held = self.caches.held.get(&program);
        if held.is_some_and(|held| *held.handle == *handle) {
            if let Some(under_way) = self.caches.under_way.get(&program) {
                return broken(
                    "copies",
                    format!(
                        "{handle} is dropped while {program} goes {:?}",
                        under_way.way
                    ),
                );
            }
            self.caches.held.remove(&program);
        }
        if !self.caches.existing.remove(handle) && self.caches.lost.as_deref() != Some(handle) {
            return broken(
                "copies",
                format!("{handle} of {program} is dropped, but there is no such copy"),
            );
        }
        Ok(())
    }

    fn transfer_stopped(&mut self, program: ProgramId) -> Checked {
        let ended = self.ends(program, |_| true).is_some();
        if ended || self.caches.stopping.remove(&program) || self.caches.gone.contains(&program) {
            return Ok(());
        }
        broken(
            "transfers",
            format!("{program} is to stop, but its cache goes nowhere"),
        )
    }

    /// From a step's sending on the engine's cache is the valid one.
    pub(super) fn check_sent(&self, program: ProgramId) -> Checked {
        if let Some(under_way) = self.caches.under_way.get(&program) {
            return broken(
                "transfers",
                format!(
                    "a step of {program} is sent while its cache goes {:?}",
                    under_way.way
                ),
            );
        }
        if let Some(copy) = self.caches.held.get(&program) {
            return broken(
                "copies",
                format!("a step of {program} is sent, and {} is kept", copy.handle),
            );
        }
        Ok(())
    }
}
