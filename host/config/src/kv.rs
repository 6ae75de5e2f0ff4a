//! `[kv]`: what becomes of the KV caches of programs that act.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use treadle_core::Mode;

use super::section::section;
use super::{Config, ConfigError, Role, conflict};

section! {
    /// KV caches that outlive a pause: kept in host memory, brought back, moved between engines.
    /// docs/kv-transfer.md has what each engine can do, and how it is set up.
    KvSection in "kv" {
        /// Ask the eviction policy what to do with each cache while memory is short: keep it, host
        /// memory, another engine, or drop it. Unless another is bound, `foresight-eviction`
        /// answers then. While it is off, `thunderagent-eviction` does, and a program that must
        /// leave its worker goes to host memory where that is quicker than recomputing its context.
        /// Unless it is set, it is on where `scheduler.mode` is `program-aware`, and off in the
        /// other modes, which have no use for it.
        retention: bool = true, "";
        /// Room of the host tier on this node, which llama.cpp's slots are saved to; 0 for no tier.
        host_bytes_max: u64 = 0, "bytes", 0 ..= 1_099_511_627_776_000_u64;
        /// Context that host memory is planned to hold, as long as at least one engine can offload caches; 0 to offload nothing.
        host_tokens_max: u64 = 0, "tokens", 0 ..= 1_000_000_000_000_u64;
        /// Context that goes between an engine and host memory in a second, in one direction, until that is seen: a cache is offloaded only where bringing it back is quicker than computing it again.
        host_tokens_per_s: u64 = 100_000, "tokens/s", 1 ..= 1_000_000_000;
        /// Context that goes between two engines in a second, until that is seen, as long as any engine can move caches; 0 to move nothing.
        migration_tokens_per_s: u64 = 0, "tokens/s", 0 ..= 1_000_000_000;
        /// Prompt tokens that an engine computes in a second, until that is measured: what a cache that is not kept costs.
        prefill_tokens_per_s: u64 = 10_000, "tokens/s", 1 ..= 1_000_000_000;
        /// Where the host tier keeps its copies, on disk or in memory (tmpfs); one process at a time.
        folder: String = String::new(), "";
        /// Where the llama.cpp servers of this node save slots (`--slot-save-path`), best on the file system of `kv.folder`.
        slots_folder: String = String::new(), "";
        /// Address on which other nodes reach this node's tier, such as `10.0.0.5:8310`; none do
        /// where empty. With `cluster.role` `all` or `gateway` only.
        tier_listen: String = String::new(), "";
        /// The same as they have to write it, host and port; `kv.tier_listen` where empty.
        tier_advertise: String = String::new(), "";
        /// Engines on other nodes: `HOST=ADDRESS`, the host of their URLs and the `kv.tier_listen` of the daemon beside them.
        nodes: Vec<String> = Vec::new(), "";
        /// Version of the weights that the engines have, one for all of them. Change it when they
        /// are given other weights, and restart the daemon: copies of the old ones are never used
        /// then.
        weights: String = "1".to_owned(), "";
        /// Use the storage behind SGLang's HiCache where there is one. It finds caches by their tokens alone: it must be flushed whenever engines are given other weights.
        sglang: bool = false, "";
        fixed {
            /// Share of that which offloads may take, so that what comes back finds the link free.
            offload_link_share: f64 = 0.5, "share", 0.001 ..= 1.0;
            /// Prompts that may wait inside an engine, as the time that it takes to compute them, while `kv.retention` is on: requests in there hold no memory and lose their caches, so others wait outside. Twice as much where there is no host memory; 0 for no bound.
            prefill_backlog_s: f64 = 2.0, "seconds", 0.0 ..= 600.0;
            /// Time of one transfer after which it has failed, in the scheduler's time.
            transfer_s_max: u64 = 60, "seconds", 1 ..= 300;
            /// Last requests of programs that are remembered, to ask engines for caches by their tokens; beyond it the oldest are forgotten.
            prompt_bytes_max: u64 = 268_435_456, "bytes", 0 ..= 1_099_511_627_776_u64;
        }
    }
}

