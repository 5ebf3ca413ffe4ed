"""Secrets, and what keeps them out of everything that is shown."""

import copy
import json
import pickle
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from tests.tables import each_row
from weft.scrub import MARK, Scrubber, Secret

VISIBLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="*")
SECRETS = st.text(VISIBLE, min_size=4, max_size=40)


# Secret


def test_only_reveal_returns_a_secret() -> None:
    secret = Secret("hush")
    assert (repr(secret), str(secret), f"{secret}", f"{[secret]}") == (MARK, MARK, MARK, "[***]")
    assert secret.reveal() == "hush"


def test_secrets_are_equal_if_their_texts_are() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


@pytest.mark.parametrize("write", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_not_written_down(write: object) -> None:
    assert callable(write)
    with pytest.raises(TypeError, match="not to be written down"):
        write(Secret("hush"))


# Scrubber


@QUICK
@given(st.lists(SECRETS, min_size=1, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_a_known_secret_is_never_left(secrets: list[str], before: str, after: str) -> None:
    scrub = Scrubber(map(Secret, secrets))
    for secret in secrets:
        assert secret not in scrub(f"{before}{secret}{after}")


@QUICK
@given(SECRETS)
def test_it_is_found_inside_json_and_inside_an_address(secret: str) -> None:
    scrub = Scrubber([Secret(secret)])
    written = json.dumps({"message": f"<{secret}>"})
    assert json.loads(scrub(written)) == {"message": f"<{MARK}>"}
    assert scrub(f"<{quote(secret, safe='')}>") == f"<{MARK}>"


def test_of_two_secrets_the_longer_one_is_taken_first() -> None:
    scrub = Scrubber([Secret("abcd"), Secret("abcd-efgh")])
    assert scrub("abcd-efgh, abcd") == "***, ***"


def test_an_empty_secret_changes_nothing() -> None:
    assert Scrubber([Secret("")])("a text") == "a text"


@each_row(
    "text, left",
    [
        ("Incorrect API key provided: sk-proj-Ab12Cd34Ef56.", "Incorrect API key provided: ***."),
        ("Incorrect API key provided: sk-ab***********wxyz.", "Incorrect API key provided: ***."),
        ("key sk-abcd...wxyz is wrong", "key *** is wrong"),
        ("Your api key: ****9a2c is invalid", "Your api key: *** is invalid"),
        ("invalid x-api-key: sk-ant-api03-AAAA_BBBB", "invalid x-api-key: ***"),
        ("sk-svcacct-Ab12_Cd34-Ef56 sk-or-v1-0123456789abcdef", "*** ***"),
        ("gsk_no, gsk-0123456789", "gsk_no, ***"),
        ("Invalid key gsk_0123456789abcdefABCD.", "Invalid key ***."),
        ("Invalid key gsk_abcd****wxyz, gsk_abcd...wxyz", "Invalid key ***, ***"),
        ("xai-0123456789 csk-0123456789 pplx-0123456789 nvapi-0123456789", "*** *** *** ***"),
        ("r8_0123456789abcdefABCD, fw_0123456789abcdefABCD", "***, ***"),
        ("tgp_v1_0123-4567_89abcdef and vck_0123456789abcdefABCD", "*** and ***"),
        ("sk_live_0123456789abcdef, rk_test_0123456789abcdef", "***, ***"),
        ("sk_0123456789abcdef0123456789abcdef", "***"),
        ("ghr_0123456789abcdefABCD github_pat_0123456789_abcdefABCD", "*** ***"),
        ("xoxb-0123456789-abcdef glpat-0123456789_abcdef", "*** ***"),
        ("AKIA0123456789ABCDEF is not authorized", "*** is not authorized"),
        ("Credential=ASIA0123456789ABCDEF/20261117/us-east-1", "Credential=***/20261117/us-east-1"),
        ("ABSK0123456789abcdef0123456789abcdef+/==", "***"),
        ("ya29.a0123456789_abcdef-ABCD, AQ.Ab0123456789_abcdef", "***, ***"),
        ("dapi0123456789abcdef0123456789abcdef", "***"),
        ("0123456789abcdef0123456789abcdef.0123456789abcdEF", "***"),
        ("AIzaSyA-0123456789_abcdefghijklmnop", "***"),
        ("ghp_0123456789abcdefABCD and hf_0123456789abcdefABCD", "*** and ***"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "***"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.", "***"),
        ("eyJhbGciOiJkaXIi..aXY.dGV4dA.dGFn", "***"),
        ("Authorization: Bearer abcdef-123", "Authorization: Bearer ***"),
        ("BEARER  abcdef-123, and more", "BEARER  ***, and more"),
        ('{"authorization": "0123456789abcdef"}', '{"authorization": "***"}'),
        ("{'x-api-key': '0123456789abcdef'}", "{'x-api-key': '***'}"),
        ('"{\\"api-key\\": \\"0123456789abcdef\\"}"', '"{\\"api-key\\": \\"***\\"}"'),
        ("Ocp-Apim-Subscription-Key: 0123456789abcdef", "Ocp-Apim-Subscription-Key: ***"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("authorization='Key 0123-4567'", "authorization='Key ***'"),
        ("Incorrect API key provided: 0123456789abcdef.", "Incorrect API key provided: ***."),
        ('The API key "0123456789abcdef" is invalid', 'The API key "***" is invalid'),
        ("OPENAI_API_KEY=abcdefg", "OPENAI_API_KEY=***"),
        ("Client(api_key='abcdefg')", "Client(api_key='***')"),
        ("aws_secret_access_key = abc/def+ghi0123456789", "aws_secret_access_key = ***"),
        ("https://h/?token=abcdefg", "https://h/?token=***"),
        ("GET /v1beta/models?alt=sse&key=abcdefg", "GET /v1beta/models?alt=sse&key=***"),
        ("https://h/?key=abcdefg&alt=sse", "https://h/?key=***&alt=sse"),
        ("api_key=abcdefg", "api_key=***"),
        ("postgresql://weft:hunter2@db/weft", "postgresql://***@db/weft"),
    ],
)
def test_what_has_the_shape_of_a_key_is_replaced(text: str, left: str) -> None:
    assert Scrubber()(text) == left
    assert Scrubber()(left) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a risk-management-department is no key",
        "the model gpt-5-mini-2025-08-07 does not exist",
        "messages.0.content: Input should be a valid string",
        "bearer of news",
        "api key: missing",
        "https://api.example.com:8080/v1/chat/completions?alt=sse",
        "a list: * one ** two *** three",
        "hf_transfer, hf_hub_download_timeout_seconds and fw_version",
        'violates the constraint "pk_live_responses" and "sk_learn_estimators"',
        "asiapacificnortheast1 is not a location",
        "request req_0123456789abcdef0123456789abcdef, trace 0123456789abcdef0123456789abcdef",
        "Your API key has no access to model gpt-5-mini-2025-08-07",
        "API key: see https://platform.example.com/account/api-keys",
    ],
)
def test_what_has_not_is_left_alone(text: str) -> None:
    assert Scrubber()(text) == text
