//! How rewards are computed: what is asked, and what an answer says.

use crate::app::{JobName, TrainingApp};
use crate::payloads::{digest_of, info_of, json_of, of_group};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use treadle_core::actions::Outcome;
use treadle_core::training::{Group, JobSettings, Member, MemberRef, Reward};
use treadle_model::Timestamp;
use treadle_model::tenant::split;
use treadle_policy::calls::RecordedCall;
use treadle_runs::actions::Submission;
use treadle_store::ActionRow;

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
}

/// Rewards to be computed: of a member, or of all members of its group.
pub(crate) struct Question {
    pub(crate) judge: Judge,
    pub(crate) of_group: bool,
    pub(crate) job: Box<str>,
    /// When the job was declared: an earlier one of its name had other keys.
    declared: Timestamp,
    /// What an action gets.
    pub(crate) input: Value,
    members: Vec<Asked>,
}

/// A member that is asked about.
struct Asked {
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
        let all = |column: &dyn Fn(&Asked) -> Value| -> Value {
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

    /// What is asked about a member, unless it needs no reward; for a job that judges groups, about
    /// its group, once all members have ended well.
    pub(crate) async fn question(&self, at: &MemberRef) -> Option<Question> {
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
        let (judge, is_of_group) = Judge::parse(&serde_json::from_str(&template).ok()?).ok()?;
        if is_of_group && !is_whole(&group, &settings) {
            return None;
        }
        let name = JobName::inside(&at.job)?;
        let content = group
            .content
            .as_deref()
            .map(|digest| of_group(&at.group, digest));
        let payloads = self.payloads(&name, content.as_slice()).await.ok()?;
        let content = json_of(&payloads, content.as_deref()).ok()?;
        let content: Value = serde_json::from_str(content.get()).ok()?;
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
        let of_member = |asked: &Asked| {
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
        } else if let (Value::Object(own), Value::Object(input)) =
            (of_member(members.first()?), &mut input)
        {
            input.extend(own);
            input.remove("reward");
        }
        Some(Question {
            judge,
            of_group: is_of_group,
            job: at.job.clone(),
            declared,
            input,
            members,
        })
    }

    async fn asked(&self, job: &JobName, at: MemberRef, member: Member) -> Option<Asked> {
        let info = info_of(&at.program, &member);
        let payloads = self.payloads(job, info.as_slice()).await.ok()?;
        let info = json_of(&payloads, info.as_deref()).ok()?;
        let info: Value = serde_json::from_str(info.get()).ok()?;
        let answer = match info.get("answer") {
            Some(answer) => text_of(answer),
            None => self.last_text(job, &at.program).await.ok()?,
        };
        Some(Asked {
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

/// The rewards in an answer.
#[derive(Debug)]
pub(crate) enum Scores {
    /// Of the only member.
    One(Reward),
    /// In the order of the question.
    ByPlace(Vec<Option<Reward>>),
    /// By the members' programs.
    ByName(BTreeMap<String, Option<Reward>>),
    /// None, for this reason.
    Failed(String),
}

impl Scores {
    pub(crate) fn failed(cause: &str) -> Self {
        Self::Failed(cause.to_owned())
    }

    /// The totals of a policy.
    pub(crate) fn of_policy(answer: &Value) -> Option<Self> {
        let totals = answer["totals"].as_array()?.iter();
        Some(Self::ByPlace(totals.map(reward_of).collect()))
    }

    /// The reward of a member.
    pub(crate) fn of(&self, place: usize, member: &MemberRef) -> Result<Reward, String> {
        let found = match self {
            Self::One(reward) => Some(*reward),
            Self::ByPlace(all) => all.get(place).copied().flatten(),
            Self::ByName(all) => all.get(split(&member.program).1).copied().flatten(),
            Self::Failed(cause) => return Err(cause.clone()),
        };
        found.ok_or_else(|| "the answer has no reward of this member".to_owned())
    }
}

fn reward_of(value: &Value) -> Option<Reward> {
    value.as_f64().and_then(Reward::new)
}

/// A number, that of `reward` in an object, or those of `rewards`.
fn scores_in(output: &[u8]) -> Option<Scores> {
    let value: Value = serde_json::from_slice(output).ok()?;
    match value.get("rewards") {
        Some(Value::Array(all)) => Some(Scores::ByPlace(all.iter().map(reward_of).collect())),
        Some(Value::Object(all)) => {
            let all = all
                .iter()
                .map(|(name, value)| (name.clone(), reward_of(value)));
            Some(Scores::ByName(all.collect()))
        }
        _ => reward_of(value.get("reward").unwrap_or(&value)).map(Scores::One),
    }
}

/// What an action that ended says: rewards, or that it may work later and why.
///
/// # Errors
/// It says that there is no reward.
pub(crate) fn judged(row: &ActionRow, output: &[u8]) -> Result<Result<Scores, String>, String> {
    let outcome = row.outcome.as_deref();
    let outcome = outcome.and_then(|text| serde_json::from_str::<Outcome>(text).ok());
    match outcome {
        Some(Outcome::Exited {
            code: 0 | 200..=299,
        }) => match scores_in(output) {
            Some(scores) => Ok(Ok(scores)),
            None => Err(
                "the answer has no reward; answer a number, or an object with `reward`".to_owned(),
            ),
        },
        Some(Outcome::Exited {
            code: code @ (429 | 500..=599),
        }) => Ok(Err(format!("the answer has status {code}"))),
        Some(Outcome::Exited { code }) => Err(format!("it ended with {code}")),
        Some(Outcome::InfrastructureFailure { cause }) => Ok(Err(cause.into())),
        Some(Outcome::Unknown | Outcome::Expired) | None => {
            Ok(Err("it is unknown how it ended".to_owned()))
        }
        Some(Outcome::Killed { .. } | Outcome::OutOfMemory) => Err("it was killed".to_owned()),
        Some(Outcome::TimedOut) => Err("it ran for too long".to_owned()),
        Some(Outcome::Cancelled) => Err("it was cancelled".to_owned()),
    }
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

    fn row(outcome: &Value) -> ActionRow {
        ActionRow {
            outcome: Some(outcome.to_string()),
            ..ActionRow::default()
        }
    }

    fn member(program: &str) -> MemberRef {
        MemberRef {
            job: "j".into(),
            group: "g".into(),
            program: program.into(),
        }
    }

    #[test]
    fn rewards_of_a_group_are_told_apart_by_place_or_by_name() {
        for output in [
            r#"{"rewards": {"p": 1, "q": 0.5}}"#,
            r#"{"rewards": [1, 0.5, null]}"#,
        ] {
            let scores = scores_in(output.as_bytes()).expect("rewards");
            let of = |place, program| scores.of(place, &member(program)).ok().map(Reward::get);
            assert_eq!(of(0, "p"), Some(1.0));
            assert_eq!(of(1, "q"), Some(0.5));
            assert_eq!(of(2, "r"), None, "it is missing");
        }
    }

    #[test]
    fn only_a_number_is_a_reward_and_only_failures_of_others_are_tried_again() {
        let exited = |code: i32| json!({"outcome": "exited", "code": code});
        let member = member("p");
        let given = |output: &str| {
            let scores = judged(&row(&exited(200)), output.as_bytes()).ok()?.ok()?;
            scores.of(0, &member).ok().map(Reward::get)
        };
        assert_eq!(given("0.5"), Some(0.5));
        assert_eq!(given("{\"reward\": -1, \"why\": \"x\"}"), Some(-1.0));
        for none in [
            "",
            "null",
            "\"0.5\"",
            "{\"score\": 1}",
            "1e999",
            "{\"reward\": null}",
        ] {
            assert_eq!(given(none), None, "{none}");
        }
        for (outcome, later) in [
            (exited(503), true),
            (exited(429), true),
            (exited(404), false),
            (exited(1), false),
            (json!({"outcome": "timed_out"}), false),
            (json!({"outcome": "unknown"}), true),
            (
                json!({"outcome": "infrastructure_failure", "cause": "x"}),
                true,
            ),
        ] {
            let verdict = judged(&row(&outcome), b"1");
            assert_eq!(verdict.is_ok(), later, "{outcome}");
            assert!(!matches!(verdict, Ok(Ok(_))), "{outcome}");
        }
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
