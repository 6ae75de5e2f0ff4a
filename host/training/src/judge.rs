//! How rewards are computed: what is asked.

use crate::app::{JobName, TrainingApp};
use crate::payloads::{digest_of, info_of, json_of, of_group};
use crate::scores::Scores;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use treadle_core::training::{Group, JobSettings, Member, MemberRef, Reward};
use treadle_model::tenant::split;
use treadle_model::{Tenant, Timestamp};
use treadle_policy::calls::RecordedCall;
use treadle_runs::actions::Submission;

/// What computes the rewards of a job.
#[derive(Clone, Debug)]
pub(crate) enum Judge {
    /// The policy of the world `reward` that is bound for the job.
    Policy,
    /// An action of this form.
    Action(Value),
}

impl Judge {
    /// What a job's `reward` says, and whether members of a group are judged together.
    pub(crate) fn parse(template: &Value) -> Result<(Self, bool), String> {
        let fields = template.as_object().ok_or("it is not an object")?;
        let of_group = match fields.get("of").map(Value::as_str) {
            None | Some(Some("member")) => false,
            Some(Some("group")) => true,
            Some(_) => return Err("`of` is member or group".to_owned()),
        };
        if let Some(policy) = fields.get("policy") {
            let others = fields.keys().any(|name| name != "policy" && name != "of");
            if *policy != true || others {
                return Err("with `policy`, which is true, only `of` may be set".to_owned());
            }
            return Ok((Self::Policy, of_group));
        }
        let written = filled(template, &json!({}), "x", "key");
        let submission = serde_json::from_value::<Submission>(written);
        submission.map_err(|error| error.to_string())?;
        Ok((Self::Action(template.clone()), of_group))
    }

    /// Checks an action as if it were submitted now.
    pub(crate) fn check(&self, job: &JobName, sandboxes_only: bool) -> Result<(), String> {
        let Self::Action(template) = self else {
            return Ok(());
        };
        let (tenant, job) = split(&job.inside);
        let written = filled(template, &json!({}), job, "key");
        let submission = serde_json::from_value::<Submission>(written);
        let submission = submission.map_err(|error| error.to_string())?;
        let checked = submission.check(&Tenant::new(tenant), sandboxes_only);
        checked.map_err(|error| error.message)
    }
}

/// Rewards to be computed: of a member, or of all members of its group.
pub(crate) struct Question {
    pub(crate) judge: Judge,
    of_group: bool,
    pub(crate) job: Box<str>,
    /// When the job was declared: an earlier one of its name had other keys.
    declared: Timestamp,
    /// What an action gets.
    input: Value,
    members: Vec<MemberAnswer>,
}

/// A member that needs a reward, and how its job has that computed.
pub(crate) struct Needed {
    /// What the job says of its judge.
    pub(crate) template: Box<str>,
    judge: Judge,
    pub(crate) of_group: bool,
    declared: Timestamp,
    group: Group,
}

/// A member that is to be judged, and its answer.
struct MemberAnswer {
    at: MemberRef,
    member: Member,
    /// Its last answer.
    answer: String,
    info: Value,
}

impl Question {
    /// Members that need a reward, with their places.
    pub(crate) fn open(&self) -> impl Iterator<Item = (usize, &MemberRef)> {
        let open = self.members.iter().enumerate();
        let open = open.filter(|(_, asked)| asked.member.reward.is_none());
        open.map(|(place, asked)| (place, &asked.at))
    }

    /// The same each time that the question is asked, and never for another one.
    pub(crate) fn name(&self) -> String {
        let declared = self.declared.0;
        let mut programs = self.members.iter().map(|asked| &*asked.at.program);
        if !self.of_group {
            let own = programs.next().map(|program| split(program).1);
            return format!("{declared}/{}", own.unwrap_or_default());
        }
        // A group whose members were replaced is another one.
        let programs: Vec<&str> = programs.collect();
        let digest = digest_of(programs.join("\0").as_bytes());
        format!("{declared}/group/{}", &digest["sha256:".len()..][..32])
    }

    /// What an action gets. The question has no texts any more then.
    pub(crate) fn take_input(&mut self) -> Value {
        for asked in &mut self.members {
            (asked.answer, asked.info) = (String::new(), Value::Null);
        }
        self.input.take()
    }

