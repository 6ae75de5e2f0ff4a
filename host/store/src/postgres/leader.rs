//! Leadership: the leader's connection holds the advisory lock of the schema.
//!
//! The lock ends with its connection, so a leader that dies is replaced at once. A frozen leader
//! keeps its connection, but sends no heartbeats, and the next candidate ends it. A leader whose
//! connection broke takes the lock again and continues if no other took over.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;

use super::connect::Target;
use super::failure::severed;
use crate::leadership::{LEASE, SIGN_INTERVAL, Term};
use crate::{Candidate, StoreError};

/// Timeout of a heartbeat.
const SIGN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two attempts to get the lock back.
const REGAIN_PAUSE: Duration = Duration::from_millis(100);
/// Time after the server's start in which only the previous leader may take the lead.
const GRACE: Duration = Duration::from_secs(2);
/// Attempts to take the lock of a terminated leader, and the pause between them.
const OUST_ATTEMPTS: u32 = 20;
const OUST_PAUSE: Duration = Duration::from_millis(50);

const TAKE: &str = "SELECT pg_try_advisory_lock($1) AS taken";

const LET_GO: &str = "SELECT pg_advisory_unlock($1)";

/// The holder of the lock (`holder`), and the table's entry for the leader.
const STATE: &str = "SELECT l.epoch, l.name <> '' AS reigns, l.backend_pid, \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - s.seen_us AS silent_us, \
     (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000)::bigint \
         AS server_age_us, \
     (SELECT k.pid::bigint FROM pg_locks k WHERE k.locktype = 'advisory' AND k.granted \
      AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
      AND ((k.classid::bigint << 32) | k.objid::bigint) = $1 AND k.objsubid = 1 LIMIT 1) AS holder \
     FROM leader l JOIN leader_seen s ON s.id = l.id";

const BEGIN_TERM: &str = "UPDATE leader SET epoch = epoch + 1, name = $1, url = $2, since_us = \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
     backend_pid = pg_backend_pid() RETURNING epoch";

/// Ends idle transactions of stopped processes and unreachable hosts: they hold the row that a new
/// leader changes.
const CLEAR: &str = "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a \
     WHERE a.state LIKE 'idle in transaction%' AND a.pid <> pg_backend_pid() \
     AND clock_timestamp() - a.state_change > interval '1 second' \
     AND EXISTS (SELECT 1 FROM pg_locks k WHERE k.pid = a.pid AND k.locktype = 'relation' \
         AND k.relation = to_regclass('leader') \
         AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

const RETURN: &str = "UPDATE leader SET backend_pid = pg_backend_pid() WHERE epoch = $1";

const LEAVE: &str = "UPDATE leader SET name = '', url = '' WHERE epoch = $1";

const SIGN: &str = "UPDATE leader_seen SET seen_us = \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint \
     RETURNING (SELECT epoch FROM leader) AS epoch";

/// The clock that heartbeats are recorded by.
pub(super) const CLOCK: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us";

/// The leader lock of a schema.
#[derive(Debug)]
pub(super) struct LeaderLock {
    target: Arc<Target>,
    key: i64,
    lease_task: Mutex<Option<LeaseTask>>,
}

/// The task that keeps the lock. It ends with this.
#[derive(Debug)]
struct LeaseTask {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Option<PgConnection>>,
}

/// Why a candidate can't take the lead.
#[derive(Debug)]
struct State {
    epoch: u64,
    is_led: bool,
    backend_pid: i64,
    silent_us: i64,
    server_age_us: i64,
    holder: Option<i64>,
}

impl LeaderLock {
    /// The leader lock of a schema.
    pub(super) fn of(target: &Arc<Target>) -> Self {
        Self {
            key: key(&target.schema),
            target: Arc::clone(target),
            lease_task: Mutex::default(),
        }
    }

