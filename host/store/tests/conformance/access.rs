//! Tests of tenants, tokens, the audit log, and names that not every caller may see. Each check
//! starts with an empty store.

use treadle_store::{
    AuditPage, AuditRow, Batch, EventPage, EventRow, Names, ProgramPage, Store, TenantRow, TokenRow,
};

use super::rows::{self, ALL};

fn token(id: &str, hash: u8) -> TokenRow {
    TokenRow {
        token: id.into(),
        tenant: "acme".into(),
        name: "ci".into(),
        scope: "job".into(),
        hash: vec![hash; 32],
        previous_hash: None,
        previous_until_us: None,
        created_at_us: u64::from(hash),
        expires_at_us: None,
        revoked_at_us: None,
        last_used_at_us: None,
    }
}

pub(crate) async fn tenants_and_tokens_replace_each_other(store: &dyn Store) {
    let tenant = |name: &str, limits: &str| TenantRow {
        tenant: name.into(),
        created_at_us: 5,
        limits: limits.into(),
    };
    for row in [
        tenant("b", "{}"),
        tenant("a", "{}"),
        tenant("b", "{\"n\":1}"),
    ] {
        store.put_tenant(&row).await.unwrap();
    }
    let expected = [tenant("a", "{}"), tenant("b", "{\"n\":1}")];
    assert_eq!(store.tenants().await.unwrap(), expected);

    store.put_token(&token("t1", 1)).await.unwrap();
    store.put_token(&token("t2", 2)).await.unwrap();
    let rotated = TokenRow {
        hash: vec![3; 32],
        previous_hash: Some(vec![1; 32]),
        previous_until_us: Some(99),
        expires_at_us: Some(100),
        revoked_at_us: Some(50),
        ..token("t1", 1)
    };
    store.put_token(&rotated).await.unwrap();
    let twin = store.put_token(&token("t3", 2)).await;
    assert!(twin.is_err(), "two tokens with one secret");
    let uses = [("t2".to_owned(), 7), ("nobody".to_owned(), 8)];
    store.touch_tokens(&uses).await.unwrap();
    let touched = TokenRow {
        last_used_at_us: Some(7),
        ..token("t2", 2)
    };
    assert_eq!(store.tokens().await.unwrap(), [touched.clone(), rotated]);
    assert_eq!(store.prune_tokens(50).await.unwrap(), 0);
    assert_eq!(store.prune_tokens(51).await.unwrap(), 1);
    assert_eq!(store.tokens().await.unwrap(), [touched]);
}

pub(crate) async fn plugins_belong_to_their_uploader(store: &dyn Store) {
    assert!(store.claim_plugin("a", "sha256:1", 1).await.unwrap());
    assert!(store.claim_plugin("b", "sha256:1", 2).await.unwrap());
    assert!(!store.claim_plugin("a", "sha256:1", 3).await.unwrap());
    assert!(store.claim_plugin("a", "sha256:0", 4).await.unwrap());
    let of_a = store.claimed_plugins("a").await.unwrap();
    assert_eq!(of_a, ["sha256:0", "sha256:1"]);
    assert_eq!(store.claimed_plugins("b").await.unwrap(), ["sha256:1"]);
    assert!(store.claimed_plugins("c").await.unwrap().is_empty());
}

fn change(at_us: u64) -> AuditRow {
    AuditRow {
        id: 0,
        at_us,
        tenant: if at_us.is_multiple_of(2) { "a" } else { "b" }.into(),
        who: "token t1 (ci)".into(),
        action: if at_us < 5 {
            "token.created"
        } else {
            "worker.added"
        }
        .into(),
        target: format!("t{at_us}"),
        before: "null".into(),
        after: "{\"n\":1}".into(),
        request_id: "r".into(),
        address: at_us.is_multiple_of(2).then(|| "127.0.0.1:9".into()),
    }
}