    /// Checks that an answer has as many rewards as members were asked about.
    pub(crate) fn check(&self, scores: &Scores) -> Result<(), String> {
        let members = self.members.len();
        match scores {
            Scores::One(_) if self.of_group => {
                Err("the answer has one reward for a group; answer `rewards`".to_owned())
            }
            Scores::ByPlace(all) if all.len() != members => {
                let count = all.len();
                Err(format!(
                    "the answer has {count} rewards for {members} members"
                ))
            }
            _ => Ok(()),
        }
    }

    /// The call of a policy.
    pub(crate) fn call(&self) -> RecordedCall {
        let content = &self.input["content"];
        let reference = ["reference", "answer", "solution"].into_iter();
        let reference = reference
            .map(|name| &content[name])
            .find(|value| !value.is_null());
        let reference = reference.map(text_of).unwrap_or_default();
        let all = |column: &dyn Fn(&MemberAnswer) -> Value| -> Value {
            self.members.iter().map(column).collect()
        };
        let columns = BTreeMap::from([
            (
                "answer".to_owned(),
                all(&|asked| asked.answer.clone().into()),
            ),
            ("reference".to_owned(), all(&|_| reference.clone().into())),
            (
                "output_tokens".to_owned(),
                all(&|asked| asked.member.tokens.into()),
            ),
            ("steps".to_owned(), all(&|asked| asked.member.turns.into())),
        ]);
        RecordedCall {
            world: "reward".to_owned(),
            function: "score".to_owned(),
            config: json!({}),
            now_ms: 0,
            seed: 0,
            columns,
            expect: None,
        }
    }
}

/// A value as text: without quotes, if it is text.
fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

impl TrainingApp {
    /// Whether a member ended well and still has no reward.
    pub(crate) async fn needs_reward(&self, at: &MemberRef) -> bool {
        let at = at.clone();
        let read = self.driver.training(move |state| {
            let member = state.member(&at);
            member.is_some_and(|m| m.has_ended_well() && m.reward.is_none())
        });
        read.await.unwrap_or_default()
    }

    /// A member that needs a reward; for a job that judges groups once all members of its group
    /// have ended well.
    pub(crate) async fn needed_reward(&self, at: &MemberRef) -> Option<Needed> {
        let member = at.clone();
        let read = self.driver.training(move |state| {
            let job = state.jobs.get(&member.job)?;
            let group = job.groups.get(&member.group)?;
            let found = group.members.get(&member.program)?;
            let template = job.settings.reward.clone()?;
            let is_open = found.has_ended_well() && found.reward.is_none();
            is_open.then(|| (template, job.settings.clone(), job.declared, group.clone()))
        });
        let (template, settings, declared, group) = read.await.ok()??;
        let (judge, of_group) = Judge::parse(&serde_json::from_str(&template).ok()?).ok()?;
        if of_group && !is_whole(&group, &settings) {
            return None;
        }
        Some(Needed {
            template,
            judge,
            of_group,
            declared,
            group,
        })
    }

    /// What is asked about a member, or about its group.
    ///
    /// # Errors
    /// What it needs can't be read now.
    pub(crate) async fn question(
        &self,
        at: &MemberRef,
        needed: Needed,
    ) -> Result<Question, String> {
        let Needed {
            judge,
            of_group: is_of_group,
            declared,
            group,
            ..
        } = needed;
        let name = JobName::inside(&at.job).ok_or("its job has no name")?;
        let content = group
            .content
            .as_deref()
            .map(|digest| of_group(&at.group, digest));
        let content = self.stored_json(&name, content.as_deref()).await?;
        let mut members = Vec::new();
        let own = |program: &str| is_of_group || *program == *at.program;
        for (program, member) in group
            .members
            .into_iter()
            .filter(|(program, _)| own(program))
        {
            let at = MemberRef {
                program,
                ..at.clone()
            };
            members.push(self.asked(&name, at, member).await?);
        }
        let of_member = |asked: &MemberAnswer| {
            json!({
                "program": split(&asked.at.program).1,
                "info": asked.info,
                "answer": asked.answer,
                "tokens": asked.member.tokens,
                "turns": asked.member.turns,
                "sample": asked.member.sample,
                "reward": asked.member.reward.map(Reward::get),
            })
        };
        let mut input = json!({"job": name.own.as_str(), "group": at.group, "content": content});
        if is_of_group {
            input["members"] = members.iter().map(of_member).collect();
        } else if let (Some(Value::Object(own)), Value::Object(input)) =
            (members.first().map(of_member), &mut input)
        {
            input.extend(own);
            input.remove("reward");
        }
        Ok(Question {
            judge,
            of_group: is_of_group,
            job: at.job.clone(),
            declared,
            input,
            members,
        })
    }

