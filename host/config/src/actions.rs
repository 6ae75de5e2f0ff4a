//! `[actions]`: the actions that treadle runs for programs, and the resources they use.

use std::collections::BTreeMap;

use treadle_core::ActionsConfig;
use treadle_core::actions::{NODE_DEVICES, Resource, Supply};
use treadle_model::Span;
use treadle_model::tenant::DEFAULT_TENANT;

use super::section::section;
use super::{ConfigError, conflict};

/// Name of the resource that is counted in cores.
pub const CPU: &str = "cpu";
/// Name of the resource that is counted in mebibytes.
pub const MEMORY: &str = "memory";
/// Name of the resource that consists of GPU devices.
pub const GPU: &str = "gpu";
/// Name of the resource for requests to servers that name no quota.
pub const REQUESTS: &str = "requests";
/// Reserved names: quotas can't have them.
const OWN: [&str; 4] = [CPU, MEMORY, GPU, REQUESTS];
/// Longest name of a quota, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Most GPUs of one daemon.
const GPUS_MAX: usize = 2_048;
/// Largest number in a quota.
const COUNT_MAX: u64 = 1 << 40;

section! {
    /// Actions that treadle runs: tool calls and rewards, as processes of this machine or as requests to servers (docs/actions.md).
    ActionsSection in "actions" {
        /// Whether treadle runs actions. Their processes run as the daemon's user, with limits on time, cores and memory but without isolation: the holder of a job token can run anything that the daemon can. Therefore off by default.
        enabled: bool = false, "";
        /// Cores that actions share; 0 for all cores available to the daemon.
        cores: u64 = 0, "cores", 0 ..= 65_536;
        /// Memory that actions share, and the most that all sandboxes of this machine have together; 0 for three quarters of the machine's.
        memory_bytes: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// GPUs that actions and their services share and no engine uses: numbers or ids as printed by `nvidia-smi -L`, or `all`. They are checked with NVML if it is available. Empty for none.
        gpus: Vec<String> = Vec::new(), "";
        /// Limits on the use of external services: `NAME concurrent=N requests=N period_s=N`, with `concurrent` (requests at once), `requests` per `period_s`, or both. Actions refer to a quota by its name in `cost` or in `run.http.quota`.
        quotas: Vec<String> = Vec::new(), "";
        /// Destinations that HTTP actions may reach: hosts (`api.example.com`, `*.internal`), addresses and networks (`10.0.0.0/8`), optionally with `:port`. An entry applies to the tenant `default`; prefix it with `TENANT=` for another tenant. Empty for none.
        egress: Vec<String> = Vec::new(), "";
        /// Folder in which the daemon records the actions it has started, to find them after a crash. If empty, a folder next to the store's file, or a temporary folder if the store is not a file.
        folder: String = String::new(), "";
        /// Working folder of actions that name none; the system's temporary folder if empty.
        workdir: String = String::new(), "";
        /// A cgroup (version 2) delegated to the daemon with the controllers `cpu`, `cpuset` and `memory`. Without one, cores are limited by CPU affinity, and memory use is polled.
        cgroup: String = String::new(), "";
        /// Whether actions of programs that hold KV memory others wait for run first, largest context first; then those of programs predicted to generate most.
        joint_order: bool = true, "";
        /// Whether decisions to keep, offload and restore caches use the expected waiting and running time of the programs' actions.
        joint_retention: bool = true, "";
        fixed {
            /// Bytes kept of an output: half from its beginning and half from its end.
            output_bytes_max: usize = 1 << 20, "bytes", 1 ..= 67_108_864;
            /// Concurrent requests to servers that name no quota.
            requests_max: u64 = 256, "requests", 1 ..= 65_536;
            /// Program that supervises processes; the daemon's own binary if empty.
            supervisor: String = String::new(), "";
            /// Clients that may wait for the end of an action at the same time.
            waiters_max: usize = 10_000, "clients", 1 ..= 1_000_000;
        }
    }
}

/// Cores and memory of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its cores.
    pub cores: u64,
    /// Its memory.
    pub memory_bytes: u64,
}

impl ActionsSection {
    pub(super) fn core(&self) -> ActionsConfig {
        ActionsConfig {
            joint_order: self.joint_order,
            joint_retention: self.joint_retention,
            ..ActionsConfig::default()
        }
    }

