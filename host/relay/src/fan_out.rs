//! One call of a trainer to all engines of its job: all at once, and all answers are awaited
//! before any counts as failed. An update goes on with the engines that stand it.

use crate::answers::Reply;
use crate::calls::{Engine, Run, stopped};
use crate::paths::Does;
use crate::relayed::Relayed;
use axum::http::StatusCode;
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::weights::State;
use treadle_model::{WorkerId, endpoint_of};
use treadle_wire::ErrorCode;

/// What engines answered.
type Replies = Vec<(WorkerId, Reply)>;

/// The engines of a job, and those that its update left behind.
struct Engines {
    called: Vec<Engine>,
    behind: Vec<(WorkerId, String)>,
}

impl Run {
    pub(crate) async fn call_all(&self, relayed: &Relayed) -> Reply {
        let called = self.try_all(relayed).await;
        called.unwrap_or_else(|refusal| refusal)
    }

    async fn try_all(&self, relayed: &Relayed) -> Result<Reply, Reply> {
        let Engines { called, behind } = self.engines(relayed.does).await?;
        let calls = self.split(relayed, &called).await?;
        let replies = called.iter().zip(&calls).map(async |(engine, call)| {
            (
                engine.worker,
                self.call_one(engine.worker, call, true).await,
            )
        });
        let replies = join_all(replies).await;
        Ok(match relayed.does {
            Does::Nothing | Does::Joins | Does::Memory | Does::Checks | Does::Asks => {
                all_of(relayed.path, replies)
            }
            _ => any_of(replies, behind),
        })
    }

    /// The engines to call, each by its first rank. Calls of an update leave out those that it left
    /// behind, until the trainer pauses them again.
    async fn engines(&self, does: Does) -> Result<Engines, Reply> {
        let workers = self.driver.workers().await;
        let workers = workers.map_err(|_| Reply::error(&stopped()))?;
        let mut firsts = BTreeMap::new();
        for worker in workers.iter().filter(|worker| !worker.leaving) {
            let url = endpoint_of(&worker.url).0.to_owned();
            firsts.entry(url.clone()).or_insert(Engine {
                worker: worker.id,
                url,
                kind: worker.engine,
            });
        }
        let mut called: Vec<Engine> = firsts.into_values().collect();
        called.sort_by_key(|engine| engine.worker);
        let job = self.job.clone();
        let here: BTreeSet<WorkerId> = called.iter().map(|engine| engine.worker).collect();
        let read = move |state: &State| {
            let known = state.jobs.get(&job);
            let takes_all = known.is_none_or(|known| known.all);
            let is_own = |worker: &WorkerId| match state.owner(*worker) {
                Some(owner) => *owner == *job,
                None => takes_all,
            };
            let own: BTreeSet<WorkerId> = here.into_iter().filter(is_own).collect();
            let update = known.and_then(|known| known.update.as_ref());
            (own, update.map(|update| update.behind.clone()))
        };
        let (own, behind) = self.read(read).await?;
        called.retain(|engine| own.contains(&engine.worker));
        if called.is_empty() {
            let message = "no engine is registered that the job could use; register one";
            return Err(Reply::refused(ErrorCode::WorkerUnknown, message));
        }
        let goes_on = !matches!(
            does,
            Does::Nothing | Does::Joins | Does::Memory | Does::Checks | Does::Asks | Does::Pauses
        );
        let behind = behind.filter(|_| goes_on).unwrap_or_default();
        called.retain(|engine| !behind.contains_key(&engine.worker));
        let behind = behind
            .into_iter()
            .map(|(worker, cause)| (worker, cause.into()));
        Ok(Engines {
            called,
            behind: behind.collect(),
        })
    }
}

/// The answer of all: the first failure if there is one.
fn all_of(path: &str, replies: Replies) -> Reply {
    let failed = replies.iter().find(|(_, reply)| !reply.is_success());
    if let Some((worker, reply)) = failed {
        let mut reply = reply.clone();
        if let Value::Object(mut page) = reply.page() {
            page.insert("worker".into(), worker.0.into());
            reply.body = Value::Object(page).to_string().into();
        }
        return reply;
    }
    let pages = || replies.iter().map(|(_, reply)| reply.page());
    let page = match path {
        "/get_world_size" => {
            let sizes = pages().filter_map(|page| page["world_size"].as_u64());
            json!({"world_size": sizes.sum::<u64>()})
        }
        "/is_paused" => json!({"is_paused": pages().all(|page| page["is_paused"] == true)}),
        _ => {
            let first = replies.into_iter().next();
            return first.map_or_else(nothing_left, |(_, reply)| reply);
        }
    };
    Reply::json(StatusCode::OK, &page)
}

/// The answer of an update: a success if one engine goes on with it, and it names the others.
fn any_of(replies: Replies, mut behind: Vec<(WorkerId, String)>) -> Reply {
    let (well, failed): (Replies, Replies) = replies
        .into_iter()
        .partition(|(_, reply)| reply.is_success());
    behind.extend(
        failed
            .iter()
            .map(|(worker, reply)| (*worker, reply.words())),
    );
    let first = well.into_iter().chain(failed).next();
    let reply = first.map_or_else(nothing_left, |(_, reply)| reply);
    reply.naming(&behind)
}

fn nothing_left() -> Reply {
    let message = "the update left all engines of the job behind; pause them, and update them as \
                   a whole";
    Reply::refused(ErrorCode::WeightsConflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(worker: u32, status: u16, page: &Value) -> (WorkerId, Reply) {
        let status = StatusCode::from_u16(status).expect("a status");
        (WorkerId(worker), Reply::json(status, page))
    }

    #[test]
    fn an_update_succeeds_if_one_engine_goes_on() {
        let replies = vec![
            said(0, 500, &json!({"detail": "out of memory"})),
            said(1, 200, &json!({"message": "Weights updated"})),
        ];
        let reply = any_of(replies, vec![(WorkerId(2), "torn before".to_owned())]);
        let page = reply.page();
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(page["message"], "Weights updated");
        let behind = page["treadle"]["behind"].as_array().expect("a list");
        assert_eq!((behind.len(), &behind[0]["worker"]), (2, &json!(2)));
        assert_eq!(
            behind[1]["cause"],
            "500 Internal Server Error: out of memory"
        );
        let none = any_of(vec![said(0, 500, &json!({"detail": "no"}))], Vec::new());
        assert_eq!(none.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(any_of(Vec::new(), Vec::new()).status, StatusCode::CONFLICT);
    }

    #[test]
    fn what_changes_no_weights_succeeds_if_all_do() {
        let sizes = || {
            vec![
                said(0, 200, &json!({"world_size": 2})),
                said(1, 200, &json!({"world_size": 4})),
            ]
        };
        let all = all_of("/get_world_size", sizes());
        assert_eq!(all.page(), json!({"world_size": 6}));
        let first = all_of("/version", sizes());
        assert_eq!(first.page(), json!({"world_size": 2}));
        let mut failed = sizes();
        failed.push(said(2, 500, &json!({"detail": "no"})));
        let failed = all_of("/version", failed);
        assert_eq!(
            (failed.status.as_u16(), &failed.page()["worker"]),
            (500, &json!(2))
        );
    }
}
