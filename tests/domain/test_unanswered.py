"""A batch without an answer says why in one sentence."""

from __future__ import annotations

from overnight.domain.codes import ANSWERS
from overnight.domain.unanswered import why, why_expired


def test_the_most_frequent_code_stands_for_the_batch_with_what_it_means() -> None:
    code, message = why([("forbidden", 1_200), ("timeout", 3)], 1_203)
    assert code == "forbidden"
    assert message.startswith("None of the 1,203 requests was answered: `forbidden` (1,200), `timeout` (3).")
    assert ANSWERS["forbidden"] in message


def test_few_codes_are_named_however_many_there_are() -> None:
    _, message = why([(f"code_{i}", 9 - i) for i in range(5)], 30)
    assert ("code_2" in message, "code_3" in message) == (True, False)


def test_one_request_is_spoken_of_as_one() -> None:
    assert why([("timeout", 1)], 1)[1].startswith("The request was not answered: `timeout` (1).")


def test_of_a_batch_whose_window_closed_the_reason_is_that() -> None:
    code, message = why_expired([("rate_limited", 1_500), ("batch_expired", 2)], 1_502, 2_000)
    assert code == "batch_expired"
    assert "1,502 of its 2,000 requests had a response: `rate_limited` (1,500), `batch_expired` (2)." in message
    assert "before its request had a response" in why_expired([("batch_expired", 1)], 1, 1)[1]
