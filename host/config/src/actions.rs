//! `[actions]`: what treadle runs for programs, and with what.

use std::collections::BTreeMap;

use treadle_core::ActionsConfig;
use treadle_core::actions::{NODE_DEVICES, Resource, Supply};
use treadle_model::Span;
use treadle_model::tenant::DEFAULT_TENANT;

use super::section::section;
use super::{ConfigError, conflict};

/// The resource of processes that is counted in cores.
pub const CPU: &str = "cpu";
/// The one that is counted in mebibytes.
pub const MEMORY: &str = "memory";
/// The one that is made of devices.
pub const GPU: &str = "gpu";
/// The one of requests to servers that name no quota.
pub const REQUESTS: &str = "requests";
/// Names that quotas can't have.
const OWN: [&str; 4] = [CPU, MEMORY, GPU, REQUESTS];
/// Longest name of a quota, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Most GPUs of one daemon.
const GPUS_MAX: usize = 2_048;
/// Most of anything in a quota.
const COUNT_MAX: u64 = 1 << 40;

section! {
    /// Actions that treadle runs: tool calls and rewards, as processes of this machine or as requests to servers (docs/actions.md).
    ActionsSection in "actions" {
        /// Whether treadle runs actions. Their processes run as the daemon's user, with limits on time, cores and memory but without isolation: a job token can run whatever the daemon can. Therefore off by default.
        enabled: bool = false, "";
        /// Cores that actions share; 0 for all that the daemon may use.
        cores: u64 = 0, "cores", 0 ..= 65_536;
        /// Memory that actions share; 0 for three quarters of the machine's.
        memory_bytes: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// GPUs that actions and their services share, which no engine should use: numbers or ids as `nvidia-smi -L` has them, or `all`. NVML says whether they are there; without it they are taken as they are written. Empty for none.
        gpus: Vec<String> = Vec::new(), "";
        /// What may be asked of services that others own: `NAME concurrent=N requests=N period_s=N`, of which `concurrent` (at once) or `requests` in each `period_s` may be absent. Actions name it in `cost`, or in `run.http.quota`.
        quotas: Vec<String> = Vec::new(), "";
        /// What HTTP actions may reach: hosts (`api.example.com`, `*.internal`), addresses and networks (`10.0.0.0/8`), each with `:port` where only that one is meant, and for a tenant other than the default one with `TENANT=` before it. Empty for nothing.
        egress: Vec<String> = Vec::new(), "";
        /// Where the daemon notes which actions began, to know it after a crash. Beside the store if that is a file, else a folder for temporary files.
        folder: String = String::new(), "";
        /// Where actions run that name no folder; the folder for temporary files without it.
        workdir: String = String::new(), "";
        /// A cgroup (version 2) that is delegated to the daemon with the controllers `cpu`, `cpuset` and `memory`. Without one, cores are bound by affinity and memory is watched.
        cgroup: String = String::new(), "";
        /// Whether actions of programs whose KV memory others wait for go first, largest context first; then those predicted to generate most.
        joint_order: bool = true, "";
        /// Whether caches are kept, offloaded and restored by how long their programs' actions are expected to wait and run.
        joint_retention: bool = true, "";
        fixed {
            /// Bytes of an output that are kept, half from its beginning and half from its end.
            output_bytes_max: usize = 1 << 20, "bytes", 1 ..= 67_108_864;
            /// Requests to servers at once that name no quota.
            requests_max: u64 = 256, "requests", 1 ..= 65_536;
            /// What supervises processes; the daemon's own binary without it.
            supervisor: String = String::new(), "";
            /// Clients that wait for the end of an action at once.
            waiters_max: usize = 10_000, "clients", 1 ..= 1_000_000;
        }
    }
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

    /// What one of several shards has of a machine with so many cores and bytes, of these GPUs, and
    /// of the quotas. Of what does not suffice for all each has one core, one request and no GPU.
    ///
    /// # Errors
    /// A quota that can't be read, or that can't be dealt to so many.
    pub fn of_shard(
        &self,
        (at, shards): (usize, usize),
        (cores, bytes): (u64, u64),
        gpus: &[String],
    ) -> Result<Self, ConfigError> {
        let (at, of) = (at as u64, shards.max(1) as u64);
        let part = |all: u64| all / of + u64::from(at < all % of);
        let or = |configured: u64, found: u64| if configured > 0 { configured } else { found };
        let quotas = self.quotas()?.into_iter().map(|quota| {
            let text = dealt(&quota, part);
            text.ok_or_else(|| {
                let problem = format!(
                    "has `{}`, of which {of} shards can't each have a part",
                    quota.name
                );
                let remedy = "give it as many requests as there are shards, or use fewer shards";
                conflict("actions.quotas", problem, remedy)
            })
        });
        let range = |end: u64| usize::try_from(gpus.len() as u64 * end / of).unwrap_or(0);
        Ok(Self {
            cores: part(or(self.cores, cores)).max(1),
            memory_bytes: part(or(self.memory_bytes, bytes / 4 * 3)),
            gpus: gpus[range(at)..range(at + 1)].to_vec(),
            quotas: quotas.collect::<Result<_, _>>()?,
            requests_max: part(self.requests_max).max(1),
            ..self.clone()
        })
    }

    /// What actions draw from on a machine of so many cores, bytes and GPUs.
    ///
    /// # Errors
    /// A quota that can't be read.
    pub fn resources(
        &self,
        (cores, bytes): (u64, u64),
        gpus: usize,
    ) -> Result<Vec<Resource>, ConfigError> {
        let or = |configured: u64, found: u64| if configured > 0 { configured } else { found };
        let units = |name: &str, total: u64| Resource {
            name: name.into(),
            supply: Supply::Units { total },
        };
        let memory = or(self.memory_bytes, bytes / 4 * 3) >> 20;
        let mut resources = vec![
            units(CPU, or(self.cores, cores)),
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
            let quota = quota(text);
            let quota = quota.map_err(|problem| wrong(format!("has `{text}`, {problem}")))?;
            if quotas.iter().any(|known| known.name == quota.name) {
                return Err(wrong(format!("has `{}` twice", quota.name)));
            }
            quotas.push(quota);
        }
        Ok(quotas)
    }

    /// What each tenant's requests may reach.
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

/// A part of a quota, as it is configured.
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
        return Err("which has no name, or too long a one".to_owned());
    }
    if OWN.contains(&name) {
        return Err(format!("whose name is that of the resource `{name}`"));
    }
    let (mut concurrent_max, mut requests_max, mut period_s) = (None, None, None);
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or(format!("where `{word}` has no value"))?;
        let slot = match key {
            "concurrent" => &mut concurrent_max,
            "requests" => &mut requests_max,
            "period_s" => &mut period_s,
            _ => return Err(format!("where `{key}` is not known")),
        };
        let count = value
            .parse()
            .ok()
            .filter(|count| (1..=COUNT_MAX).contains(count));
        *slot = Some(count.ok_or(format!("where `{key}` is `{value}`"))?);
    }
    if requests_max.is_some() != period_s.is_some() {
        return Err("where `requests` and `period_s` go together".to_owned());
    }
    if concurrent_max.is_none() && requests_max.is_none() {
        return Err("which bounds nothing".to_owned());
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
        let resources = ActionsSection::default().resources((8, 4 << 30), 0);
        let resources = resources.expect("they are read");
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
        let resources = ActionsSection::default().resources((8, 1 << 30), 10);
        let resources = resources.expect("they are read");
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
        let part = |at, of| all.of_shard((at, of), (5, 8 << 30), &gpus);
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
    fn quotas_are_read_and_refusals_name_what_is_wrong() {
        let text = "search concurrent=8 requests=100 period_s=60";
        let quotas = section(&[text]).quotas().expect("it is read");
        let expected = Supply::Quota {
            concurrent_max: Some(8),
            requests_max: Some(100),
            period: Span::from_secs(60),
        };
        assert_eq!(quotas[0].supply, expected);
        for (quotas, told) in [
            (&["a"][..], "bounds nothing"),
            (&["cpu concurrent=1"], "the resource `cpu`"),
            (&["concurrent=1"], "has no name"),
            (&["a requests=5"], "go together"),
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