impl KvSection {
    /// True if this node keeps copies.
    pub fn has_tier(&self) -> bool {
        self.host_bytes_max > 0
    }

    /// The address of the tier's server beside an engine; `None` for this node.
    pub fn node_of(&self, url: &str) -> Option<&str> {
        let uri: http::Uri = url.parse().ok()?;
        let host = uri.host()?;
        let mut named = self.named_nodes();
        named.find_map(|(name, address)| (name == host).then_some(address?))
    }

    /// The addresses of other nodes' tiers, each once.
    pub fn other_nodes(&self) -> BTreeSet<Box<str>> {
        let addresses = self.named_nodes().filter_map(|(_, address)| address);
        let own = self.node_name();
        let others = addresses.filter(|address| *address != own);
        others.map(Into::into).collect()
    }

    fn named_nodes(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.nodes.iter().map(|entry| match entry.split_once('=') {
            Some((host, address)) => (host.trim(), Some(address.trim())),
            None => (entry.as_str(), None),
        })
    }

    /// What holds unless it was written: retention in the mode that has use for it.
    pub(super) fn settle(&mut self, mode: Mode, retention_is_given: bool) {
        if !retention_is_given {
            self.retention = mode == Mode::ProgramAware;
        }
    }

    /// Rules across several values.
    pub(super) fn check(&self, config: &Config) -> Result<(), ConfigError> {
        let keeps = self.host_tokens_max > 0 || self.retention;
        if keeps && config.scheduler.mode != Mode::ProgramAware {
            let key = if self.retention {
                "kv.retention"
            } else {
                "kv.host_tokens_max"
            };
            return Err(conflict(
                key,
                "is set, and scheduler.mode keeps no programs waiting for memory".to_owned(),
                "set scheduler.mode to program-aware, or leave it out",
            ));
        }
        let is_asked = self.retention || config.scheduler.mode != Mode::ProgramAware;
        if self.migration_tokens_per_s > 0 && !is_asked {
            return Err(conflict(
                "kv.migration_tokens_per_s",
                "is set, and kv.retention is off, so that no policy is asked whose cache moves"
                    .to_owned(),
                "turn kv.retention on, or leave this out",
            ));
        }
        let moves = self.migration_tokens_per_s > 0;
        if self.has_tier() && self.host_tokens_max == 0 && !moves {
            return Err(conflict(
                "kv.host_tokens_max",
                "is 0, so that nothing would come into the tier of kv.host_bytes_max".to_owned(),
                "set it to the tokens of context that fit there; docs/kv-transfer.md has how \
                 large they are",
            ));
        }
        if self.weights.trim().is_empty() {
            return Err(conflict(
                "kv.weights",
                "is empty, which distinguishes no weights".to_owned(),
                "name the weights that the engines have, such as 1",
            ));
        }
        self.check_folders()?;
        self.check_address(config)?;
        self.check_nodes()
    }

    fn check_folders(&self) -> Result<(), ConfigError> {
        let folders = [
            ("kv.folder", &self.folder, "a folder for the copies"),
            (
                "kv.slots_folder",
                &self.slots_folder,
                "the --slot-save-path of the llama.cpp servers of this node",
            ),
        ];
        for (key, folder, what) in folders {
            if self.has_tier() && folder.is_empty() {
                let problem = "is empty, and kv.host_bytes_max asks for a host tier".to_owned();
                return Err(conflict(key, problem, &format!("name {what}")));
            }
        }
        if self.has_tier() && Path::new(&self.folder) == Path::new(&self.slots_folder) {
            return Err(conflict(
                "kv.slots_folder",
                "is the same as kv.folder".to_owned(),
                "name two folders, best in one file system",
            ));
        }
        Ok(())
    }