pub(crate) async fn the_audit_log_is_read_newest_first_and_stays_as_it_is(store: &dyn Store) {
    store
        .add_audit(&(1..=4).map(change).collect::<Vec<_>>())
        .await
        .unwrap();
    store
        .add_audit(&(5..=8).map(change).collect::<Vec<_>>())
        .await
        .unwrap();
    let read = async |page: AuditPage| -> Vec<u64> {
        let rows = store.audit(&page).await.unwrap();
        for row in &rows {
            let expected = AuditRow {
                id: row.id,
                ..change(row.at_us)
            };
            assert_eq!(*row, expected);
        }
        rows.iter().map(|row| row.at_us).collect()
    };
    let all = AuditPage {
        limit: ALL,
        ..AuditPage::default()
    };
    assert_eq!(read(all.clone()).await, [8, 7, 6, 5, 4, 3, 2, 1]);
    let of_a = AuditPage {
        tenant: Some("a".into()),
        action: Some("token.created".into()),
        ..all.clone()
    };
    assert_eq!(read(of_a).await, [4, 2]);
    let newest = AuditPage {
        limit: 3,
        ..all.clone()
    };
    let cursor = store.audit(&newest).await.unwrap()[2].id;
    let older = AuditPage {
        before: Some(cursor),
        ..newest
    };
    assert_eq!(read(older).await, [5, 4, 3]);
    let nobody = AuditPage {
        who: Some("nobody".into()),
        ..all.clone()
    };
    assert!(read(nobody).await.is_empty());

    assert_eq!(store.prune_audit(3).await.unwrap(), 5);
    assert_eq!(store.prune_audit(3).await.unwrap(), 0);
    assert_eq!(read(all).await, [8, 7, 6]);
}

pub(crate) async fn the_audit_log_is_bounded_in_bytes(store: &dyn Store) {
    let large = |at_us| AuditRow {
        after: "x".repeat(8_000),
        ..change(at_us)
    };
    let rows = [large(1), large(2), large(3), change(4)];
    store.add_audit(&rows).await.unwrap();
    let all = AuditPage {
        limit: ALL,
        ..AuditPage::default()
    };
    let left = async || -> Vec<u64> {
        let rows = store.audit(&all).await.unwrap();
        rows.iter().map(|row| row.at_us).collect()
    };
    assert_eq!(store.prune_audit(10).await.unwrap(), 0);
    assert_eq!(left().await, [4, 3, 2, 1]);
    assert_eq!(store.prune_audit(4).await.unwrap(), 2);
    assert_eq!(left().await, [4, 3], "4 rows have 4 KiB on average");
    assert_eq!(store.prune_audit(4).await.unwrap(), 0);
}

pub(crate) async fn names_of_others_are_left_out(store: &dyn Store) {
    let names = ["p", "\u{1f}acme\u{1f}p", "\u{1f}acme2\u{1f}p"];
    let event = |seq: u64, kind: &str, program: Option<&str>| EventRow {
        kind: kind.into(),
        program: program.map(Into::into),
        ..rows::event(seq)
    };
    let batch = Batch {
        programs: names.map(|name| rows::program(name, 2)).to_vec(),
        events: vec![
            event(1, "step_arrived", Some(names[0])),
            event(2, "step_arrived", Some(names[1])),
            event(3, "step_arrived", Some(names[2])),
            event(4, "worker_lost", None),
            event(5, "secret", None),
        ],
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
    for (visible, programs, events) in [
        (Names::Any, 3, vec![1, 2, 3, 4]),
        (Names::Without("\u{1f}".into()), 1, vec![1, 4]),
        (Names::With("\u{1f}acme\u{1f}".into()), 1, vec![2, 4]),
        (Names::With("\u{1f}nobody\u{1f}".into()), 0, vec![4]),
    ] {
        let page = ProgramPage {
            names: visible.clone(),
            limit: ALL,
            ..ProgramPage::default()
        };
        assert_eq!(store.programs(&page).await.unwrap().len(), programs);
        let page = EventPage {
            names: visible.clone(),
            shared_kinds: Some(&["worker_lost"]),
            range: rows::range(None, None, treadle_store::Order::OldestFirst, ALL),
            ..EventPage::default()
        };
        let found = store.events_page(&page).await.unwrap();
        let seqs: Vec<u64> = found.iter().map(|row| row.seq).collect();
        assert_eq!(seqs, events, "{visible:?}");
    }
}
