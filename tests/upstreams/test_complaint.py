"""What error replies say: of prompts that are too long, and in words."""

from __future__ import annotations

import json

import pytest

from tests.upstreams.judge import is_tried_again, judge

VLLM = "This model's maximum context length is 2048 tokens. However, "


@pytest.mark.parametrize(
    ("status", "error", "prompt", "context"),
    [
        (400, {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8, "message": "m"}, 9, 8),
        (400, {"message": "request (5000 tokens) exceeds the available context size (4096 tokens)"}, 5000, 4096),
        (
            400,
            {"message": VLLM + "your messages resulted in 2100 tokens.", "code": "context_length_exceeded"},
            2100,
            2048,
        ),
        (
            400,
            {"message": VLLM + "you requested 2300 tokens (2200 in the messages, 100 in the completion)."},
            2200,
            2048,
        ),
        (
            400,
            {"message": VLLM + "you requested 2300 tokens (2200 in your prompt; 100 for the completion)."},
            2200,
            2048,
        ),
        (400, {"message": VLLM + "your request has 3000 input tokens."}, 3000, 2048),
        (
            400,
            {"message": VLLM + "you requested 3000 tokens in the input for embedding generation."},
            3000,
            2048,
        ),
        (
            400,
            {
                "message": "The decoder prompt (length 3000) plus the number of requested output tokens (at least 1) "
                "is longer than the maximum model length of 2048. Make sure that `max_model_len` is no smaller."
            },
            3000,
            2048,
        ),
        (400, {"message": VLLM.lower() + "the prompt contains 2,500 input tokens"}, 2500, 2048),
        (
            400,
            {"message": "The decoder prompt (length 3000) is longer than the maximum model length of 2048."},
            3000,
            2048,
        ),
        (
            400,
            {"message": "The input (3000 tokens) is longer than the model's context length (2048 tokens)."},
            3000,
            2048,
        ),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}, 210000, 200000),
        (
            413,
            {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"},
            40000,
            32768,
        ),
        (422, {"message": "The input token count (11) exceeds the maximum number of tokens allowed (10)."}, 11, 10),
        (
            500,
            {
                "message": "input (700 tokens) is too large to process. increase the physical batch size "
                "(current batch size: 512)"
            },
            700,
            512,
        ),
    ],
)
def test_a_prompt_longer_than_the_context_is_told_with_both_numbers(
    status: int, error: dict[str, object], prompt: int, context: int
) -> None:
    for body in ({"error": error}, {"object": "error", **error}, {"detail": error["message"], **error}):
        came = judge(body, status)
        assert (came.status, came.code) == (400 if status == 500 else status, "context_length_exceeded")
        assert came.message == f"Prompt length {prompt} exceeds model context {context}"
        assert not is_tried_again(came)
    assert judge({"error": error | {"code": status}}).code == "context_length_exceeded"


def test_a_length_that_was_not_counted_to_its_end_is_told_as_the_least() -> None:
    error = {"message": VLLM + "your prompt contains at least 2049 input tokens, for a total of 2065."}
    assert judge({"error": error}, 400).message == "Prompt length of at least 2049 exceeds model context 2048"


def test_a_prompt_that_vllm_did_not_even_count_is_told_in_its_words() -> None:
    told = (
        VLLM + "your prompt contains 50000 characters (more than 40960 characters, which is the upper bound for 2048 "
    )
    told += "input tokens). Please reduce the length of the input prompt."
    came = judge({"error": {"message": told}}, 400)
    assert (came.code, came.message) == ("context_length_exceeded", told)


def test_a_prompt_that_is_too_long_only_with_its_output_is_told_so() -> None:
    told = "'max_tokens' is too large: 5000. This model's maximum context length is 2048 tokens and your "
    told += "request has 20 input tokens"
    came = judge({"error": {"message": told}}, 400)
    assert came.code == "context_length_exceeded"
    assert came.message == "Prompt length 20 with the output asked for exceeds model context 2048"


def test_a_context_error_without_numbers_keeps_the_upstreams_words() -> None:
    came = judge({"error": {"message": "Too long, sorry.", "code": "context_length_exceeded"}}, 400)
    assert (came.code, came.message) == ("context_length_exceeded", "Too long, sorry.")


def test_the_word_context_alone_makes_no_context_error() -> None:
    assert judge({"error": {"message": "context is no field of messages[0]"}}, 400).code == "invalid_request"
    assert judge({"error": {"message": VLLM, "code": "context_length_exceeded"}}, 503).code == "service_unavailable"


def test_an_error_body_that_is_json_is_kept_on_one_line() -> None:
    assert (
        judge(b'{\n "detail": "a\xe2\x80\xa8b", "n": 1.10\n}\n', 400).error_body == b'{"detail":"a\\u2028b","n":1.10}'
    )


def test_an_error_body_that_is_text_becomes_a_string() -> None:
    assert judge(b'no\xff "way"\n\xe2\x80\xa8', 500).error_body == b'"no\xef\xbf\xbd \\"way\\"\\n\\u2028"'


@pytest.mark.parametrize(
    "body", [b"x" * 10_000, "é€😀".encode() * 2_000, b"\x00" * 10_000, b'{"a":"' + b"y" * 5_000 + b'"}', b'"' * 9_000]
)
def test_a_long_error_body_is_cut_to_four_kibibytes_of_valid_json(body: bytes) -> None:
    cut = judge(body, 500).error_body
    assert cut is not None
    assert 3_000 < len(cut) <= 4096
    text = json.loads(cut)
    assert body.decode().startswith(text.rstrip("\N{REPLACEMENT CHARACTER}"))


def test_an_error_without_a_body_has_none() -> None:
    assert judge(b" \n", 500).error_body is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"message": "from error"}}, "from error"),
        ({"message": "from message"}, "from message"),
        ({"detail": "from detail"}, "from detail"),
        ({"detail": [{"loc": ["body", "n"], "msg": "not a number"}]}, "not a number"),
        ({"error": "from text"}, "from text"),
        ([{"error": {"message": "from a list"}}], "from a list"),
        (b"plain text", "plain text"),
        ("a string", "a string"),
    ],
)
def test_the_upstreams_own_words_are_found(body: object, told: str) -> None:
    assert judge(body, 400).message == f"The upstream answered 400: {told}"


def test_a_huge_error_is_neither_read_nor_repeated_whole() -> None:
    came = judge(b'{"error":{"message":"' + b"m" * 3_000_000 + b'"}}', 400)
    assert len(came.message) < 2_000
