//! One suite for every implementation of `Store`, in each of its surroundings.

mod access;
mod durability;
mod journal;
mod projections;
mod reopen;
mod rows;

use std::sync::Arc;

use treadle_store::{Location, Store, open};

async fn memory() -> Arc<dyn Store> {
    open(&Location::Memory).await.unwrap()
}

/// Runs a check of the suite in memory and in a file, each time on an empty store.
macro_rules! on_every_store {
    ($($suite:ident: $($check:ident),+;)+) => {
        mod in_memory {
            $($(#[tokio::test] async fn $check() {
                super::$suite::$check(&*super::memory().await).await;
            })+)+
        }
        mod in_a_file {
            $($(#[tokio::test] async fn $check() {
                let folder = tempfile::tempdir().unwrap();
                let at = treadle_store::Location::File(folder.path().join("new/folder/treadle.db"));
                super::$suite::$check(&*treadle_store::open(&at).await.unwrap()).await;
            })+)+
        }
    };
}

on_every_store!(
    access:
        tenants_and_tokens_replace_each_other,
        plugins_belong_to_whoever_uploaded_them,
        the_audit_log_is_read_newest_first_and_stays_as_it_is,
        names_of_others_are_left_out;
    journal:
        the_journal_counts_from_one_without_gaps,
        a_refused_batch_leaves_nothing,
        events_are_found_by_program_kind_and_range,
        batches_of_any_length_come_back_whole,
        decisions_come_back_in_order,
        the_newest_snapshots_stay,
        pruning_spares_what_recovery_needs,
        bounds_are_errors,
        appends_from_many_tasks_are_serial;
    projections:
        a_later_row_replaces_an_earlier_one,
        programs_are_paged_newest_first,
        steps_are_paged_by_number,
        plugins_never_change,
        bindings_replace_each_other,
        what_a_policy_stored_goes_with_its_binding,
        pruning_takes_ended_programs_with_their_steps;
);

#[tokio::test]
async fn everything_is_there_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let at = Location::File(folder.path().join("treadle.db"));
    let store = open(&at).await.unwrap();
    reopen::fill(&*store).await;
    let before = reopen::dump(&*store).await;
    store.close().await.unwrap();
    drop(store);
    let store = open(&at).await.unwrap();
    assert_eq!(reopen::dump(&*store).await, before);
    reopen::goes_on(&*store).await;
}

#[tokio::test]
async fn a_second_store_sees_what_the_first_committed_and_cannot_fork_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let at = Location::File(folder.path().join("treadle.db"));
    let first = open(&at).await.unwrap();
    let second = open(&at).await.unwrap();
    first.append(&rows::events(1..=3)).await.unwrap();
    assert_eq!(second.last_seq().await.unwrap(), 3);
    second.append(&rows::events(4..=4)).await.unwrap();
    let error = first.append(&rows::events(4..=4)).await.unwrap_err();
    assert!(
        error.to_string().contains("event 4 doesn't follow event 4"),
        "{error}"
    );
}
