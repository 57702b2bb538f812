"""Secrets are masked before text is cut, also inside base64, by one scrubber for everything."""

import base64
from datetime import UTC, datetime

import pytest

from syncline.connectors.foreign.host import LONGEST_LOG_LINE, redactor
from syncline.http.credentials import Credentials
from syncline.policy.backoff import Backoff
from syncline.policy.outcome import MAX_MESSAGE_BYTES, FailureRules, judge_failure
from syncline.redaction import (
    LONGEST_TEXT,
    MARGIN,
    Scrubber,
    mask_secrets,
    secrets_in,
    strip_addresses,
)
from syncline.testing.recorder import Masker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "hunter2-ünd-more"
CREDENTIALS = {"username": "ada", "password": SECRET, "scope": "read"}


def encodings(user: str, secret: str) -> list[str]:
    pair = f"{user}:{secret}".encode()
    standard, url_safe = base64.b64encode(pair).decode(), base64.urlsafe_b64encode(pair).decode()
    return [standard, standard.rstrip("="), url_safe, url_safe.rstrip("=")]


def pieces(text: str, size: int = 8) -> set[str]:
    return {text[start : start + size] for start in range(len(text) - size)}


@pytest.mark.parametrize("user", ["ada", "x-access-token", "", "a", "ab"])
@pytest.mark.parametrize("secret", ["hunter2-??>>-more", SECRET, "s3cret"])
def test_base64_of_a_user_and_a_password_is_masked(user: str, secret: str) -> None:
    scrub = Scrubber(secrets_in({"username": "ada", "password": secret}))
    for encoded in encodings(user, secret):
        for text in (f"Authorization: Basic {encoded}", f"sent {encoded} in vain", f"({encoded})"):
            shown = scrub(text)
            assert "***" in shown
            assert encoded not in shown
            held = base64.b64encode(secret.encode()).decode()
            assert not pieces(held, 6) & pieces(shown, 6)


def test_a_short_password_is_masked_with_its_user() -> None:
    scrub = Scrubber(secrets_in({"username": "ada", "password": "pw12"}))
    for encoded in encodings("ada", "pw12"):
        assert encoded.rstrip("=") not in scrub(f"sent {encoded}")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("got Basic YWRhOmxvdmVsYWNl from you", "got Basic *** from you"),
        ("got basic YWRhOmxvdmVsYWNlLQ== from", "got basic *** from"),
        ("Basic authentication is needed", "Basic authentication is needed"),
        ("basic information", "basic information"),
        ('{"password": "a\\"b c", "n": 1}', '{"password": ***, "n": 1}'),
    ],
)
def test_basic_headers_are_masked_and_words_are_not(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@pytest.mark.parametrize("longest", [100, 2_000])
def test_text_is_masked_before_it_is_cut(longest: int) -> None:
    """A secret on the edge of a cut leaves no half of it behind."""
    scrub = Scrubber([SECRET])
    for edge in (longest, longest + MARGIN, 3 * MARGIN):
        for size in range(edge - 20, edge + 21):
            text = "x" * (size - 8) + SECRET + "y" * 4 * MARGIN
            shown = scrub(text, longest)
            assert len(shown) <= longest
            assert not {piece for piece in pieces(SECRET, 4) if piece in shown}, size


def test_a_password_in_an_address_is_masked_before_it_is_cut() -> None:
    address = "https://ada:" + "hunter2hunter2@host/x"
    for edge in (500, 500 + MARGIN):
        for size in range(edge - 30, edge + 31, 3):
            text = "x" * size + " " + address + " y" * 2 * MARGIN
            assert "hunter2" not in mask_secrets(text, 500), size
            assert "hunter2" not in strip_addresses(text, 500), size


def test_half_a_secret_at_the_end_of_what_is_read_is_not_shown() -> None:
    """Of a very long text only so much is read, and the masks may leave little of that."""
    scrub, longest = Scrubber([SECRET]), 100
    read = longest + MARGIN
    while read < LONGEST_TEXT:
        read *= 2
    text = "token=" + "a" * (read - 15) + " " + SECRET + "y" * read

    assert not {piece for piece in pieces(SECRET, 4) if piece in scrub(text, longest)}


def test_what_masks_take_away_is_made_up_for() -> None:
    text = "token=" + "a" * 50_000 + " the rest"
    assert mask_secrets(text, 100) == "token=*** the rest"


def test_a_stored_error_is_masked_before_it_is_cut() -> None:
    rules = FailureRules(Backoff(1, 9, 0), None)
    for size in (MAX_MESSAGE_BYTES, 2 * MAX_MESSAGE_BYTES):
        error = ValueError("x" * (size - 30) + " https://ada:" + "hunter2" * 9 + "@host/path")
        outcome = judge_failure(error, rules, attempts=0, now=NOW, roll=0)
        assert "hunter2" not in outcome.error


def test_errors_taps_and_recordings_share_a_scrubber() -> None:
    for encoded in encodings("ada", SECRET):
        text = f"sent {encoded} and {SECRET}"
        for shown in (
            Credentials(CREDENTIALS).scrubber()(text),
            redactor(CREDENTIALS)(text),
            Masker(CREDENTIALS).text(text),
            Masker(CREDENTIALS).body(text.encode()).decode(),
            Masker(CREDENTIALS).url(text),
        ):
            assert encoded not in shown
            assert SECRET not in shown


def test_a_tap_s_line_is_masked_before_it_is_cut() -> None:
    line = "x" * (LONGEST_LOG_LINE - 6) + SECRET
    assert redactor(CREDENTIALS)(line)[-6:] in ("***", "xxx***", "x" * 6)


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("fatal: https://u:p?a@ss@host/x?token=1 gone", "fatal: https://host/x gone"),
        ("unable to access 'https://u:p@h/'\n: no", "unable to access 'https://h/' : no"),
        ("what? yes", "what yes"),
    ],
)
def test_addresses_lose_users_and_queries(text: str, stripped: str) -> None:
    assert strip_addresses(text) == stripped
