//! Identifies a step's program: by URL, header or body, else by the prompt that it continues.

mod headers;

use axum::http::HeaderMap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use treadle_core::programs::Parent;
use treadle_model::{ClientName, StepId, Tenant};
use treadle_wire::{ErrorBody, Named, PrefixIndex, RequestHead};

/// The default RL run.
const DEFAULT_JOB: ClientName = ClientName::literal("default");

/// The identity of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identity {
    /// The program's internal name, with its tenant as prefix.
    pub(crate) program: Arc<str>,
    /// The job's internal name.
    pub(crate) job: Arc<str>,
    /// Whether it was recognised by its prompt instead of named.
    pub(crate) inferred: bool,
    /// Whether it ends with this step: the client says so, or it is neither named nor recognisable.
    pub(crate) one_shot: bool,
    /// The program that started it.
    pub(crate) parent: Option<Parent>,
    /// Its group within the job, if it names one.
    pub(crate) group: Option<ClientName>,
}

/// Recognises unnamed programs by the longest earlier prompt that a new one continues. Each tenant
/// has its own index.
pub struct Identities {
    indexes: Mutex<Indexes>,
}

/// The indexes of all tenants.
struct Indexes {
    by_tenant: HashMap<Box<str>, PrefixIndex>,
    /// Most programs of a tenant.
    tenant_max: usize,
    /// Most programs of all tenants together.
    sum_max: usize,
    /// Programs of all tenants together.
    sum: usize,
}

impl Indexes {
    /// The program that the chain continues, else `fresh`; stores it with this chain.
    fn recognise(&mut self, tenant: &Tenant, chain: &[u64], fresh: Arc<str>) -> Arc<str> {
        if !self.by_tenant.contains_key(tenant.name()) {
            let index = PrefixIndex::new(self.tenant_max);
            self.by_tenant.insert(tenant.name().into(), index);
        }
        let Some(index) = self.by_tenant.get_mut(tenant.name()) else {
            return fresh;
        };
        let program = index.longest_match(chain).unwrap_or(fresh);
        let before = index.len();
        index.insert(chain, program.clone());
        self.sum = self.sum + index.len() - before;
        if self.sum > self.sum_max {
            self.make_room();
        }
        program
    }

    /// Removes the oldest program of the tenant that has the most, so that no tenant can displace
    /// others' programs.
    fn make_room(&mut self) {
        let largest = self.by_tenant.values_mut().max_by_key(|index| index.len());
        if largest.is_some_and(PrefixIndex::remove_oldest) {
            self.sum -= 1;
        }
    }
}

impl Identities {
    /// Stores up to `tenant_max` inferred programs of a tenant, and `sum_max` of all.
    pub fn new(tenant_max: usize, sum_max: usize) -> Self {
        Self {
            indexes: Mutex::new(Indexes {
                by_tenant: HashMap::new(),
                tenant_max,
                sum_max,
                sum: 0,
            }),
        }
    }

    pub(crate) fn resolve(
        &self,
        tenant: &Tenant,
        session: Option<&str>,
        headers: &HeaderMap,
        head: &RequestHead,
        step: StepId,
    ) -> Result<Identity, ErrorBody> {
        let job = headers::job_of(headers)?.unwrap_or(DEFAULT_JOB);
        let job: Arc<str> = tenant.inside(&job).into();
        let named = match session {
            Some(session) => Some(headers::of_session(session, headers)?),
            None => headers::set_by_hand(headers)?,
        };
        let named = match named.or_else(|| head.named.clone()) {
            None => headers::set_by_agents(headers)?,
            named => named,
        };
        let named = named.or_else(|| head.named_by_cache_key.clone());
        let is_last = headers::is_last(headers)?;
        let group = headers::group_of(headers)?;
        let Some(Named { program, parent }) = named else {
            let mut identity = self.recognise(tenant, head, job, step);
            identity.one_shot |= is_last;
            identity.group = group;
            return Ok(identity);
        };
        let parent = parent.map(|parent| Parent {
            program: tenant.inside(&parent.program).into(),
            waits: parent.waits,
        });
        Ok(Identity {
            program: tenant.inside(&program).into(),
            job,
            inferred: false,
            one_shot: is_last,
            parent,
            group,
        })
    }