    /// Rules across several values.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.quotas()?;
        if self.gpus.len() > GPUS_MAX {
            let problem = format!("has {} GPUs", self.gpus.len());
            let remedy = format!("name at most {GPUS_MAX}");
            return Err(conflict("actions.gpus", problem, &remedy));
        }
        Ok(())
    }

    /// The part of the machine's cores, memory, GPUs and quotas that a shard gets: `at` is its place
    /// among `shards`.
    /// Each shard gets at least one core and one request at a time, but possibly no GPU.
    ///
    /// # Errors
    /// A quota that can't be parsed, or is too small to split among the shards.
    pub fn of_shard(
        &self,
        at: usize,
        shards: usize,
        machine: Machine,
        gpus: &[String],
    ) -> Result<Self, ConfigError> {
        let (at, of) = (at as u64, shards.max(1) as u64);
        let part = |all: u64| all / of + u64::from(at < all % of);
        let or = |configured: u64, found: u64| if configured > 0 { configured } else { found };
        let quotas = self.quotas()?.into_iter().map(|quota| {
            let text = dealt(&quota, part);
            text.ok_or_else(|| {
                let problem = format!(
                    "has `{}`, which is too small to split among {of} shards",
                    quota.name
                );
                let remedy = "allow at least one request per shard, or use fewer shards";
                conflict("actions.quotas", problem, remedy)
            })
        });
        let range = |end: u64| usize::try_from(gpus.len() as u64 * end / of).unwrap_or(0);
        Ok(Self {
            cores: part(or(self.cores, machine.cores)).max(1),
            memory_bytes: part(or(self.memory_bytes, machine.memory_bytes / 4 * 3)),
            gpus: gpus[range(at)..range(at + 1)].to_vec(),
            quotas: quotas.collect::<Result<_, _>>()?,
            requests_max: part(self.requests_max).max(1),
            ..self.clone()
        })
    }

    /// The resources that actions share on a machine with these cores, bytes of memory and GPUs.
    ///
    /// # Errors
    /// A quota that can't be parsed.
    pub fn resources(&self, machine: Machine, gpus: usize) -> Result<Vec<Resource>, ConfigError> {
        let or = |configured: u64, found: u64| if configured > 0 { configured } else { found };
        let units = |name: &str, total: u64| Resource {
            name: name.into(),
            supply: Supply::Units { total },
        };
        let memory = or(self.memory_bytes, machine.memory_bytes / 4 * 3) >> 20;
        let mut resources = vec![
            units(CPU, or(self.cores, machine.cores)),
            units(MEMORY, memory),
            units(REQUESTS, self.requests_max),
        ];
        if gpus > 0 {
            let of_node = NODE_DEVICES as usize;
            let mut nodes = vec![NODE_DEVICES; gpus / of_node];
            nodes.extend(u32::try_from(gpus % of_node).ok().filter(|rest| *rest > 0));
            resources.push(Resource {
                name: GPU.into(),
                supply: Supply::Devices { nodes },
            });
        }
        resources.extend(self.quotas()?);
        Ok(resources)
    }

    fn quotas(&self) -> Result<Vec<Resource>, ConfigError> {
        let mut quotas: Vec<Resource> = Vec::new();
        for text in &self.quotas {
            let quota = quota(text).map_err(|problem| wrong(format!("has `{text}`, {problem}")))?;
            if quotas.iter().any(|known| known.name == quota.name) {
                return Err(wrong(format!("has `{}` twice", quota.name)));
            }
            quotas.push(quota);
        }
        Ok(quotas)
    }

    /// The destinations that HTTP actions of each tenant may reach.
    pub fn egress(&self) -> BTreeMap<String, Vec<String>> {
        let mut reached = BTreeMap::<String, Vec<String>>::new();
        for entry in &self.egress {
            let (tenant, target) = entry.split_once('=').unwrap_or((DEFAULT_TENANT, entry));
            let list = reached.entry(tenant.trim().to_owned()).or_default();
            list.push(target.trim().to_owned());
        }
        reached
    }
}

/// The text of a quota with each of its limits reduced to a shard's part; `None` if one would be 0.
fn dealt(quota: &Resource, part: impl Fn(u64) -> u64) -> Option<String> {
    let Supply::Quota {
        concurrent_max,
        requests_max,
        period,
    } = &quota.supply
    else {
        return None;
    };
    let mut words = vec![quota.name.to_string()];
    for (key, most) in [("concurrent", concurrent_max), ("requests", requests_max)] {
        if let Some(most) = most {
            let part = Some(part(*most)).filter(|part| *part > 0)?;
            words.push(format!("{key}={part}"));
        }
    }
    if requests_max.is_some() {
        words.push(format!("period_s={}", period.micros() / 1_000_000));
    }
    Some(words.join(" "))
}

fn wrong(problem: String) -> ConfigError {
    let remedy = "write `NAME concurrent=N requests=N period_s=N`, such as `search requests=100 period_s=60`";
    conflict("actions.quotas", problem, remedy)
}