    fn check_address(&self, config: &Config) -> Result<(), ConfigError> {
        if self.tier_listen.is_empty() && !self.tier_advertise.is_empty() {
            return Err(conflict(
                "kv.tier_advertise",
                "is set, and kv.tier_listen is empty, so that nothing would answer there"
                    .to_owned(),
                "set kv.tier_listen to the address to listen on, or leave it out",
            ));
        }
        if self.tier_listen.is_empty() && self.nodes.is_empty() {
            return Ok(());
        }
        if config.cluster.role == Role::Single {
            let key = match self.tier_listen.as_str() {
                "" => "kv.nodes",
                _ => "kv.tier_listen",
            };
            return Err(conflict(
                key,
                "is set, and cluster.role is single: a daemon that is alone with its store drops \
                 the copies that other nodes have in its tier"
                    .to_owned(),
                "set cluster.role to all or gateway on every node, and one store for them",
            ));
        }
        if !self.has_tier() {
            return Err(conflict(
                "kv.host_bytes_max",
                "is 0, and kv.tier_listen or kv.nodes has other nodes share the tier".to_owned(),
                "set how large the tier of this node may become",
            ));
        }
        if self.tier_listen.is_empty() {
            return Ok(());
        }
        let Ok(address) = self.tier_listen.parse::<SocketAddr>() else {
            return Err(conflict(
                "kv.tier_listen",
                format!("is `{}`", self.tier_listen),
                "write an address and a port such as 10.0.0.5:8310",
            ));
        };
        if self.tier_advertise.is_empty() && (address.ip().is_unspecified() || address.port() == 0)
        {
            return Err(conflict(
                "kv.tier_advertise",
                format!("is empty, and {address} is unreachable from elsewhere"),
                "write the address as other nodes reach it",
            ));
        }
        if !self.tier_advertise.is_empty() && !is_address(&self.tier_advertise) {
            return Err(conflict(
                "kv.tier_advertise",
                format!("is `{}`", self.tier_advertise),
                "write a host or address and a port, such as 10.0.0.5:8310, and nothing else",
            ));
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), ConfigError> {
        for (host, address) in self.named_nodes() {
            if !address.is_some_and(is_address) {
                return Err(conflict(
                    "kv.nodes",
                    format!("has `{host}` without the address of a tier"),
                    "write HOST=ADDRESS:PORT",
                ));
            }
        }
        Ok(())
    }

    /// This node's name in handles: where others reach its tier, else what no other node has.
    pub fn node_name(&self) -> String {
        if !self.tier_advertise.is_empty() {
            return self.tier_advertise.clone();
        }
        if !self.tier_listen.is_empty() {
            return self.tier_listen.clone();
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| (&self.folder).into());
        format!("{}:{}", host.trim(), folder.display())
    }
}

/// Whether others can connect to it: a host or an address, and a port.
fn is_address(text: &str) -> bool {
    let Ok(authority) = text.parse::<http::uri::Authority>() else {
        return false;
    };
    let has_port = authority.port_u16().is_some_and(|port| port > 0);
    has_port && !authority.host().is_empty() && !text.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_on_their_nodes() {
        let kv = KvSection {
            nodes: vec![
                "10.0.0.2=10.0.0.2:8310".to_owned(),
                "gpu3 = gpu3.local:8310".to_owned(),
            ],
            ..KvSection::default()
        };
        assert_eq!(kv.node_of("http://10.0.0.2:8000"), Some("10.0.0.2:8310"));
        assert_eq!(kv.node_of("http://gpu3:1/"), Some("gpu3.local:8310"));
        assert_eq!(kv.node_of("http://10.0.0.1:8000"), None);
        assert_eq!(kv.node_of("nonsense url"), None);
        let others = ["10.0.0.2:8310", "gpu3.local:8310"].map(Box::from);
        assert_eq!(kv.other_nodes(), BTreeSet::from(others));
    }
}