    /// A stored JSON value; null without a name.
    async fn stored_json(&self, job: &JobName, stored: Option<&str>) -> Result<Value, String> {
        let names: Vec<String> = stored.iter().map(|name| (*name).to_owned()).collect();
        let failed = |_| "the store failed; the log has its error".to_owned();
        let payloads = self.payloads(job, &names).await.map_err(failed)?;
        let found = json_of(&payloads, stored).map_err(failed)?;
        serde_json::from_str(found.get()).map_err(|error| error.to_string())
    }

    async fn asked(
        &self,
        job: &JobName,
        at: MemberRef,
        member: Member,
    ) -> Result<MemberAnswer, String> {
        let info = info_of(&at.program, &member);
        let info = self.stored_json(job, info.as_deref()).await?;
        let answer = if let Some(answer) = info.get("answer") {
            text_of(answer)
        } else {
            let text = self.last_text(job, &at.program).await;
            text.map_err(|error| error.to_string())?
        };
        Ok(MemberAnswer {
            at,
            member,
            answer,
            info,
        })
    }
}

/// Whether all members of a group have ended well, with their samples.
fn is_whole(group: &Group, settings: &JobSettings) -> bool {
    let is_over = |m: &Member| m.has_ended_well() && (!settings.captured() || m.sample.is_some());
    group.missing() == 0 && group.members.values().all(is_over)
}

/// An action from a template: the input is the body of its request, or the input of its command.
pub(crate) fn filled(template: &Value, input: &Value, job: &str, key: &str) -> Value {
    let mut written = template.as_object().cloned().unwrap_or_default();
    written.remove("of");
    written.insert("job".into(), job.into());
    written.insert("idempotency_key".into(), key.into());
    written.entry("kind").or_insert("reward".into());
    written.entry("idempotent").or_insert(true.into());
    let run = written.get_mut("run").and_then(Value::as_object_mut);
    for (kind, run) in run.into_iter().flatten() {
        let Some(run) = run.as_object_mut() else {
            continue;
        };
        match kind.as_str() {
            "http" | "service" => {
                run.entry("method").or_insert("POST".into());
                let headers = run.entry("headers").or_insert_with(|| Map::new().into());
                if let Some(headers) = headers.as_object_mut() {
                    let json = || "application/json".into();
                    headers.entry("content-type").or_insert_with(json);
                }
                run.insert("body".into(), input.to_string().into());
            }
            _ => {
                run.insert("stdin".into(), input.to_string().into());
            }
        }
    }
    written.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_submitted_can_not_be_declared() {
        let job = JobName::inside("math").unwrap();
        let check = |template: Value, sandboxes_only| {
            let (judge, _) = Judge::parse(&template)?;
            judge.check(&job, sandboxes_only)
        };
        let process = json!({"process": {"command": ["x"]}});
        assert_eq!(check(json!({"run": process}), false), Ok(()));
        assert!(check(json!({"run": process}), true).is_err());
        assert_eq!(check(json!({"policy": true}), true), Ok(()));
        for run in [
            json!(5),
            json!({}),
            json!({"command": ["x"]}),
            json!({"process": {"command": []}}),
            json!({"http": {"url": "zzz"}}),
        ] {
            let template = json!({"kind": "judge", "run": run});
            assert!(check(template, false).is_err(), "{run}");
        }
        let template = json!({"kind": "a\u{1b}[31m", "run": process});
        assert!(check(template, false).is_err());
    }

    #[test]
    fn the_input_goes_where_the_action_reads_it() {
        let input = json!({"program": "p"});
        let http = json!({"run": {"http": {"url": "http://judge/score"}}});
        let written = filled(&http, &input, "math", "k");
        let http = &written["run"]["http"];
        assert_eq!(http["body"], input.to_string());
        assert_eq!(http["method"], "POST");
        assert_eq!(
            (&written["job"], &written["kind"]),
            (&json!("math"), &json!("reward"))
        );
        let process = json!({"kind": "tests", "run": {"process": {"command": ["x"]}}});
        let written = filled(&process, &input, "math", "k");
        assert_eq!(written["run"]["process"]["stdin"], input.to_string());
        let good = json!({"policy": true, "of": "group"});
        assert!(
            [&process, &good]
                .into_iter()
                .all(|t| Judge::parse(t).is_ok())
        );
        for bad in [
            json!({"runs": {}}),
            json!({"policy": 1}),
            json!({"of": "all"}),
            json!(1),
        ] {
            assert!(Judge::parse(&bad).is_err(), "{bad}");
        }
    }
}