    fn recognise(
        &self,
        tenant: &Tenant,
        head: &RequestHead,
        job: Arc<str>,
        step: StepId,
    ) -> Identity {
        if head.chain.is_empty() {
            let name = ClientName::numbered("single-", step.0);
            return Identity {
                program: tenant.inside(&name).into(),
                job,
                inferred: true,
                one_shot: true,
                parent: None,
                group: None,
            };
        }
        let fresh = || Arc::from(tenant.inside(&ClientName::numbered("auto-", step.0)));
        let program = match self.indexes.lock() {
            Ok(mut indexes) => indexes.recognise(tenant, &head.chain, fresh()),
            Err(_) => fresh(),
        };
        Identity {
            program,
            job,
            inferred: true,
            one_shot: false,
            parent: None,
            group: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_wire::{Endpoint, ErrorCode};

    fn resolve(
        identities: &Identities,
        session: Option<&str>,
        headers: &[(&'static str, &str)],
        body: &str,
        step: u64,
    ) -> Identity {
        let head = RequestHead::parse(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        identities
            .resolve(&Tenant::new("default"), session, &map, &head, StepId(step))
            .unwrap()
    }

    #[test]
    fn url_goes_before_header_before_body() {
        let ids = Identities::new(10, 20);
        let body = r#"{"model":"m","program_id":"b","messages":[{"role":"user","content":"x"}]}"#;
        let header = [("x-program-id", "h")];
        assert_eq!(&*resolve(&ids, Some("u"), &header, body, 1).program, "u");
        assert_eq!(&*resolve(&ids, None, &header, body, 1).program, "h");
        assert_eq!(&*resolve(&ids, None, &[], body, 1).program, "b");
    }

    #[test]
    fn a_longer_history_is_the_same_program() {
        let ids = Identities::new(10, 20);
        let first = r#"{"messages":[{"role":"user","content":"x"}]}"#;
        let second = r#"{"messages":[{"role":"user","content":"x"},
            {"role":"assistant","content":"y"},{"role":"user","content":"z"}]}"#;
        let other = r#"{"messages":[{"role":"user","content":"other"}]}"#;
        let a = resolve(&ids, None, &[], first, 1);
        assert_eq!(&*a.program, "auto-1");
        assert!(a.inferred && !a.one_shot);
        assert_eq!(resolve(&ids, None, &[], second, 2).program, a.program);
        assert_eq!(&*resolve(&ids, None, &[], other, 3).program, "auto-3");
    }

    #[test]
    fn invalid_names_are_refused_at_any_position() {
        let ids = Identities::new(10, 20);
        let head = RequestHead::parse(
            Endpoint::ChatCompletions,
            br#"{"messages":[{"role":"user","content":"x"}]}"#,
        )
        .unwrap();
        let tenant = Tenant::new("default");
        let long = "k".repeat(600);
        for bad in [long.as_str(), "\u{1f}acme\u{1f}p", "p\0", "\u{7f}"] {
            let headers = HeaderMap::new();
            let refused = ids.resolve(&tenant, Some(bad), &headers, &head, StepId(1));
            let error = refused.unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidField);
            assert_eq!(error.param.as_deref(), Some("session"));
        }
        for name in headers::ALL {
            for bad in [long.as_str(), "a\tb"] {
                let mut headers = HeaderMap::new();
                headers.insert(name, bad.parse().unwrap());
                let refused = ids.resolve(&tenant, None, &headers, &head, StepId(1));
                assert_eq!(refused.unwrap_err().param.as_deref(), Some(name));
            }
        }
    }

    #[test]
    fn a_tenant_at_its_bound_has_its_oldest_prompt_forgotten() {
        let ids = Identities::new(2, 100);
        let of = |texts: &[&str], step: u64| {
            let messages = texts
                .iter()
                .map(|text| format!(r#"{{"role":"user","content":"{text}"}}"#));
            let messages: Vec<String> = messages.collect();
            let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
            resolve(&ids, None, &[], &body, step).program
        };
        for (step, text) in (1..).zip(["a", "b", "c"]) {
            of(&[text], step);
        }
        assert_eq!(ids.indexes.lock().unwrap().sum, 2);
        assert_eq!(&*of(&["b", "x"], 4), "auto-2");
        assert_eq!(&*of(&["a", "x"], 5), "auto-5");
    }

    #[test]
    fn a_tenant_that_sends_many_prompts_has_its_own_forgotten() {
        let ids = Identities::new(3, 4);
        let [ours, theirs] = ["default", "acme"].map(Tenant::new);
        let of = |tenant: &Tenant, messages: &[&str], step: u64| {
            let messages: Vec<String> = messages
                .iter()
                .map(|text| format!(r#"{{"role":"user","content":"{text}"}}"#))
                .collect();
            let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
            let head = RequestHead::parse(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
            let identity = ids.resolve(tenant, None, &HeaderMap::new(), &head, StepId(step));
            identity.unwrap().program
        };
        let (one, other) = (of(&ours, &["a"], 1), of(&ours, &["b"], 2));
        for step in 3..100 {
            of(&theirs, &[&step.to_string()], step);
        }
        assert_eq!(ids.indexes.lock().unwrap().sum, 4);
        assert_eq!(of(&ours, &["a", "x"], 100), one);
        assert_eq!(of(&ours, &["b", "x"], 101), other);
        // Two of theirs were kept, the newest.
        let newest = of(&theirs, &["99", "x"], 102);
        assert_eq!(theirs.outside(&newest), Some("auto-99"));
    }

    #[test]
    fn tenants_share_no_program() {
        let ids = Identities::new(10, 20);
        let [ours, theirs] = ["default", "acme"].map(Tenant::new);
        let prompt = |turns: usize| {
            let messages: Vec<String> = (0..turns)
                .map(|turn| format!(r#"{{"role":"user","content":"{turn}"}}"#))
                .collect();
            let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
            RequestHead::parse(Endpoint::ChatCompletions, body.as_bytes()).unwrap()
        };
        let of = |tenant: &Tenant, turns: usize, step: u64| {
            let headers = HeaderMap::new();
            let identity = ids.resolve(tenant, None, &headers, &prompt(turns), StepId(step));
            identity.unwrap().program
        };
        assert_eq!(&*of(&ours, 1, 1), "auto-1");
        let first = of(&theirs, 2, 2);
        assert_eq!(theirs.outside(&first), Some("auto-2"));
        assert_eq!(&*of(&ours, 3, 3), "auto-1");
        assert_eq!(of(&theirs, 4, 4), first);
        let stolen = ids.resolve(
            &ours,
            Some(&first),
            &HeaderMap::new(),
            &prompt(1),
            StepId(5),
        );
        assert_eq!(stolen.unwrap_err().code, ErrorCode::InvalidField);
    }
}