    /// Takes the lock if it is free or its holder has been silent too long.
    pub(super) async fn campaign(
        &self,
        candidate: &Candidate,
        term: &Term,
    ) -> Result<Option<u64>, StoreError> {
        let mut lease_task = self.lease_task.lock().await;
        if let Some(epoch) = term.leading() {
            return Ok(Some(epoch));
        }
        *lease_task = None;
        let mut connection = self.target.connect_to_lead().await?;
        let call = self.seize(&mut connection, candidate);
        let Some(epoch) = self.target.call("a campaign", call).await? else {
            let _ = connection.close().await;
            return Ok(None);
        };
        term.begin(epoch);
        let (stop, stopped) = oneshot::channel();
        let keeper = Keeper {
            target: Arc::clone(&self.target),
            key: self.key,
            epoch,
            term: term.clone(),
        };
        let task = tokio::spawn(keeper.keep(connection, stopped));
        *lease_task = Some(LeaseTask { stop, task });
        Ok(Some(epoch))
    }

    async fn seize(
        &self,
        connection: &mut PgConnection,
        candidate: &Candidate,
    ) -> Result<Option<u64>, sqlx::Error> {
        for _ in 0..OUST_ATTEMPTS {
            let state = state(connection, self.key).await?;
            if state.holder.is_none() && state.may_return() {
                return Ok(None);
            }
            if let Some(epoch) = self.take(connection, candidate).await? {
                return Ok(Some(epoch));
            }
            // Only the leader in the table is terminated, and only while it is silent: one that has
            // just won has sent a heartbeat, or is not in the table yet.
            let silent = state.silent_us > LEASE.as_micros() as i64;
            if !(silent && state.holder == Some(state.backend_pid)) {
                return Ok(None);
            }
            terminate(connection, self.key, state.backend_pid).await?;
            tokio::time::sleep(OUST_PAUSE).await;
        }
        Ok(None)
    }

    /// Takes the lock and enters the new epoch, in one transaction: if this process stops between
    /// the two, the server ends the transaction and the lock with it.
    async fn take(
        &self,
        connection: &mut PgConnection,
        candidate: &Candidate,
    ) -> Result<Option<u64>, sqlx::Error> {
        let mut transaction = connection.begin().await?;
        if !lock(&mut transaction, self.key).await? {
            return Ok(None);
        }
        sqlx::query(CLEAR).execute(&mut *transaction).await?;
        let epoch: i64 = sqlx::query_scalar(BEGIN_TERM)
            .bind(&candidate.name)
            .bind(&candidate.url)
            .fetch_one(&mut *transaction)
            .await?;
        sqlx::query(SIGN).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(u64::try_from(epoch).ok())
    }

    /// Releases the lock.
    pub(super) async fn resign(&self, term: &Term) -> Result<(), StoreError> {
        let lease_task = self.lease_task.lock().await.take();
        let Some(epoch) = term.leading() else {
            return Ok(());
        };
        term.end();
        let Some(LeaseTask { stop, task }) = lease_task else {
            return Ok(());
        };
        let _ = stop.send(());
        if let Ok(Some(connection)) = task.await {
            let left = self.leave(connection, epoch);
            if self.target.call("a resignation", left).await.is_ok() {
                return Ok(());
            }
        }
        // The leader's connection is lost, but the table still names the leader: another connection
        // removes it, unless a later epoch has begun.
        let connection = self.target.connect_to_lead().await?;
        let left = self.leave(connection, epoch);
        self.target.call("a resignation", left).await
    }

    async fn leave(&self, mut connection: PgConnection, epoch: u64) -> Result<(), sqlx::Error> {
        sqlx::query(LEAVE)
            .bind(signed(epoch))
            .execute(&mut connection)
            .await?;
        sqlx::query(LET_GO)
            .bind(self.key)
            .execute(&mut connection)
            .await?;
        connection.close().await
    }
}

impl Drop for LeaderLock {
    fn drop(&mut self) {
        if let Some(lease_task) = self.lease_task.get_mut() {
            lease_task.task.abort();
        }
    }
}

impl State {
    /// Whether the previous leader may still return, because the server has just started.
    fn may_return(&self) -> bool {
        self.is_led
            && self.server_age_us < GRACE.as_micros() as i64
            && self.silent_us > self.server_age_us
    }
}

/// Keeps the lock of one epoch.
struct Keeper {
    target: Arc<Target>,
    key: i64,
    epoch: u64,
    term: Term,
}