fn quota(text: &str) -> Result<Resource, String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("which is empty")?;
    if name.contains('=') || name.len() > NAME_BYTES_MAX {
        return Err("whose name is missing or too long".to_owned());
    }
    if OWN.contains(&name) {
        return Err(format!("whose name is reserved for the resource `{name}`"));
    }
    let (mut concurrent_max, mut requests_max, mut period_s) = (None, None, None);
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or(format!("in which `{word}` has no value"))?;
        let slot = match key {
            "concurrent" => &mut concurrent_max,
            "requests" => &mut requests_max,
            "period_s" => &mut period_s,
            _ => return Err(format!("in which `{key}` is not known")),
        };
        let count = value
            .parse()
            .ok()
            .filter(|count| (1..=COUNT_MAX).contains(count));
        *slot = Some(count.ok_or(format!("in which `{key}` is `{value}`"))?);
    }
    if requests_max.is_some() != period_s.is_some() {
        return Err("in which `requests` and `period_s` must be given together".to_owned());
    }
    if concurrent_max.is_none() && requests_max.is_none() {
        return Err("which has no limit".to_owned());
    }
    Ok(Resource {
        name: name.into(),
        supply: Supply::Quota {
            concurrent_max,
            requests_max,
            period: Span::from_secs(period_s.unwrap_or(0)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(quotas: &[&str]) -> ActionsSection {
        ActionsSection {
            quotas: quotas.iter().map(|&text| text.to_owned()).collect(),
            ..ActionsSection::default()
        }
    }

    #[test]
    fn what_is_not_configured_is_the_machines() {
        let machine = |memory_bytes| Machine {
            cores: 8,
            memory_bytes,
        };
        let resources = ActionsSection::default()
            .resources(machine(4 << 30), 0)
            .expect("they are read");
        let totals: Vec<_> = resources
            .iter()
            .map(|resource| (&*resource.name, resource.supply.clone()))
            .collect();
        let units = |total| Supply::Units { total };
        assert_eq!(
            totals,
            [
                (CPU, units(8)),
                (MEMORY, units(3_072)),
                (REQUESTS, units(256))
            ]
        );
        let resources = ActionsSection::default()
            .resources(machine(1 << 30), 10)
            .expect("they are read");
        let nodes = vec![8, 2];
        assert_eq!(resources[3].supply, Supply::Devices { nodes });
    }

    #[test]
    fn shards_share_what_there_is() {
        let quotas = [
            "search concurrent=5 requests=100 period_s=60",
            "api concurrent=2",
        ];
        let all = section(&quotas);
        let gpus = ["0", "1", "2", "3", "4"].map(str::to_owned);
        let machine = Machine {
            cores: 5,
            memory_bytes: 8 << 30,
        };
        let part = |at, of| all.of_shard(at, of, machine, &gpus);
        let parts = [0, 1].map(|at| part(at, 2).expect("it is dealt"));
        assert_eq!(parts.each_ref().map(|part| part.cores), [3, 2]);
        assert_eq!(parts.each_ref().map(|part| part.memory_bytes), [3 << 30; 2]);
        let named = parts.each_ref().map(|part| part.gpus.join(","));
        assert_eq!(named, ["0,1", "2,3,4"]);
        assert_eq!(
            parts[0].quotas[0],
            "search concurrent=3 requests=50 period_s=60"
        );
        assert_eq!(
            parts[1].quotas[0],
            "search concurrent=2 requests=50 period_s=60"
        );
        let error = part(2, 3).expect_err("2 are not enough for 3").to_string();
        assert!(error.contains("`api`"), "{error}");
    }

    #[test]
    fn quotas_are_parsed_and_errors_name_the_problem() {
        let text = "search concurrent=8 requests=100 period_s=60";
        let quotas = section(&[text]).quotas().expect("it is read");
        let expected = Supply::Quota {
            concurrent_max: Some(8),
            requests_max: Some(100),
            period: Span::from_secs(60),
        };
        assert_eq!(quotas[0].supply, expected);
        for (quotas, told) in [
            (&["a"][..], "has no limit"),
            (&["cpu concurrent=1"], "the resource `cpu`"),
            (&["concurrent=1"], "name is missing"),
            (&["a requests=5"], "given together"),
            (&["a concurrent=0"], "`concurrent` is `0`"),
            (&["a speed=1"], "`speed` is not known"),
            (&["a fast"], "`fast` has no value"),
            (&["a concurrent=1", "a concurrent=2"], "`a` twice"),
        ] {
            let error = section(quotas).quotas().expect_err(told).to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn tenants_reach_what_is_theirs() {
        let section = ActionsSection {
            egress: vec!["api:443".to_owned(), "acme=*.internal".to_owned()],
            ..ActionsSection::default()
        };
        let egress = section.egress();
        assert_eq!(egress[DEFAULT_TENANT], ["api:443"]);
        assert_eq!(egress["acme"], ["*.internal"]);
    }
}
