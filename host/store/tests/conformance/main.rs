//! One test suite for all implementations of `Store`.

mod access;
mod actions;
mod backends;
mod bodies;
mod broken;
mod cluster;
mod durability;
mod journal;
mod leadership;
mod measured;
mod pages;
mod private;
mod projections;
mod refusals;
mod reopen;
mod restarted;
mod rows;
mod salvage;
mod steps;

use backends::Scratch;

/// Runs a check of the suite on every store, each time on an empty one.
macro_rules! on_every_store {
    ($($suite:ident: $($check:ident),+;)+) => {
        mod in_memory {
            $($(#[tokio::test] async fn $check() {
                let store = treadle_store::open(&treadle_store::Location::Memory).await.unwrap();
                super::$suite::$check(&*store).await;
            })+)+
        }
        mod in_a_file {
            $($(#[tokio::test] async fn $check() {
                let scratch = super::backends::file();
                super::$suite::$check(&*scratch.open().await).await;
            })+)+
        }
        mod in_postgres {
            $($(#[tokio::test] async fn $check() {
                let Some(scratch) = super::backends::schema() else { return };
                let store = scratch.open().await;
                super::$suite::$check(&*store).await;
                store.close().await.unwrap();
            })+)+
        }
        mod in_a_file_restarted {
            $($(#[tokio::test] async fn $check() {
                let scratch = super::backends::file();
                let store = super::restarted::Restarted(scratch.at.clone());
                super::$suite::$check(&store).await;
            })+)+
        }
        mod in_postgres_restarted {
            $($(#[tokio::test] async fn $check() {
                let Some(scratch) = super::backends::schema() else { return };
                let store = super::restarted::Restarted(scratch.at.clone());
                super::$suite::$check(&store).await;
            })+)+
        }
    };
}

on_every_store!(
    access:
        tenants_and_tokens_replace_each_other,
        plugins_belong_to_their_uploader,
        the_audit_log_is_read_newest_first_and_stays_as_it_is,
        the_audit_log_is_bounded_in_bytes,
        names_of_others_are_left_out;
    actions:
        an_action_is_as_it_was_last_written,
        pages_of_actions_are_filtered_newest_first,
        actions_that_ended_long_ago_go,
        services_are_replaced_by_name;
    cluster:
        sinks_move_on_and_never_back,
        events_stay_for_sinks_within_a_bound,
        a_command_is_new_once,
        a_gateway_keeps_its_number,
        a_key_stays_what_it_was_first,
        bodies_come_back_as_they_were,
        payloads_of_training_stay_until_they_are_removed,
        bytes_of_payloads_stay_as_they_were_read,
        text_is_kept_as_it_is;
    journal:
        the_journal_counts_from_one_without_gaps,
        a_refused_batch_leaves_nothing,
        events_are_found_by_program_kind_and_range,
        batches_of_any_length_come_back_whole,
        decisions_come_back_in_order,
        the_newest_snapshots_stay,
        pruning_spares_what_recovery_needs,
        the_journal_is_bounded_in_bytes,
        bounds_are_errors,
        appends_from_many_tasks_are_serial;
    pages:
        lengths_are_those_of_the_programs_of_a_job_that_ended,
        samples_are_thinned_to_one_of_each_stretch,
        paging_through_programs_gives_every_one_once,
        paging_through_events_of_a_job_gives_every_one_once,
        decisions_are_filtered,
        paging_through_the_audit_log_gives_every_row_once;
    projections:
        a_later_row_replaces_an_earlier_one,
        a_reward_reaches_the_program_that_has_ended,
        programs_are_paged_newest_first,
        steps_are_paged_by_number,
        plugins_never_change,
        the_plugins_of_all_tenants_are_bounded_in_bytes,
        bindings_replace_each_other,
        what_a_policy_stored_goes_with_its_binding,
        pruning_takes_ended_programs_with_their_steps;
    steps:
        listed_steps_are_filtered_and_sorted,
        paging_through_steps_gives_every_one_once,
        pages_that_look_at_few_rows_give_every_step_once,
        decisions_are_found_across_programs;
    salvage:
        rows_that_no_store_can_hold_are_left_out,
        an_event_that_no_store_can_hold_leaves_its_number,
        more_rows_than_a_batch_may_have_fit,
        a_gap_is_still_one;
);

async fn is_there_after_a_reopen(scratch: &Scratch) {
    let store = scratch.open().await;
    reopen::fill(&*store).await;
    let before = reopen::dump(&*store).await;
    store.close().await.unwrap();
    drop(store);
    let store = scratch.open().await;
    assert_eq!(reopen::dump(&*store).await, before);
    reopen::goes_on(&*store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn everything_is_there_after_a_reopen() {
    is_there_after_a_reopen(&backends::file()).await;
    if let Some(schema) = backends::schema() {
        is_there_after_a_reopen(&schema).await;
    }
}

async fn sees_the_other_and_cannot_fork(scratch: &Scratch) {
    let first = scratch.open().await;
    let second = scratch.open().await;
    first.append(&rows::events(1..=3)).await.unwrap();
    assert_eq!(second.last_seq().await.unwrap(), 3);
    second.append(&rows::events(4..=4)).await.unwrap();
    let error = first.append(&rows::events(4..=4)).await.unwrap_err();
    assert!(
        error.to_string().contains("event 4 doesn't follow event 4"),
        "{error}"
    );
    first.close().await.unwrap();
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_second_store_sees_what_the_first_committed_and_cannot_fork_the_journal() {
    sees_the_other_and_cannot_fork(&backends::file()).await;
    if let Some(schema) = backends::schema() {
        sees_the_other_and_cannot_fork(&schema).await;
    }
}
