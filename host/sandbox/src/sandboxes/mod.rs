//! All sandboxes of an agent.

mod budget;
mod forks;
mod of_images;
mod snapshots;
mod start;
mod sweep;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::agent::{Agent, Counters};
use crate::blocking::{blocking, whole};
use crate::copies::Copies;
use crate::error::SandboxError;
use crate::record::{OnExpiry, Record, SandboxSpec};
use crate::sandbox::{Sandbox, State, Status};
use crate::shares;
use crate::snapshot::Snapshot;
pub use forks::Forks;

/// Maximum size of all labels and variables of a sandbox.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Characters of a sandbox's name: lowercase letters and digits, valid in host names.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Number of characters of a sandbox's name after the first.
const NAME_CHARS: usize = 20;

/// All sandboxes of an agent; clones share them.
#[derive(Clone, Debug)]
pub struct Sandboxes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    agent: Arc<Agent>,
    all: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    snapshots: Mutex<BTreeMap<String, Snapshot>>,
    /// Whether the record of a sandbox could not be read, so the copies that it uses are unknown.
    has_unread: bool,
    /// Held while unused images and snapshots are searched.
    making_room: tokio::sync::Mutex<()>,
    /// Held while the tenants' shares of memory are applied.
    limiting: Arc<tokio::sync::Mutex<()>>,
    /// Default disk space for files.
    disk_part: OnceLock<u64>,
    /// Disk usage of copies.
    copies: Copies,
    /// Read-locked from copying a sandbox's files until the users of the copy are recorded.
    copying: tokio::sync::RwLock<()>,
    /// Locks the folder against other agents.
    _owned: File,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sandbox>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshots(&self) -> MutexGuard<'_, BTreeMap<String, Snapshot>> {
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sandboxes {
    /// Creates and records a sandbox of an image or a snapshot. It is prepared in the background;
    /// commands wait for that.
    ///
    /// # Errors
    /// An invalid specification, or the limit is reached.
    pub async fn create(&self, mut spec: SandboxSpec) -> Result<Arc<Sandbox>, SandboxError> {
        check(&spec)?;
        spec.ttl.get_or_insert(self.0.agent.config.ttl);
        if spec.on_expiry == OnExpiry::Pause {
            self.0.agent.platform.check_pauses()?;
        }
        let own = self.clone();
        whole(async move {
            let sandbox = {
                let _copying = own.0.copying.read().await;
                let layers = own.made_of(&mut spec)?;
                own.put(spec, layers).await?
            };
            tokio::spawn(sandbox.clone().prepare());
            Ok(sandbox)
        })
        .await
    }

    /// Records a sandbox without preparing it.
    pub(crate) async fn put(
        &self,
        spec: SandboxSpec,
        layers: Vec<String>,
    ) -> Result<Arc<Sandbox>, SandboxError> {
        let mark = &self.0.agent.config.mark;
        let named = name('s', mark).and_then(|id| Ok((id, name('s', mark)?)));
        let (id, secret) = named.map_err(|error| SandboxError::System("a name", error))?;
        let record = Record {
            id: id.clone(),
            secret,
            spec,
            layers,
            created_at_us: self.0.agent.clock.wall_us(),
            made_us: self.0.agent.clock.now_us(),
            life: None,
            expires_at_us: None,
        };
        let sandbox = Sandbox::new(&self.0.agent, record.clone(), State::Preparing);
        // A concurrent removal waits for the record, to remove that too.
        let changing = sandbox.changing.lock().await;
        {
            let mut all = self.0.lock();
            self.check_room(&all, &record.spec)?;
            all.insert(id.clone(), sandbox.clone());
        }
        let (folder, to_write) = (sandbox.folder.clone(), record.clone());
        let written = blocking(move || {
            fs::create_dir(&folder)?;
            to_write.write(&folder)
        });
        let written = written
            .await
            .map_err(|error| SandboxError::System("the sandbox's record", error));
        let claimed = match written {
            Ok(()) => sandbox.place.claim(&record).await,
            failed => failed,
        };
        if let Err(error) = claimed {
            self.0.lock().remove(&id);
            sandbox.state.send_replace(State::Removed);
            drop(changing);
            tokio::spawn(forks::take_away(sandbox));
            return Err(error);
        }
        drop(changing);
        Ok(sandbox)
    }

    /// Checks that a tenant may have another sandbox.
    fn check_room(
        &self,
        all: &BTreeMap<String, Arc<Sandbox>>,
        spec: &SandboxSpec,
    ) -> Result<(), SandboxError> {
        let (config, tenant) = (&self.0.agent.config, spec.tenant.as_str());
        let sandboxes_max = config.sandboxes_max;
        let most = config
            .shares
            .most(tenant, shares::Shared::Sandboxes, sandboxes_max as u64);
        let (mut has, mut bytes) = (0, 0);
        for own in all.values().filter(|own| own.tenant() == tenant) {
            has += 1;
            bytes += own.lock().disk_bytes;
        }
        let of_files = self.files_bytes_max();
        let bytes_max = config
            .shares
            .most(tenant, shares::Shared::FilesBytes, of_files);
        let beyond = |of, has, most| SandboxError::BeyondShare {
            tenant: tenant.to_owned(),
            of,
            has,
            most,
        };
        if has >= most {
            return Err(beyond(shares::Shared::Sandboxes, has, most));
        }
        let of_memory = shares::Shared::MemoryBytes;
        let memory_max = config
            .shares
            .most(tenant, of_memory, config.memory_bytes_all);
        if let Some(asked) = spec.memory_bytes.filter(|asked| *asked > memory_max) {
            return Err(beyond(of_memory, asked, memory_max));
        }
        if bytes >= bytes_max {
            return Err(beyond(shares::Shared::FilesBytes, bytes, bytes_max));
        }
        if all.len() >= sandboxes_max {
            return Err(SandboxError::Full(all.len()));
        }
        Ok(())
    }

    /// The sandbox with this name.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn get(&self, id: &str) -> Result<Arc<Sandbox>, SandboxError> {
        let found = self.0.lock().get(id).cloned();
        found.ok_or_else(|| SandboxError::Unknown(id.to_owned()))
    }

    /// The sandbox whose secret `is` accepts.
    pub fn with_secret(&self, is: impl Fn(&str) -> bool) -> Option<Arc<Sandbox>> {
        let all = self.0.lock();
        let mut all = all.values();
        all.find(|sandbox| is(&sandbox.lock().record.secret))
            .cloned()
    }

    /// All sandboxes, oldest first.
    pub fn list(&self) -> Vec<Status> {
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        let mut all: Vec<_> = all.iter().map(|sandbox| sandbox.status()).collect();
        all.sort_by(|a, b| (a.created_at_us, &a.id).cmp(&(b.created_at_us, &b.id)));
        all
    }

    /// Counters of requested sandboxes.
    pub fn counters(&self) -> Counters {
        self.0.agent.preparations.counted()
    }

    /// The limit on sandboxes.
    pub fn most(&self) -> usize {
        self.0.agent.config.sandboxes_max
    }

    /// Removes all sandboxes of an ended program.
    pub async fn remove_of(&self, tenant: &str, program: &str) {
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        for sandbox in all {
            let is_of = {
                let spec = &sandbox.lock().record.spec;
                spec.tenant == tenant && spec.program.as_deref() == Some(program)
            };
            if is_of {
                self.remove(&sandbox.id).await;
            }
        }
    }
}