impl Keeper {
    /// Sends heartbeats until it is stopped or superseded; returns the connection if it was
    /// stopped.
    async fn keep(
        self,
        mut connection: PgConnection,
        mut stopped: oneshot::Receiver<()>,
    ) -> Option<PgConnection> {
        loop {
            tokio::select! {
                _ = &mut stopped => return Some(connection),
                () = tokio::time::sleep(SIGN_INTERVAL) => {}
            }
            if self.term.leading() != Some(self.epoch) {
                return None;
            }
            match tokio::time::timeout(SIGN_TIMEOUT, sign(&mut connection)).await {
                Ok(Ok(epoch)) if epoch == signed(self.epoch) => {}
                Ok(Ok(_)) => {
                    self.term.supersede();
                    return None;
                }
                // A full disk silences a leader, but does not end it.
                Ok(Err(error)) if !severed(&error) => {}
                Ok(Err(_)) | Err(_) => {
                    drop(connection);
                    tokio::select! {
                        _ = &mut stopped => return None,
                        regained = self.regain() => connection = regained?,
                    }
                }
            }
        }
    }

    /// Gets the lock back; `None` if another one leads.
    async fn regain(&self) -> Option<PgConnection> {
        loop {
            if self.term.leading() != Some(self.epoch) {
                return None;
            }
            if let Ok(mut connection) = self.target.connect_to_lead().await {
                match tokio::time::timeout(SIGN_TIMEOUT, self.retake(&mut connection)).await {
                    Ok(Ok(Some(true))) => return Some(connection),
                    Ok(Ok(Some(false))) => {
                        self.term.supersede();
                        return None;
                    }
                    Ok(Ok(None) | Err(_)) | Err(_) => {}
                }
            }
            tokio::time::sleep(REGAIN_PAUSE).await;
        }
    }

    /// Whether the lock is held again; `None` if that is undecided yet.
    async fn retake(&self, connection: &mut PgConnection) -> Result<Option<bool>, sqlx::Error> {
        let state = state(connection, self.key).await?;
        if state.epoch != self.epoch {
            return Ok(Some(false));
        }
        let mut transaction = connection.begin().await?;
        if !lock(&mut transaction, self.key).await? {
            drop(transaction);
            // The server may not have noticed yet that this leader's old connection is gone.
            terminate(connection, self.key, state.backend_pid).await?;
            return Ok(None);
        }
        let ours = sqlx::query(RETURN)
            .bind(signed(self.epoch))
            .execute(&mut *transaction)
            .await?;
        sqlx::query(SIGN).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Some(ours.rows_affected() == 1))
    }
}

async fn lock(connection: &mut PgConnection, key: i64) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(TAKE)
        .bind(key)
        .fetch_one(connection)
        .await
}

async fn sign(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(SIGN).fetch_one(connection).await
}

async fn state(connection: &mut PgConnection, key: i64) -> Result<State, sqlx::Error> {
    let row: PgRow = sqlx::query(STATE).bind(key).fetch_one(connection).await?;
    Ok(State {
        epoch: u64::try_from(row.try_get::<i64, _>("epoch")?).unwrap_or(0),
        is_led: row.try_get("reigns")?,
        backend_pid: row.try_get("backend_pid")?,
        silent_us: row.try_get("silent_us")?,
        server_age_us: row.try_get("server_age_us")?,
        holder: row.try_get("holder")?,
    })
}

/// Terminates the connection that holds the lock, if its process id is `pid`.
async fn terminate(connection: &mut PgConnection, key: i64, pid: i64) -> Result<(), sqlx::Error> {
    let sql = "SELECT pg_terminate_backend(k.pid) FROM pg_locks k \
         WHERE k.locktype = 'advisory' AND k.granted AND k.objsubid = 1 AND k.pid::bigint = $2 \
         AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND ((k.classid::bigint << 32) | k.objid::bigint) = $1";
    sqlx::query(sql)
        .bind(key)
        .bind(pid)
        .execute(connection)
        .await?;
    Ok(())
}

fn signed(epoch: u64) -> i64 {
    crate::sql::signed(epoch)
}

/// The key of a schema's lock: FNV-1a, which is stable across versions.
fn key(schema: &str) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in "treadle leader ".bytes().chain(schema.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash.cast_signed()
}
