"""The seeded bugs by name: what each stands for, and which test or command must go red with it.

A process becomes one by TIDINGS_MUTANT=NAME: a gateway of the sweep or of chaos, and pytest by tests/conftest.py.
`make mutants` shows that each is caught; a seam that has changed makes its mutant Rotten, which is a failure too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.chaos import mutation_access as access
from tests.chaos import mutation_allowances as allowances
from tests.chaos import mutation_api as api
from tests.chaos import mutation_approvals as approvals
from tests.chaos import mutation_assistant as assistant
from tests.chaos import mutation_board as board
from tests.chaos import mutation_busy as busy
from tests.chaos import mutation_discord as discord
from tests.chaos import mutation_fairness as fairness
from tests.chaos import mutation_fence as fence
from tests.chaos import mutation_gate as gate
from tests.chaos import mutation_groups as groups
from tests.chaos import mutation_inbound as inbound
from tests.chaos import mutation_outbound as outbound
from tests.chaos import mutation_signs as signs
from tests.chaos import mutation_slack as slack
from tests.chaos import mutation_store as store
from tests.chaos import mutation_telegram as telegram
from tests.chaos import mutation_work as work

SCENARIOS = Path(__file__).resolve().parents[1] / "scenario"
# Names the mutant that a process becomes.
VARIABLE = "TIDINGS_MUTANT"


class Mutant(NamedTuple):
    # As in chaos.md, where it was seen in the field.
    bug: str
    become: Callable[[], None]
    # The test; or arguments of the sweep.
    caught_by: tuple[str, ...]

    @property
    def is_swept(self) -> bool:
        return self.caught_by[0].startswith("--")


def _test(file: str, name: str) -> tuple[str, ...]:
    (path,) = SCENARIOS.rglob(f"test_{file}.py")
    return (f"{path.relative_to(SCENARIOS.parents[1])}::test_{name}",)


def _telegram(name: str) -> tuple[str, ...]:
    return (f"tests/contract/test_telegram.py::{name}",)


def _security(file: str, name: str) -> tuple[str, ...]:
    return (f"tests/security/test_{file}.py::test_{file.split('_')[0]}_{name}",)


def _attack(backend: str, name: str) -> tuple[str, ...]:
    test = "test_an_attack_fails_behind_a_fence_and_local_is_none"
    return (f"tests/security/test_fence_attacks.py::{test}[{backend}-{name}]",)


def _swept(touching: str, checker: str, scenario: str = "ten") -> tuple[str, ...]:
    return "--scenario", scenario, "--touching", touching, "--until", checker


MUTANTS: dict[str, Mutant] = {
    mutant.become.__name__.replace("_", "-"): mutant
    for mutant in (
        Mutant(
            "F18: a bot with nothing to add warns the whole group",
            groups.overheard_silence_fails,
            _test("group_silence", "a_bot_may_say_nothing_to_what_it_only_overhears"),
        ),
        Mutant(
            "F7: two bots talk without end",
            groups.bots_answered_without_end,
            _test("bot_exchanges", "two_gateways_that_answer_each_other_stop"),
        ),
        Mutant(
            "F7: a restart winds two bots up again",
            groups.bots_counted_in_memory,
            _test("bot_exchanges", "of_a_bot_s_messages_one_is_answered_until_a_person_writes"),
        ),
        Mutant(
            "/listen outlives its time",
            groups.listens_for_ever,
            _test("listen", "it_listens_to_one_person_in_one_chat_until_the_time_is_over"),
        ),
        Mutant(
            "F7: a reply counts where only mentions do",
            groups.reply_counts_as_a_mention,
            _test("platform_groups", "where_only_mentions_count_a_reply_on_telegram_does_not"),
        ),
        Mutant("I1: confirmed, then killed", inbound.acknowledge_before_commit, _swept("INSERT INTO inbox", "acked")),
        Mutant(
            "M10: outcome without delivery",
            inbound.delivery_in_second_transaction,
            _swept("INSERT INTO history", "lost"),
        ),
        Mutant(
            "woken for a row that is not there",
            store.announced_before_the_commit,
            (
                "tests/contract/test_stores.py::TestSqlite"
                "::test_what_a_unit_announces_is_heard_after_its_commit_and_before_its_caller_goes_on",
            ),
        ),
        Mutant(
            "woken for a row that was undone",
            store.undone_step_announces,
            (
                "tests/contract/test_stores.py::TestSqlite::test_a_step_that_is_undone_leaves_neither_rows_nor_announcements",
            ),
        ),
        Mutant(
            "lost wake-up, lost delivery",
            store.lanes_only_by_wakeup,
            _test("wakeups", "a_notice_and_the_reply_to_a_command_arrive"),
        ),
        Mutant(
            "lost wake-up, lost stop",
            store.stops_only_by_wakeup,
            _test("wakeups", "a_stop_is_heard_of_by_the_run"),
        ),
        Mutant(
            "lost wake-up, endless stream",
            store.readers_only_by_wakeup,
            _test("wakeups", "a_reader_of_a_run_sees_all_of_it"),
        ),
        Mutant(
            "one text stops everything",
            assistant.fence_reads_a_text_again_and_again,
            ("tests/security/test_linear_time.py::test_no_pattern_takes_the_square_of_a_text",),
        ),
        Mutant(
            "a person speaks for the gateway",
            assistant.people_bear_the_mark,
            _test("assistant_memory", "a_line_that_a_person_typed_does_not_bear_the_mark_of_the_gateway"),
        ),
        Mutant(
            "tools that were not given",
            assistant.errand_knows_every_server,
            ("tests/unit/test_toolbox.py::test_a_delegate_hands_on_no_server_of_tools_that_it_was_not_given",),
        ),
        Mutant(
            "told in confidence, shown to all",
            inbound.notes_shown_to_everybody,
            _test("memory", "what_was_noted_in_private_does_not_show_in_a_group"),
        ),
        Mutant(
            "M1: replayed after a crash",
            outbound.no_doubtful_state,
            _test("outbound_restart", "a_send_that_was_cut_off_is_settled_by_what_the_platform_can_prove"),
        ),
        Mutant(
            "PTB #1045: delivered three times",
            outbound.blind_resend,
            _test("delivery", "a_doubt_that_nobody_can_settle_is_repeated_once_and_marked_by_edit"),
        ),
        Mutant(
            "M4: ambiguous, so dropped",
            outbound.drop_when_in_doubt,
            _test("delivery", "a_doubt_that_can_be_settled_ends_in_exactly_one_copy"),
        ),
        Mutant(
            "a tool that knows no session",
            inbound.session_not_bound_in_a_thread,
            _test("session", "fifty_conversations_at_once_see_only_their_own_identity"),
        ),
        Mutant(
            "M11: limited rows never retried",
            outbound.final_dropped_after_a_rate_limit,
            _test("delivery", "a_rate_limited_answer_waits_as_long_as_told_and_arrives_once"),
        ),
        Mutant(
            "M20: not one terminal event",
            inbound.terminal_event_twice,
            _test("runs", "every_reader_gets_the_same_suffix_live_and_after_a_restart"),
        ),
        Mutant(
            "M11: boot retries inside the ban",
            outbound.retry_after_forgotten_on_restart,
            _test("delivery", "a_rate_limit_survives_a_restart_for_everything_that_goes_there"),
        ),
        Mutant(
            "M12: abandoned with 0 sends",
            outbound.attempt_counted_though_nothing_was_sent,
            _test("delivery", "what_is_owed_in_an_outage_goes_out_in_order_when_it_is_over"),
        ),
        Mutant(
            "/stop lost in a handover",
            inbound.forget_the_run_that_follows,
            _test("commands", "stop_reaches_a_run_that_is_being_handed_over"),
        ),
        Mutant(
            "a clean stop claims for nobody",
            inbound.claim_while_stopping,
            _test("commands", "a_message_that_was_claimed_just_before_a_clean_stop_waits_again"),
        ),
        Mutant(
            "an album that others complete",
            inbound.anybody_completes_an_album,
            _test("inbound", "another_persons_message_does_not_complete_an_album"),
        ),
        Mutant(
            "one unit poisons its commit",
            inbound.a_units_fault_is_the_stores,
            _test("store_bad_days", "an_os_error_of_one_unit_is_told_to_its_caller_alone"),
        ),
        Mutant(
            "M7: redelivery runs twice",
            inbound.dedupe_only_in_memory,
            _test("inbound", "a_message_told_again_after_a_restart_is_known"),
        ),
        Mutant(
            "M6: partial send replayed whole",
            outbound.parts_resent_whole,
            _test("long_answers", "a_limit_on_the_second_part_loses_and_repeats_nothing"),
        ),
        Mutant(
            "M2: drained only at startup",
            inbound.sweeper_only_at_boot,
            _test("delivery", "a_row_that_nobody_woke_is_found_by_the_sweeper"),
        ),
        Mutant(
            "I21: a reboot forty days ahead",
            store.far_clock_believed_at_once,
            _test("store_bad_days", "after_a_reboot_with_a_clock_that_is_far_off_time_goes_on_from_where_it_was"),
        ),
        Mutant(
            "I21: pruned by a wrong date",
            store.pruned_by_a_clock_that_may_be_wrong,
            _test("retention", "nothing_is_pruned_while_the_clock_may_be_wrong"),
        ),
        Mutant(
            "a request's whole history for ever",
            store.single_requests_kept_for_ever,
            _test("retention", "a_conversation_that_nobody_comes_back_to_goes_with_all_that_was_said_there"),
        ),
        Mutant(
            "store: false, then killed",
            store.wish_to_forget_only_in_memory,
            _test("forgetting", "what_shall_be_forgotten_goes_although_the_process_was_killed"),
        ),
        Mutant(
            "erased while it is owed",
            store.forgotten_before_it_was_delivered,
            _test("forgetting", "what_shall_be_forgotten_stays_until_its_answer_has_arrived"),
        ),
        Mutant(
            "hidden, and remembered",
            store.forgotten_but_remembered,
            _test("forgetting", "what_a_bot_remembers_of_it_goes_too_and_what_came_before_and_after_stays"),
        ),
        Mutant(
            "M3: permanent error retried",
            outbound.permanent_error_retried,
            _test("delivery", "what_is_rejected_is_dead_with_its_reason_and_the_next_contact_begins_with_it"),
        ),
        Mutant(
            "M5: not sent, taken for ambiguous",
            outbound.failure_before_dispatch_is_a_doubt,
            _test("delivery", "what_is_owed_in_an_outage_goes_out_in_order_when_it_is_over"),
        ),
        Mutant(
            "M5: not sent, taken for permanent",
            outbound.misconfigured_is_lost,
            _test("delivery", "a_refused_token_holds_what_is_owed_until_the_next_start"),
        ),
        Mutant(
            "M13: redelivery not marked",
            outbound.marker_missing,
            _test("delivery", "where_nothing_can_be_edited_the_marked_copy_is_a_message"),
        ),
        Mutant(
            "M14: other body, same key",
            outbound.key_reused_for_a_changed_body,
            _test("delivery", "what_the_platform_finds_too_long_is_composed_smaller_and_each_part_arrives_once"),
        ),
        Mutant(
            "M16: given up, and the notice too",
            outbound.losses_never_told,
            _test("delivery", "two_lost_in_a_row_are_unconfirmed_and_the_next_contact_says_so"),
        ),
        Mutant(
            "M18: a promise nobody can keep",
            inbound.promise_where_nothing_can_be_pushed,
            _test("session", "a_promise_is_refused_where_nothing_can_be_pushed_later"),
        ),
        Mutant(
            "M19: in another place",
            outbound.answer_beside_its_thread,
            _test("delivery", "a_result_that_comes_later_appears_where_the_work_was_begun"),
        ),
        Mutant(
            "I8: answers in disorder",
            outbound.newest_first,
            _test("outbound_restart", "what_waited_goes_out_in_order"),
        ),
        Mutant(
            "I11: paid twice",
            inbound.effect_repeated_after_restart,
            _test("recovery", "a_tool_with_an_effect_is_never_run_again"),
        ),
        Mutant(
            "3.2: a poisoned message",
            inbound.crash_loop_for_ever,
            _test("recovery", "a_message_that_kills_the_process_does_so_three_times_at_most"),
        ),
        Mutant(
            "I15: typing for ever",
            outbound.typing_outlives_the_run,
            _test("signals", "typing_never_outlives_the_run"),
        ),
        Mutant(
            "freeze: each show of a long answer",
            outbound.growing_answer_composed_whole,
            _test("streaming", "what_is_composed_of_an_answer_that_grows_is_linear_in_its_length"),
        ),
        Mutant(
            "freeze: a long final",
            outbound.long_final_composed_on_the_loop,
            _test("streaming", "a_long_final_is_composed_while_the_loop_goes_on"),
        ),
        Mutant(
            "done, and no answer there",
            outbound.done_before_delivered,
            _test("signals", "a_message_is_done_only_when_its_answer_has_arrived"),
        ),
        Mutant(
            "a sign that outlives its run",
            signs.sign_ends_with_its_process,
            _test("signs", "a_message_that_waited_through_a_crash_is_marked_when_its_quick_answer_arrives"),
        ),
        Mutant(
            "waiting, and already at work",
            signs.waiting_shown_at_work,
            _test("signs", "waiting_is_not_shown_once_the_run_has_begun"),
        ),
        Mutant(
            "signs one beside the other",
            signs.reactions_stacked,
            _test("platform_signs", "each_sign_takes_the_place_of_the_one_before"),
        ),
        Mutant(
            "an album of which one picture was answered",
            signs.joined_messages_keep_their_sign,
            _test("signs", "every_message_of_an_album_shows_how_its_run_stands"),
        ),
        Mutant(
            "done, and no answer ever",
            outbound.dead_answer_marked_as_done,
            _test("signals", "an_answer_that_the_platform_refuses_for_good_means_failed"),
        ),
        Mutant(
            "PTB: acknowledged in memory",
            telegram.offset_before_the_commit,
            _telegram("TestPrivateChats::test_a_message_is_confirmed_only_after_it_was_received"),
        ),
        Mutant(
            "PTB #1045: asked again, sent twice",
            telegram.doubtful_call_repeated,
            _telegram("TestPrivateChats::test_a_call_in_doubt_is_not_repeated_by_the_adapter"),
        ),
        Mutant(
            "M19: in General, not in its topic",
            telegram.topic_dropped_from_a_send,
            _telegram("TestGroups::test_a_view_in_a_thread_stays_in_it"),
        ),
        Mutant(
            "a flood answered by more of it",
            telegram.plain_words_after_a_flood,
            _telegram("TestPrivateChats::test_an_error_is_the_right_verdict"),
        ),
        Mutant(
            "a draft that waits, taken for none",
            telegram.flood_on_a_draft_opens_a_message,
            _test("telegram_streaming", "a_flood_on_a_draft_is_no_reason_to_edit_instead"),
        ),
        Mutant(
            "a late press of stop ends the next answer",
            telegram.old_button_stops_what_runs_now,
            _test("telegram_streaming", "a_late_press_of_stop_neither_stops_the_next_run_nor_says_anything"),
        ),
        Mutant(
            "no drafts on a server without the button",
            telegram.button_of_an_older_server,
            _test("telegram_streaming", "a_server_that_is_older_than_the_stop_of_drafts_shows_them_all_the_same"),
        ),
        Mutant(
            "the cursor runs ahead of the store",
            discord.cursor_before_the_message,
            _test("discord_resume", "a_crash_at_any_moment_loses_no_message_and_repeats_none"),
        ),
        Mutant(
            "a new nonce for each try",
            discord.nonce_by_lot,
            _test("discord_answers", "an_answer_in_doubt_is_there_once"),
        ),
        Mutant(
            "an answer pings @everyone",
            discord.mentions_as_the_library_has_them,
            _test("discord_groups", "nobody_is_pinged_whatever_is_said_and_by_whatever_way"),
        ),
        Mutant(
            "catch-up answers twice",
            discord.key_of_the_event,
            _test("discord_inbound", "a_message_told_twice_is_answered_once"),
        ),
        Mutant(
            "ephemeral, so said in public",
            discord.private_answer_said_to_all,
            _test("discord_answers", "a_private_answer_that_is_too_late_is_not_said_to_all"),
        ),
        Mutant(
            "two bots without an end",
            discord.own_words_heard,
            ("tests/unit/test_discord_parse.py::test_what_is_nobody_s_message_is_not_heard",),
        ),
        Mutant(
            "first words at the same moment",
            discord.places_kept_over_each_other,
            _test("discord_resume", "everybody_who_wrote_first_at_the_same_moment_is_found_after_a_restart"),
        ),
        Mutant(
            "what no RESUME covers is lost",
            discord.gap_between_two_sessions,
            _test("discord_resume", "a_session_that_is_forgotten_is_followed_by_another_that_finds_what_was_said"),
        ),
        Mutant(
            "our clock is ahead of Discord's: an unmarked second copy",
            discord.discord_window_by_our_clock,
            _test("discord_answers", "a_doubt_is_settled_by_discords_own_clock_however_ours_is_set"),
        ),
        Mutant(
            "an equal text is another part's receipt",
            outbound.one_message_proves_many,
            _test("discord_answers", "an_equal_notice_is_never_another_notices_receipt_also_after_a_crash"),
        ),
        Mutant(
            "reactions run into a 429",
            discord.reactions_at_any_time,
            _test("discord_answers", "reactions_keep_their_distance_whatever_becomes_of_them"),
        ),
        Mutant(
            "no right to open a thread: no answer",
            discord.a_thread_or_nothing,
            _test("discord_groups", "where_no_thread_can_be_opened_the_answer_stands_below_the_question"),
        ),
        Mutant(
            "Bolt: acknowledged, then stored",
            slack.acknowledged_before_the_listener,
            _test("slack_inbound", "what_could_not_be_stored_is_not_confirmed_and_comes_again"),
        ),
        Mutant(
            "Bolt: unknown team, acknowledged",
            slack.unknown_workspace_authorized_as_none,
            _test("slack_inbound", "a_workspace_whose_account_is_not_up_yet_is_not_confirmed_by_another"),
        ),
        Mutant(
            "Bolt: an assistant deaf to edits",
            slack.assistant_as_bolt_has_it,
            _test("slack_inbound", "an_edit_and_a_deletion_in_the_assistant_pane_count_as_anywhere"),
        ),
        Mutant(
            "message and app_mention are two",
            slack.mention_is_another_message,
            _test("slack_inbound", "a_mention_comes_as_two_events_and_is_one_run_with_one_answer_in_its_thread"),
        ),
        Mutant(
            "the library sends it again",
            slack.retries_as_the_library_has_them,
            ("tests/unit/test_slack_client.py::test_a_connection_that_breaks_leaves_a_doubt_and_no_second_copy",),
        ),
        Mutant(
            "M19: outside of its thread",
            slack.thread_dropped_from_a_post,
            _test("slack_inbound", "five_messages_at_once_in_five_threads_get_five_answers_in_their_threads"),
        ),
        Mutant(
            "forged metadata is believed",
            slack.any_metadata_is_proof,
            ("tests/unit/test_slack_sending.py::test_metadata_that_another_app_has_forged_proves_nothing",),
        ),
        Mutant(
            "no status where there are no sessions",
            slack.sessions_or_nothing,
            _test("slack_threads", "an_app_without_sessions_shows_its_work_as_before_and_asks_for_them_once"),
        ),
        Mutant(
            "a session that works for ever after a stop",
            slack.session_left_at_work,
            _test("slack_threads", "a_stop_in_slacks_own_way_stops_that_run_and_ends_the_work_of_its_session"),
        ),
        Mutant(
            "a stop of nobody knows whom",
            slack.anybodys_stop_counts,
            _test(
                "slack_threads",
                "a_stream_that_slack_says_was_stopped_is_a_stop_where_only_one_person_could_press_it",
            ),
        ),
        Mutant(
            "our clock is ahead of Slack's: an unmarked second copy",
            slack.window_by_our_clock,
            _test("slack_trouble", "a_doubt_is_settled_by_slacks_own_clock_however_ours_is_set"),
        ),
        Mutant(
            "CVE-2026-28472: presence of a key",
            api.any_key_is_right,
            _security("s5_comparison", "the_value_of_a_key_is_compared_and_not_its_presence"),
        ),
        Mutant(
            "ten wrong keys lock out the right one",
            api.wrong_keys_lock_out_the_right_one,
            _security("s6_guesses", "the_right_key_passes_however_many_wrong_ones_came"),
        ),
        Mutant(
            "openclaw #57647: limiter bypassed",
            api.wrong_keys_at_full_speed,
            _security("s6_guesses", "each_wrong_key_is_answered_later_than_the_one_before"),
        ),
        Mutant(
            "idle connections close the listener",
            api.idle_connections_keep_their_places,
            _test("http_listener", "connections_that_show_nothing_make_room_for_who_comes_later"),
        ),
        Mutant(
            "CVE-2026-44553: outlives revocation",
            api.stream_outlives_its_key,
            _security("s7_revoked", "an_idle_stream_ends_although_nothing_happens_in_it"),
        ),
        Mutant(
            "S7: a stream outlives its person",
            api.stream_outlives_its_person,
            _security("s7_revoked", "streams_end_with_the_person_whose_key_it_is"),
        ),
        Mutant(
            "D2: scopes without a role",
            api.routes_without_a_role,
            _security("s8_scopes", "a_key_with_every_scope_opens_what_its_persons_role_permits"),
        ),
        Mutant(
            "C7: a header user is the holder",
            api.named_person_is_the_holder,
            _test("api_tenants", "whom_a_client_names_is_a_member_at_most"),
        ),
        Mutant(
            "a bound key writes anywhere",
            api.bound_in_words_only,
            _test("api_tenants", "a_key_is_bound_to_targets_and_writes_nowhere_else"),
        ),
        Mutant(
            "a member changes others' jobs",
            api.everybodys_jobs,
            _test("api_tenants", "a_members_jobs_are_theirs_and_others_do_not_exist"),
        ),
        Mutant(
            "GHSA-rqpp: self-declared scopes",
            api.scopes_by_the_client,
            _security("s8_scopes", "a_key_opens_what_it_was_made_for_and_nothing_else"),
        ),
        Mutant(
            "CVE-2026-45671: another's objects",
            api.anybodys_run,
            _security("s9_objects", "two_keys_and_all_routes_with_an_id"),
        ),
        Mutant(
            "nanobot #3492: any tab may post",
            api.any_page_may_post,
            _security("s3_browsers", "what_a_form_can_post_is_not_taken"),
        ),
        Mutant(
            "DNS rebinding",
            api.any_name_leads_here,
            _security("s3_browsers", "a_foreign_name_is_misdirected"),
        ),
        Mutant(
            "Open WebUI: a silent failure",
            api.error_beside_the_choice,
            _test("api_recorded", "a_real_client_is_answered_as_it_understands[open-webui-chat fail-streamed]"),
        ),
        Mutant(
            "openai-agents: Tool not found",
            api.tools_as_the_clients_own,
            _test("api_recorded", "a_real_client_is_answered_as_it_understands[openai-agents-responses tools]"),
        ),
        Mutant(
            "AI SDK: a failed turn, three times",
            api.every_failure_is_repeated,
            _test("api_recorded", "a_real_client_is_answered_as_it_understands[ai-sdk-chat fail]"),
        ),
        Mutant(
            "another's items by their ids",
            api.anybodys_items,
            _test("api_items", "an_item_that_is_not_there_or_anothers_is_not_found"),
        ),
        Mutant(
            "a person who says who they are",
            api.person_by_the_body,
            _test("api_openwebui", "what_a_person_writes_into_the_body_does_not_make_them_somebody_else"),
        ),
        Mutant(
            "a title, stored in the talk",
            api.titles_in_the_talk,
            _test("api_openwebui", "titles_tags_and_follow_ups_are_no_part_of_the_talk"),
        ),
        Mutant(
            "Input should be a valid string",
            api.validators_own_words,
            _test("api_chat", "what_is_wrong_is_said_in_a_sentence_and_at_its_place"),
        ),
        Mutant(
            "half an answer, taken for whole",
            assistant.stream_that_stops_is_whole,
            _test("assistant_failures", "every_failure_is_told_once_and_truly_on_every_surface[chat-whole-spoken]"),
        ),
        Mutant(
            "a 401, said as the model's words",
            assistant.refusal_is_an_answer,
            _test("assistant_asking", "what_will_not_pass_is_neither_repeated_nor_asked_of_another"),
        ),
        Mutant(
            "nothing, taken for an answer",
            assistant.empty_answer_completes,
            _test("assistant_failures", "every_failure_is_told_once_and_truly_on_every_surface[chat-whole-spoken]"),
        ),
        Mutant(
            "a retry doubles the text",
            assistant.words_said_again_after_a_break,
            _test("assistant_asking", "nothing_is_repeated_once_a_word_is_out"),
        ),
        Mutant(
            "/health waits for 100 turns",
            assistant.turns_prepared_all_at_once,
            _test("assistant_crowd", "others_are_served_while_a_hundred_turns_begin_at_once"),
        ),
        Mutant(
            "the garbage collector stops everybody",
            assistant.libraries_looked_through_again,
            _test("reload", "what_was_brought_in_is_frozen_once_and_only_when_every_bot_is_ready"),
        ),
        Mutant(
            "who waits is overtaken",
            assistant.turnstile_without_an_order,
            ("tests/unit/test_turnstile.py::test_whoever_comes_while_others_wait_does_not_overtake_them",),
        ),
        Mutant(
            "an effect that nobody permitted",
            assistant.tool_that_nobody_named,
            _test("assistant_tools", "the_terminal_is_refused_unless_it_is_named"),
        ),
        Mutant(
            "the bot does what a guest wants",
            assistant.toolbox_forgets_the_role,
            _security("s18_deputies", "a_guest_right_after_the_owner_gets_nothing_done"),
        ),
        Mutant(
            "a summary of others' words is ours",
            gate.taint_forgotten_after_compaction,
            ("tests/security/test_s21_taint.py::test_taint_lasts_as_long_as_the_memory_and_no_longer",),
        ),
        Mutant(
            "a page's words are the person's",
            gate.taint_of_results_overlooked,
            ("tests/security/test_s21_taint.py::test_no_text_of_others_makes_an_allowed_tool_act",),
        ),
        Mutant(
            "git status; rm -rf ~",
            gate.rule_matched_on_text,
            _test("assistant_approvals", "a_rule_lets_its_words_run_at_once_and_nothing_else"),
        ),
        Mutant(
            "approved, then exchanged",
            gate.digest_not_compared,
            _test("assistant_approvals", "a_program_that_was_exchanged_meanwhile_is_asked_about_anew"),
        ),
        Mutant(
            "denied, and run",
            gate.denied_verdict_runs,
            _test("assistant_approvals", "a_denial_and_an_expiry_are_results_that_the_model_sees"),
        ),
        Mutant(
            "forbidden since it was approved",
            gate.verdict_above_the_settings,
            (
                *_test("assistant_approvals", "what_the_settings_deny_meanwhile_stays_unrun_though_it_was_approved"),
                *_test("hosted_approvals", "settings_and_role_come_before_the_verdict"),
            ),
        ),
        Mutant(
            "a hosted agent asks nobody",
            gate.hosted_gate_open,
            _test("hosted_approvals", "a_tool_acts_once_after_it_was_approved"),
        ),
        Mutant(
            "I11: done again after the answer",
            gate.question_repeats_the_round,
            _test("assistant_approvals", "two_questions_of_one_round_come_one_after_the_other_and_nothing_is_repeated"),
        ),
        Mutant(
            "a lower role waits for the next run",
            assistant.run_keeps_the_role_it_began_with,
            (
                *_test("assistant_tools", "a_person_with_a_lower_role_gets_nothing_more_done_by_the_run_at_work"),
                *_test("hosted", "a_person_with_a_lower_role_gets_nothing_more_done_by_the_run_at_work"),
            ),
        ),
        Mutant(
            "what others planned is changed",
            assistant.model_changes_what_others_planned,
            _security("s18_deputies", "a_member_changes_no_schedule_of_somebody_else_by_the_model"),
        ),
        Mutant(
            "a retry lends its rights",
            inbound.retry_lends_its_rights,
            _security("s18_deputies", "a_guests_words_stay_a_guests_when_the_owner_has_them_answered_again"),
        ),
        Mutant(
            "audited when it is over",
            inbound.audit_after_the_effect,
            _test("effects_audited", "an_effect_is_known_before_it_happens_and_once_after_a_crash"),
        ),
        Mutant(
            "the last effect is in no audit",
            inbound.settlement_audits_nobody,
            _test("effects_audited", "what_the_journal_had_not_stored_is_audited_with_the_end_of_the_run"),
        ),
        Mutant(
            "an errand takes a confidence along",
            inbound.notes_follow_an_errand_anywhere,
            _test("notes_of_people", "a_schedule_made_in_private_takes_no_private_note_into_a_group"),
        ),
        Mutant(
            "I11: acts, then says that it began",
            assistant.tool_acts_before_it_is_stored,
            _test("assistant_tools", "a_tool_that_acts_finds_itself_stored_as_started"),
        ),
        Mutant(
            "a page gives orders",
            assistant.others_words_unfenced,
            _test("assistant_tools", "what_others_wrote_is_fenced_also_when_it_is_an_error"),
        ),
        Mutant(
            "the answer ends at the first call",
            assistant.first_call_ends_the_answer,
            _test("assistant_tools", "words_before_between_and_after_three_calls_all_arrive"),
        ),
        Mutant(
            "a guard rail halts in silence",
            assistant.halt_without_a_word,
            _test("assistant_limits", "the_same_call_is_warned_of_and_then_halted"),
        ),
        Mutant(
            "S14: an empty list admits all",
            access.empty_list_admits_everybody,
            _test("access", "a_stranger_in_private_is_told_their_id_and_how_to_be_admitted"),
        ),
        Mutant(
            "S14: a removed person's plans go on",
            access.removed_people_go_on,
            _test("withdrawal", "what_a_removed_person_scheduled_no_longer_runs_and_the_owner_is_told_once"),
        ),
        Mutant("S14: two lists become one", access.lists_merge, _test("withdrawal", "the_two_lists_stay_apart")),
        Mutant(
            "anybody takes the home",
            access.anybody_takes_the_home,
            _test("homes", "only_an_owner_or_admin_takes_the_home_and_the_old_one_is_told"),
        ),
        Mutant(
            "S16: a group makes owners",
            access.owner_by_group,
            _test("homes", "only_an_owner_or_admin_takes_the_home_and_the_old_one_is_told"),
        ),
        Mutant(
            "a door without the check",
            access.door_without_the_check,
            _test("roles", "a_guest_talks_where_their_group_is_admitted_and_nowhere_else"),
        ),
        Mutant(
            "a removed entry that still admits",
            access.removed_entry_still_admits,
            _swept("DELETE FROM identities", "people", "people"),
        ),
        Mutant(
            "a change of people that is missed",
            access.second_change_unseen,
            _test("people_amended", "after_any_series_of_changes_the_gateway_knows_what_the_store_says"),
        ),
        Mutant(
            "a merged person who is still there",
            access.merged_person_stays,
            _test("people_amended", "after_any_series_of_changes_the_gateway_knows_what_the_store_says"),
        ),
        Mutant("S15: a code used twice", access.reusable_code, _swept("UPDATE codes", "people", "people")),
        Mutant("S15: a code for ever", access.expired_code, _test("pairing", "a_code_expires_after_an_hour")),
        Mutant(
            "S15: codes are guessed",
            access.codes_without_limit,
            _test("pairing", "five_wrong_codes_close_admitting_by_code_for_an_hour_also_after_a_restart"),
        ),
        Mutant(
            "a link by text",
            access.link_by_text,
            _test("linking", "what_somebody_says_about_themselves_links_nothing"),
        ),
        Mutant(
            "D2: a link raises its maker",
            access.link_raises_its_maker,
            _test("linking", "a_code_never_raises_the_one_who_made_it"),
        ),
        Mutant(
            "told that they are in, then killed",
            access.admitted_after_the_welcome,
            _swept("UPDATE codes", "people", "people"),
        ),
        Mutant(
            "a stranger nobody hears of",
            access.owner_asked_behind_the_code,
            _swept("INSERT INTO codes", "people", "people"),
        ),
        Mutant(
            "a paired message answered twice",
            access.paired_message_under_another_key,
            _swept("UPDATE codes", "people", "people"),
        ),
        Mutant("a press answered twice", access.press_not_stored, _swept("UPDATE codes", "people", "people")),
        Mutant(
            "a removed person's plans fire",
            access.lapsed_plans_fire,
            _swept("DELETE FROM identities", "people", "people"),
        ),
        Mutant(
            "S18: the board goes around the rules",
            access.card_for_anybody,
            _test("board_places", "a_card_from_a_chat_goes_to_no_bot_and_no_worker_that_the_rules_do_not_give_there"),
        ),
        Mutant(
            "a card's folder is anybody's",
            access.folder_of_others,
            _test("board_places", "the_folder_of_a_card_is_named_only_where_the_card_was_made"),
        ),
        Mutant(
            "S26: the owner's key in the journal",
            access.key_in_the_journal,
            _security("s2_keys_required", "the_key_is_known_to_redaction_before_anything_is_told"),
        ),
        Mutant(
            "I14: a zombie's verdict counts",
            board.late_verdict_counts,
            _test("board", "archiving_a_running_card_ends_its_worker_and_its_late_verdict_is_refused"),
        ),
        Mutant(
            "A27: the second block is silent",
            board.second_block_is_no_news,
            _test("board", "a_dead_chat_delays_nobody_and_a_second_block_is_told_too"),
        ),
        Mutant(
            "3.5: retried behind an effect",
            board.effect_tried_again,
            _test("board_processes", "a_worker_that_is_a_process_always_ends_in_a_verdict[effect]"),
        ),
        Mutant(
            "A26: the worker outlives its card",
            board.worker_outlives_its_card,
            _test("board_processes", "archiving_ends_the_whole_process_group"),
        ),
        Mutant(
            "A11: told twice",
            work.notice_without_its_key,
            _test("api_notify", "a_key_owes_one_notice_however_often_and_whenever_it_is_used"),
        ),
        Mutant(
            "I13: promised to nobody",
            work.promise_where_nobody_can_be_told,
            _test("background", "a_promise_that_nobody_could_hear_of_is_refused_before_anything_begins"),
        ),
        Mutant(
            "I13: woken, and silent",
            work.woken_and_silent,
            _test("background", "a_wake_goes_on_with_the_conversation_and_is_never_silent[True]"),
        ),
        Mutant(
            "a number that is another's now",
            work.adopted_by_number_alone,
            _test("processes", "another_process_with_its_number_is_left_alone"),
        ),
        Mutant(
            "it runs, and nobody knows",
            work.begins_before_it_is_known,
            _test("processes", "a_killed_gateway_leaves_nothing_unowned_and_the_next_starts_nothing_twice[bg.spawned]"),
        ),
        Mutant(
            "I21: an instant is fired twice",
            work.instant_fired_again,
            _test("schedules", "an_instant_that_comes_again_after_a_jump_back_is_not_run_again"),
        ),
        Mutant(
            "I11: run again after a kill",
            work.cut_off_command_runs_again,
            _test("schedules", "a_command_that_a_kill_cut_off_is_told_as_interrupted_and_not_run_again"),
        ),
        Mutant(
            "A33: to whoever wrote last",
            work.job_answers_whoever_wrote_last,
            _test("schedules", "an_answer_goes_to_the_stored_target_whoever_wrote_last"),
        ),
        Mutant(
            "I13: lost without a word",
            work.lost_and_not_told,
            _test("recovery", "a_task_that_was_at_work_is_started_again_or_reported_lost[False]"),
        ),
        Mutant(
            "A10: polling uses up the notice",
            work.polling_uses_up_the_notice,
            _test("processes", "looking_at_it_does_not_use_up_its_notice"),
        ),
        Mutant(
            "A12: a notice in a person's mouth",
            work.notice_as_a_persons_words,
            _test("background", "a_notice_is_remembered_as_one_and_starts_no_turn"),
        ),
        Mutant(
            "A12: a notice is remembered where it was addressed, not where it landed",
            work.notice_remembered_where_it_was_addressed,
            _test("notices", "a_notice_to_a_person_on_slack_is_remembered_in_their_direct_messages"),
        ),
        Mutant(
            "A12: a reply below a post reaches the agent without it",
            work.reply_without_the_post_above_it,
            _test("notices", "a_reply_below_a_post_of_a_schedule_reaches_the_agent_with_what_it_said"),
        ),
        Mutant(
            "A12: each part of a notice is remembered as one of its own",
            work.notice_remembered_for_each_part,
            _test("notices", "a_notice_is_told_with_what_it_came_from_and_only_once_however_long_it_is"),
        ),
        Mutant(
            "A29: the alert dies as well",
            work.alert_where_the_trouble_is,
            _test("schedules", "a_delivery_that_dies_is_told_at_the_home_of_another_platform"),
        ),
        Mutant(
            "I13: failures are silent",
            work.end_of_a_failure_is_silent,
            _test("background", "a_failure_is_told_too"),
        ),
        Mutant(
            "A13: an entry that is not known",
            work.unknown_entry_breaks_the_reader,
            _test("recovery", "entries_of_a_newer_version_are_kept_and_break_neither_recovery_nor_a_reader"),
        ),
        Mutant(
            "lost under an old id",
            outbound.losses_told_under_one_id_only,
            _test("delivery", "a_loss_is_told_where_the_chat_lives_now"),
        ),
        Mutant(
            "moved twice, and forgotten",
            outbound.second_move_hides_where_it_began,
            _test("delivery", "a_chat_that_moved_twice_is_one_conversation_also_after_a_restart"),
        ),
        Mutant(
            "a verdict on another copy",
            outbound.decided_about_another_doubt,
            _test("deliveries", "who_asked_about_the_first_copy_decides_nothing_about_the_second"),
        ),
        Mutant(
            "asking goes wrong for ever",
            outbound.asks_for_ever,
            _test("delivery", "a_fault_in_reading_back_is_logged_and_the_doubt_is_settled_all_the_same"),
        ),
        Mutant(
            "half a command offline",
            outbound.half_of_it_is_done,
            _test("deliveries", "without_a_gateway_it_is_done_whole_or_not_at_all"),
        ),
        Mutant(
            "a traceback about a home",
            outbound.looks_where_it_may_not,
            _test("store_bad_days", "who_only_looks_at_a_home_that_cannot_be_looked_at_is_told_so"),
        ),
        Mutant(
            "ten retries, no memory",
            inbound.retries_crowd_out_the_memory,
            _test("memory", "however_often_it_is_tried_again_it_goes_back_to_the_same_memory"),
        ),
        Mutant(
            "the wrong exchange is undone",
            inbound.undone_by_arrival,
            _test("memory", "what_was_said_last_is_taken_back_though_it_came_in_first"),
        ),
        Mutant(
            "a card lost in sleep",
            board.sleep_counts_as_silence,
            _test("board_processes", "a_machine_that_slept_costs_no_worker_its_card"),
        ),
        Mutant(
            "a worker's time slept away",
            board.sleep_counts_as_work,
            _test("board_processes", "a_machine_that_slept_costs_no_worker_its_card"),
        ),
        Mutant(
            "an hour of jobs skipped, or twice",
            work.minutes_of_an_hour_are_an_interval,
            ("tests/unit/test_timing.py::test_minutes_of_a_named_hour_are_neither_skipped_nor_doubled",),
        ),
        Mutant(
            "a reader left behind by a prune",
            work.history_counts_anew,
            _test("retention", "who_reads_on_in_a_history_misses_nothing_when_all_before_it_was_pruned"),
        ),
        Mutant(
            "approver check left out on one door",
            api.anybody_answers_over_http,
            _test("api_approvals", "a_member_sees_their_question_and_waits_for_who_may_answer"),
        ),
        Mutant(
            "a foreign question is told apart",
            api.anybodys_questions,
            _test("api_approvals", "questions_of_others_do_not_exist"),
        ),
        Mutant(
            "a bound key approves for all bots",
            api.questions_of_every_bot,
            _test("api_approvals", "a_key_that_is_bound_to_bots_sees_their_questions_only"),
        ),
        Mutant(
            "hermes #51871: a stream hangs",
            api.chat_without_questions,
            _test("api_approvals", "every_stream_shows_the_question_and_the_answer"),
        ),
        Mutant(
            "a client waits half an hour",
            api.whole_answers_wait_for_people,
            _test("api_approvals", "who_waits_for_the_whole_answer_is_not_left_waiting"),
        ),
        Mutant(
            "questions keep the API's places",
            api.waiting_questions_keep_their_places,
            _test("api_approvals", "runs_that_wait_keep_no_place_from_others"),
        ),
        Mutant("a fence without a side", fence.network_not_unshared, _attack("bubblewrap", "a port of this machine")),
        Mutant("the home left in sight", fence.home_stays_visible, _attack("bubblewrap", "the owner's key")),
        Mutant(
            "open where it should close",
            fence.failed_probe_opens,
            ("tests/security/test_fence_attacks.py::test_where_no_wall_holds_nothing_starts",),
        ),
        Mutant("limits that bind nobody", fence.root_stays_root, _attack("bubblewrap", "a fork bomb")),
        Mutant(
            "a filter with no holes to fall into",
            fence.filter_lets_everything_through,
            _attack("landlock", "system calls that no command needs"),
        ),
        Mutant(
            "a listed name at a private address",
            fence.names_checked_and_addresses_not,
            ("tests/security/test_fence_ordinary.py::test_a_command_with_a_list_reaches_only_what_it_names",),
        ),
        Mutant(
            "the background runs free",
            fence.background_without_a_fence,
            _test("fenced_processes", "a_command_in_the_background_sees_nothing_of_the_gateway"),
        ),
        Mutant(
            "D5: approver check left out at the button",
            approvals.anybody_presses,
            _test(
                "platform_approvals",
                "presses_of_others_are_answered_to_them_alone_and_the_question_stays_open[telegram]",
            ),
        ),
        Mutant(
            "approver check left out at the command",
            approvals.anybody_approves_by_command,
            _test("approval_edges", "members_of_a_group_answer_only_their_own_questions"),
        ),
        Mutant(
            "I11: a verdict is applied twice",
            approvals.verdict_applied_twice,
            _swept("INSERT INTO journal", "effects", "approvals"),
        ),
        Mutant(
            "expiry that does not end the run",
            approvals.expiry_leaves_the_run,
            _test("approvals", "a_question_that_nobody_answers_expires_as_a_denial"),
        ),
        Mutant(
            "recovery runs what asks",
            approvals.recovery_runs_what_asks,
            _test("approvals", "a_question_survives_kills_and_holds_no_task"),
        ),
        Mutant(
            "a stop that leaves the question open",
            approvals.stop_leaves_the_question,
            _test("approvals", "stop_withdraws_the_question_and_ends_the_run"),
        ),
        Mutant(
            "an answer that can be given again",
            approvals.answered_again,
            _test("approvals", "a_second_answer_is_told_who_was_first"),
        ),
        Mutant(
            "an approval covers other words",
            approvals.approval_covers_other_words,
            _test("approvals", "an_approval_for_the_talk_covers_the_same_words_until_the_talk_ends"),
        ),
        Mutant(
            "D5: buttons work in another chat",
            approvals.buttons_work_everywhere,
            _test("platform_approvals", "forged_presses_answer_nothing[telegram]"),
        ),
        Mutant(
            "going on loses what was said",
            approvals.goes_on_with_its_words_lost,
            _test("approvals", "a_tool_acts_once_its_person_has_approved"),
        ),
        Mutant(
            "E9: asking holds a slot",
            approvals.asking_holds_a_slot,
            _test("approvals", "a_waiting_question_delays_no_other_chat"),
        ),
        Mutant(
            "expired by a doubted clock",
            approvals.deadline_by_a_doubted_clock,
            _test("approval_edges", "a_clock_that_nobody_trusts_expires_nothing_and_keeps_nobody_busy"),
        ),
        Mutant(
            "a stop after the approval goes unheard",
            approvals.stop_is_not_heard_after_the_approval,
            _test("approval_edges", "a_run_that_was_approved_and_waits_for_its_turn_can_be_stopped"),
        ),
        Mutant(
            "S14: forgotten words in an approval",
            approvals.standing_approval_outlives_its_run,
            _test("approval_edges", "what_was_asked_is_forgotten_with_its_run[Always]"),
        ),
        Mutant(
            "an allowance is counted before the commit",
            allowances.allowance_counted_before_the_commit,
            _test("allowances", "a_crash_between_claim_and_end_neither_loses_nor_doubles_a_reservation"),
        ),
        Mutant(
            "a window that never resets",
            allowances.window_that_never_resets,
            _test("allowances", "a_new_day_brings_a_new_allowance_and_a_new_line"),
        ),
        Mutant(
            "a reservation is given back twice",
            allowances.reservation_given_back_twice,
            _test("allowances", "a_crash_between_claim_and_end_neither_loses_nor_doubles_a_reservation"),
        ),
        Mutant(
            "a reservation is never given back",
            allowances.reservation_never_given_back,
            _test("allowances", "a_hundred_messages_at_once_get_the_tokens_of_ten_calls_and_at_most_one_more"),
        ),
        Mutant(
            "a run starts although others hold what is left",
            allowances.reservation_that_nobody_weighs,
            _test("allowances", "a_hundred_messages_at_once_get_the_tokens_of_ten_calls_and_at_most_one_more"),
        ),
        Mutant(
            "first in, first out",
            fairness.first_in_first_out,
            _test("fairness", "with_a_single_slot_a_newcomer_waits_for_the_run_in_progress[one chat]"),
        ),
        Mutant(
            "the door gives kept slots away",
            fairness.door_gives_kept_slots_away,
            _test("fairness", "a_newcomer_begins_at_once_beside_a_crowd[one chat]"),
        ),
        Mutant(
            "one person fills the queue",
            fairness.one_person_fills_the_queue,
            _test("fairness", "one_person_cannot_fill_the_queue_of_all"),
        ),
        Mutant("steer runs twice", busy.steer_runs_twice, _swept("INSERT INTO journal; UPDATE inbox", "busy", "busy")),
        Mutant("steer never runs", busy.steer_never_runs, _swept("INSERT INTO journal; UPDATE inbox", "busy", "busy")),
        Mutant(
            "a guest's words in an owner's run",
            busy.guests_are_collected,
            _test("busy", "a_guests_words_are_not_collected_into_an_owners_run"),
        ),
        Mutant(
            "interrupted by somebody else",
            busy.anybody_interrupts,
            _test("busy", "nobody_interrupts_somebody_elses_answer"),
        ),
        Mutant(
            "a burst of two people",
            busy.burst_joins_two_people,
            _test("busy", "bursts_of_two_people_are_two_runs"),
        ),
        Mutant(
            "what was heard is deleted",
            busy.heard_message_is_deleted,
            _test("busy", "a_message_is_changed_until_it_is_heard_and_not_after"),
        ),
        Mutant(
            "lost wake-up, unheard message",
            busy.messages_for_a_run_only_by_wakeup,
            _test("wakeups", "a_message_for_a_run_at_work_is_heard"),
        ),
        Mutant(
            "an album grows after it was heard",
            busy.album_grows_after_it_was_heard,
            _test("busy_edges", "a_picture_that_comes_after_its_album_was_heard_is_seen_too"),
        ),
        Mutant(
            "followers of a lost checkpoint",
            busy.followers_of_a_lost_checkpoint,
            _test("busy_edges", "after_a_kill_the_first_message_is_deleted_and_those_it_had_taken_in_stay"),
        ),
        Mutant(
            "a message for another bot steers",
            busy.other_bots_messages_steer,
            _test("busy_edges", "a_message_for_another_bot_does_not_join[steer]"),
        ),
    )
}


def become(name: str) -> None:
    if name:
        MUTANTS[name].become()
