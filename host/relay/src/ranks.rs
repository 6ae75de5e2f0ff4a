//! Numbers of the engines' ranks in a process group with the trainer. A wrong one makes all sides
//! wait for ever, so that their sum is checked before any engine joins.

use crate::answers::Reply;
use crate::calls::{Engine, Run};
use crate::paths::Does;
use crate::relayed::Relayed;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use treadle_model::EngineKind;
use treadle_wire::ErrorCode;

/// What may come through a process group.
const THROUGH_GROUP: [&str; 2] = ["/update_weights", "/update_weights_from_distributed"];

impl Run {
    /// Refuses weights that come through a group with an engine that is another process by now.
    pub(crate) async fn check_group(&self, relayed: &Relayed) -> Result<(), Reply> {
        if !THROUGH_GROUP.contains(&relayed.path) {
            return Ok(());
        }
        let page = relayed.page().map_err(|error| Reply::error(&error))?;
        if page["weight_dir"].is_string() {
            return Ok(());
        }
        let job = self.job.clone();
        let why = self.read(move |state| state.jobs.get(&job)?.group.why_broken());
        match why.await? {
            Some(why) => Err(Reply::refused(ErrorCode::WeightsConflict, why)),
            None => Ok(()),
        }
    }

    /// The call for each engine: the trainer's own, with its ranks.
    pub(crate) async fn split(
        &self,
        relayed: &Relayed,
        engines: &[Engine],
    ) -> Result<Vec<Relayed>, Reply> {
        let same = || vec![relayed.clone(); engines.len()];
        let has_ranks = relayed.does == Does::Joins || relayed.path == "/update_weights";
        if !has_ranks {
            return Ok(same());
        }
        let page = relayed.page().map_err(|error| Reply::error(&error))?;
        let pages = match relayed.does {
            Does::Joins => {
                let sizes = self.sizes(engines).await?;
                joining(&page, &sizes).map_err(invalid)?
            }
            _ if page["update_info"].is_array() => {
                let sizes = self.sizes(engines).await?;
                parts(&page, &sizes).map_err(invalid)?
            }
            _ => return Ok(same()),
        };
        Ok(pages.iter().map(|page| relayed.with(page)).collect())
    }

    /// How many ranks each engine has.
    async fn sizes(&self, engines: &[Engine]) -> Result<Vec<u64>, Reply> {
        let sizes = engines.iter().map(async |engine| {
            if engine.kind == EngineKind::Sglang {
                let page = self.page(engine, "/server_info").await?;
                let of = |name: &str| page[name].as_u64().unwrap_or(1);
                return Ok(of("tp_size").saturating_mul(of("pp_size")));
            }
            let page = self.page(engine, "/get_world_size").await?;
            let size = page["world_size"].as_u64();
            size.ok_or_else(|| invalid(format!("{} has no `world_size`", engine.worker)))
        });
        try_join_all(sizes).await
    }
}

fn invalid(message: String) -> Reply {
    Reply::refused(ErrorCode::InvalidField, message)
}

/// All ranks; engines say how many they have, so that the sum has a bound.
fn sum_of(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0, |sum, size| sum.saturating_add(*size))
}

/// The bodies with which engines of these sizes join one group.
fn joining(page: &Value, sizes: &[u64]) -> Result<Vec<Value>, String> {
    let is_nested = page["init_info"].is_object();
    let info = if is_nested { &page["init_info"] } else { page };
    let first = info["rank_offset"].as_u64();
    let world = info["world_size"].as_u64();
    let world = world.or(info["inference_world_size"].as_u64());
    let ranks = sum_of(sizes);
    if let Some((first, world)) = first
        .zip(world)
        .filter(|(first, world)| first.saturating_add(ranks) != *world)
    {
        return Err(format!(
            "the group has {world} ranks and the engines {ranks}, from {first} on; give the sum \
             as its size, or all would wait for each other for ever"
        ));
    }
    let mut next = first.unwrap_or_default();
    let mut pages = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        let mut page = page.clone();
        let info = if is_nested {
            &mut page["init_info"]
        } else {
            &mut page
        };
        if first.is_some() {
            info["rank_offset"] = json!(next);
        }
        if info.get("replica_rank").is_some() {
            info["replica_rank"] = json!(at);
            info["num_replicas"] = json!(sizes.len());
        }
        next = next.saturating_add(*size);
        pages.push(page);
    }
    Ok(pages)
}

/// The bodies of an update that has one part for each rank.
fn parts(page: &Value, sizes: &[u64]) -> Result<Vec<Value>, String> {
    let all = page["update_info"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let ranks = sum_of(sizes);
    if all.len() as u64 != ranks {
        return Err(format!(
            "`update_info` has {} parts, and the engines have {ranks} ranks; give one for each",
            all.len()
        ));
    }
    let mut rest = all;
    let pages = sizes.iter().map(|size| {
        let size = usize::try_from(*size).unwrap_or(usize::MAX);
        let (own, others) = rest.split_at(size.min(rest.len()));
        rest = others;
        let mut page = page.clone();
        page["update_info"] = json!(own);
        page
    });
    Ok(pages.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_each_other() {
        let page = json!({"init_info": {"rank_offset": 1, "world_size": 7, "master_port": 5}});
        let pages = joining(&page, &[2, 4]).expect("fits");
        let offsets: Vec<&Value> = pages
            .iter()
            .map(|p| &p["init_info"]["rank_offset"])
            .collect();
        assert_eq!(offsets, [&json!(1), &json!(3)]);
        assert_eq!(pages[1]["init_info"]["master_port"], 5);
        let wrong = joining(&page, &[2, 2]).expect_err("would hang");
        assert!(wrong.contains("7 ranks and the engines 4"), "{wrong}");
    }

    #[test]
    fn other_groups_are_numbered_too() {
        let flat = json!({"rank_offset": 1, "world_size": 3, "group_name": "g"});
        assert_eq!(joining(&flat, &[1, 1]).expect("fits")[1]["rank_offset"], 2);
        let prime = json!({"rank_offset": 0, "inference_world_size": 2});
        assert_eq!(joining(&prime, &[1, 1]).expect("fits")[1]["rank_offset"], 1);
        let rdt = json!({"init_info": {"replica_rank": 0, "num_replicas": 1}});
        let replica = &joining(&rdt, &[1, 1, 1]).expect("fits")[2]["init_info"];
        assert_eq!(replica, &json!({"replica_rank": 2, "num_replicas": 3}));
        let plain = json!({"init_info": {"backend": "ipc"}});
        assert_eq!(
            joining(&plain, &[1, 2]).expect("fits"),
            [plain.clone(), plain]
        );
    }

    #[test]
    fn each_engine_gets_its_ranks_parts() {
        let page = json!({"update_info": [{"r": 0}, {"r": 1}, {"r": 2}], "weight_version": "7"});
        let pages = parts(&page, &[1, 2]).expect("fits");
        assert_eq!(pages[0]["update_info"], json!([{"r": 0}]));
        assert_eq!(pages[1]["update_info"], json!([{"r": 1}, {"r": 2}]));
        assert_eq!(pages[1]["weight_version"], "7", "the rest is for all");
        assert!(parts(&page, &[1, 1]).is_err());
        assert!(parts(&page, &[u64::MAX, u64::MAX]).is_err());
    }
}
