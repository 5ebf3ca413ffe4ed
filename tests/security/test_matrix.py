"""Every threat that Weft withstands, and the tests that show it: a threat without one fails here.

Most talk to a real gateway over sockets. The rest reads the source, where no request can show that
something is never done.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

MATRIX: dict[str, tuple[str, ...]] = {
    "no key, a wrong key": (
        "security/test_auth.py::test_every_route_is_listed_here",
        "security/test_auth.py::test_without_a_right_key_nobody_comes_in",
        "security/test_auth.py::test_a_key_in_the_query_is_no_key",
        "security/test_auth.py::test_what_is_not_there_needs_a_key_too",
        "security/test_auth.py::test_other_methods_need_a_key_too",
    ),
    "keys that are compared or stored": (
        "security/test_attacks.py::test_keys_are_compared_by_their_digests_in_constant_time",
        "test_gateway_keys.py::test_a_key_is_long_and_random_and_only_its_digest_is_stored",
        "test_gateway_keys.py::test_keys_follow_the_store_and_the_door_never_opens_again",
    ),
    "open to others without a key": (
        "security/test_auth.py::test_without_keys_it_does_not_listen_to_others",
        "security/test_auth.py::test_with_a_stored_key_it_listens_to_others",
        "test_cli_run.py::test_a_worker_is_watched_where_it_is_told_to_listen",
    ),
    "DNS rebinding": (
        "security/test_auth.py::test_a_name_that_is_not_ours_is_misdirected",
        "security/test_auth.py::test_what_is_no_host_is_a_bad_request",
        "security/test_auth.py::test_no_host_and_two_hosts_are_a_bad_request",
        "security/test_auth.py::test_an_absolute_target_is_of_the_host",
        "security/test_auth.py::test_a_socket_is_not_opened_under_another_name",
    ),
    "CSRF, CORS": (
        "security/test_auth.py::test_a_foreign_page_may_not_ask",
        "security/test_auth.py::test_another_site_may_not_ask",
        "security/test_auth.py::test_no_page_is_told_that_it_may",
        "security/test_auth.py::test_without_keys_only_json_is_taken",
    ),
    "WebSocket": (
        "security/test_auth.py::test_a_foreign_page_opens_no_socket",
        "security/test_auth.py::test_a_socket_is_not_opened_without_a_key",
        "test_websocket.py::test_a_response_of_another_key_is_not_there",
        "test_websocket.py::test_who_may_not_come_in_is_told_before_the_socket_is_open",
    ),
    "ids of others": (
        "security/test_ownership.py::test_what_belongs_to_another_is_absent",
        "security/test_ownership.py::test_a_turn_of_another_cannot_be_continued",
        "security/test_ownership.py::test_lists_hold_what_is_one_s_own",
        "test_runs.py::test_the_run_of_another_key_does_not_exist",
        "test_accounting.py::test_a_key_sees_the_usage_of_others_only_if_it_may",
    ),
    "request smuggling": (
        (
            "test_http_protocol.py::test_what_two_readers_could_cut_differently_is_refused_once_and_the_"
            "connection_closed"
        ),
        "test_http_protocol.py::test_where_the_network_cuts_a_broken_request_changes_nothing",
        "test_request_head.py::test_a_head_has_one_host_one_framing_and_one_target",
    ),
    "injection into headers and logs": (
        (
            "faults/test_bad_requests.py::test_nothing_of_a_request_gets_into_headers_or_breaks_a_line_"
            "of_the_log"
        ),
        (
            "faults/test_bad_requests.py::test_nothing_of_an_upstream_gets_into_headers_or_breaks_a_"
            "line_of_the_log"
        ),
        "security/test_secrets.py::test_an_event_of_an_upstream_is_no_line_of_the_log",
    ),
    "SSRF": (
        "security/test_remote_urls.py::test_a_url_is_passed_on_and_never_fetched",
        "security/test_remote_urls.py::test_a_url_is_refused_if_the_settings_say_so",
        "security/test_secrets.py::test_a_request_cannot_say_where_to_ask",
        "security/test_secrets.py::test_the_name_of_a_model_is_one_segment_of_a_path_at_most",
        "security/test_secrets.py::test_addresses_in_a_request_are_not_fetched",
        "test_agent_mcp_addresses.py::test_a_name_with_an_address_that_is_not_public_is_refused",
    ),
    "secrets": (
        "security/test_marked.py::test_no_secret_is_anywhere",
        "security/test_marked.py::test_no_secret_is_in_what_weft_capture_writes",
        "security/test_secrets.py::test_the_key_of_an_upstream_is_told_to_nobody",
        (
            "security/test_secrets.py::test_an_upstream_gets_its_own_key_and_none_of_the_client_s_"
            "headers"
        ),
        "test_settings.py::test_no_secret_is_in_what_is_printed_of_settings",
    ),
    "prompts and answers in logs": (
        "security/test_prompts.py::test_what_an_upstream_quotes_is_told_to_its_client_and_not_logged",
        "security/test_prompts.py::test_what_cannot_be_translated_is_not_logged",
        "security/test_planted.py::test_no_string_of_a_stream_is_logged",
        "security/test_planted.py::test_no_text_of_an_odd_stream_is_logged",
        "security/test_planted.py::test_what_our_own_stages_find_is_not_logged",
        "security/test_secrets.py::test_what_a_client_says_is_not_logged",
        "test_store_sqlite.py::test_only_its_owner_may_read_the_file",
    ),
    "XSS": (
        "browser/test_hostile.py::test_hostile_markdown_stays_text_while_it_streams_and_afterwards",
        "browser/test_hostile.py::test_hostile_names_arguments_titles_and_questions_stay_text",
        "browser/test_hostile.py::test_hostile_errors_stay_text",
        "browser/test_hostile.py::test_another_site_cannot_frame_the_page_or_read_its_files",
        "browser/test_frame.py::test_html_that_is_made_of_text_is_refused_by_the_browser",
        "browser/test_usage.py::test_the_table_keeps_reported_estimated_and_no_tokens_apart",
    ),
    "paths that leave their folder": (
        "security/test_attacks.py::test_no_path_leaves_the_files_of_the_page",
        "test_page_files.py::test_what_is_served_is_what_is_in_the_package",
    ),
    "SQL injection": (
        "security/test_attacks.py::test_a_value_of_a_query_is_a_value_and_no_sql",
        "security/test_ownership.py::test_an_id_is_a_value_and_no_sql",
        "test_store_migrations.py::test_no_statement_is_built_from_values",
    ),
    "templates, pickle, eval": ("security/test_attacks.py::test_nothing_runs_what_it_is_given",),
    "tools of agents": (
        "test_agent_gate.py::test_each_call_gets_the_verdict_of_the_first_check_that_it_fails",
        "test_runs.py::test_an_approval_is_for_its_own_call_and_arguments_alone",
        "test_agent_mcp.py::test_a_definition_that_changed_is_not_called_until_it_is_approved",
    ),
    "cost": (
        "test_accounting.py::test_cut_streams_do_not_evade_a_budget",
        "test_accounting.py::test_two_workers_share_one_rate",
        "test_accounting.py::test_a_budget_needs_a_price",
        "faults/test_limits.py::test_every_limit_has_a_test",
    ),
    "supply chain": (
        "test_wheel.py::test_the_wheel_holds_the_package_and_nothing_else",
        "test_wheel.py::test_the_bare_wheel_needs_msgspec_alone_and_says_what_the_command_lacks",
        "test_page_files.py::test_the_vendored_file_is_the_published_one",
    ),
    # There is none: whoever adds a route says in keys.py who may use it.
    "an API for administrators": ("security/test_auth.py::test_every_route_is_listed_here",),
}


@cache
def functions_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize("threat", MATRIX)
def test_every_threat_has_its_tests(threat: str) -> None:
    missing = [
        one for one in MATRIX[threat] if (at := one.split("::"))[1] not in functions_in(at[0])
    ]
    assert MATRIX[threat]
    assert missing == []
