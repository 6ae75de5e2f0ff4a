//! `[kv]`: KV caches of programs while their tools run.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use treadle_core::Mode;

use super::section::section;
use super::{Config, ConfigError, Role, conflict};

section! {
    /// KV caches that outlive a pause: kept in host memory, restored, moved between engines. docs/kv-transfer.md describes what each engine supports and how to set it up.
    KvSection in "kv" {
        /// Whether the eviction policy decides about each cache while memory is short: keep it,
        /// offload it to host memory, move it to another engine, or drop it. The default policy is
        /// then `foresight-eviction`. If off, the default is `thunderagent-eviction`, and a program
        /// that must leave its worker is offloaded to host memory if that is faster than
        /// recomputing its context. By default on if `scheduler.mode` is `program-aware`, and off
        /// in the other modes, which do not use it.
        retention: bool = true, "";
        /// Size of this node's host tier, where llama.cpp's slots are saved; 0 for no tier.
        host_bytes_max: u64 = 0, "bytes", 0 ..= 1_099_511_627_776_000_u64;
        /// Context that the scheduler plans to hold in host memory while at least one engine can offload caches; 0 to offload nothing.
        host_tokens_max: u64 = 0, "tokens", 0 ..= 1_000_000_000_000_u64;
        /// Assumed speed of transfers between an engine and host memory, in one direction, until it is measured. A cache is offloaded only if restoring it is faster than recomputing it.
        host_tokens_per_s: u64 = 100_000, "tokens/s", 1 ..= 1_000_000_000;
        /// Assumed speed of transfers between two engines until it is measured, while at least one engine can move caches; 0 to move nothing.
        migration_tokens_per_s: u64 = 0, "tokens/s", 0 ..= 1_000_000_000;
        /// Assumed prefill speed of an engine until it is measured. It determines the cost of losing a cache.
        prefill_tokens_per_s: u64 = 10_000, "tokens/s", 1 ..= 1_000_000_000;
        /// Folder of the host tier's copies, on disk or in memory (tmpfs); only one process may use it.
        folder: String = String::new(), "";
        /// Folder in which the llama.cpp servers of this node save slots (`--slot-save-path`), preferably on the same file system as `kv.folder`.
        slots_folder: String = String::new(), "";
        /// Address on which this node's tier listens for other nodes, such as `10.0.0.5:8310`; not
        /// shared if empty. Only with `cluster.role` `all` or `gateway`.
        tier_listen: String = String::new(), "";
        /// Host and port at which other nodes reach this tier; `kv.tier_listen` if empty.
        tier_advertise: String = String::new(), "";
        /// Engines on other nodes: `HOST=ADDRESS`, the host in the engine's URL and the `kv.tier_listen` of the daemon on that node.
        nodes: Vec<String> = Vec::new(), "";
        /// Whether to use the storage behind SGLang's HiCache if there is one. It finds caches by their tokens only, so it must be flushed whenever engines load other weights.
        sglang: bool = false, "";
        fixed {
            /// Share of the link to host memory that offloads may use, so that restores find it free.
            offload_link_share: f64 = 0.5, "share", 0.001 ..= 1.0;
            /// Prompts that may wait inside an engine, as the time to compute them, while `kv.retention` is on. Requests that wait there hold no memory and lose their caches, so others wait in treadle. Doubled if there is no host memory; 0 for no limit.
            prefill_backlog_s: f64 = 2.0, "seconds", 0.0 ..= 600.0;
            /// Timeout of one transfer, in the scheduler's time.
            transfer_s_max: u64 = 60, "seconds", 1 ..= 300;
            /// Last requests of programs that are kept, to find caches in engines by their tokens; beyond this the oldest are dropped.
            prompt_bytes_max: u64 = 268_435_456, "bytes", 0 ..= 1_099_511_627_776_u64;
        }
    }
}

impl KvSection {
    /// True if this node keeps copies.
    pub fn has_tier(&self) -> bool {
        self.host_bytes_max > 0
    }

    /// The address of the tier's server on an engine's node; `None` for this node.
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

    /// Sets the default of `retention`, which depends on the mode.
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
                "is set, but in this scheduler.mode no program waits for memory".to_owned(),
                "set scheduler.mode to program-aware, or leave it out",
            ));
        }
        let is_asked = self.retention || config.scheduler.mode != Mode::ProgramAware;
        if self.migration_tokens_per_s > 0 && !is_asked {
            return Err(conflict(
                "kv.migration_tokens_per_s",
                "is set, but kv.retention is off, so no policy decides which caches move"
                    .to_owned(),
                "turn kv.retention on, or leave this out",
            ));
        }
        let moves = self.migration_tokens_per_s > 0;
        if self.has_tier() && self.host_tokens_max == 0 && !moves {
            return Err(conflict(
                "kv.host_tokens_max",
                "is 0, so nothing would be written to the tier of kv.host_bytes_max".to_owned(),
                "set it to the tokens of context that fit there; docs/kv-transfer.md says how \
                 large they are",
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
                let problem = "is empty, but kv.host_bytes_max is set".to_owned();
                return Err(conflict(key, problem, &format!("name {what}")));
            }
        }
        if self.has_tier() && Path::new(&self.folder) == Path::new(&self.slots_folder) {
            return Err(conflict(
                "kv.slots_folder",
                "is the same as kv.folder".to_owned(),
                "name two folders, preferably on one file system",
            ));
        }
        Ok(())
    }

    fn check_address(&self, config: &Config) -> Result<(), ConfigError> {
        if self.tier_listen.is_empty() && !self.tier_advertise.is_empty() {
            return Err(conflict(
                "kv.tier_advertise",
                "is set, but kv.tier_listen is empty, so nothing listens there".to_owned(),
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
                "is set, but cluster.role is single: the only daemon of a store drops \
                 the copies that other nodes have in its tier"
                    .to_owned(),
                "set cluster.role to all or gateway on every node, and use one store for all",
            ));
        }
        if !self.has_tier() {
            return Err(conflict(
                "kv.host_bytes_max",
                "is 0, but kv.tier_listen or kv.nodes shares the tier with other nodes".to_owned(),
                "set the size of this node's tier",
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
                format!("is empty, but other nodes can't reach {address}"),
                "write the address at which other nodes reach this one",
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
                    format!("has `{host}` without a valid tier address"),
                    "write HOST=ADDRESS:PORT",
                ));
            }
        }
        Ok(())
    }

    /// This node's name in handles: the address of its tier, else host name and folder.
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

/// Whether the text is a host or an address with a port.
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