fn check(spec: &SandboxSpec) -> Result<(), SandboxError> {
    let maps = [("metadata", &spec.labels), ("env", &spec.env)];
    for (field, map) in maps {
        let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > TEXT_BYTES_MAX {
            let problem = format!("has {bytes} bytes; send at most {TEXT_BYTES_MAX}");
            return Err(SandboxError::Value(field, problem));
        }
    }
    let wrong = |(name, value): (&String, &String)| {
        let is_name = !name.is_empty() && !name.contains(|c: char| c == '=' || c.is_control());
        !is_name || value.contains('\0')
    };
    if spec.env.iter().any(wrong) {
        let problem =
            "has a name that is empty or has `=`, a control character, or a NUL; correct it";
        return Err(SandboxError::Value("env", problem.to_owned()));
    }
    let acts = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let unfit =
        |(name, value): (&String, &String)| name.contains(char::is_control) || value.contains(acts);
    if spec.labels.iter().any(unfit) {
        let problem = "has a name or a value with a control character; remove it".to_owned();
        return Err(SandboxError::Value("metadata", problem));
    }
    if spec.memory_bytes.is_some_and(|bytes| bytes < 8 << 20) {
        let problem = "is too small to run anything; request 8 MiB or more".to_owned();
        return Err(SandboxError::Value("memory_bytes", problem));
    }
    Ok(())
}

/// An unguessable name with the agent's mark as suffix.
fn name(first: char, mark: &str) -> io::Result<String> {
    let own = random_name(NAME_CHARS - mark.len().min(NAME_CHARS))?;
    Ok(format!("{first}{own}{mark}"))
}

/// A random name of this length.
///
/// # Errors
/// If the machine provides no randomness.
pub fn random_name(characters: usize) -> io::Result<String> {
    let mut bytes = vec![0; characters];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let letters = bytes.iter().map(|byte| ALPHABET[usize::from(byte % 32)]);
    Ok(letters.map(char::from).collect())
}
