"""What servers say of how busy they are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from overnight.catalog.signals import Inquiry, read_signals
from overnight.domain.concurrency.state import Signals
from overnight.upstreams.http import Endpoint
from tests.scripted_upstream import Say, Upstream, serving

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 12.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"""
OLD_VLLM = b"""vllm:num_requests_running{model_name="a{b}"} 1
vllm:num_requests_waiting{model_name="a{b}"} 0
vllm:gpu_cache_usage_perc{model_name="a{b}"} 1e-2
"""
SGLANG = b"""sglang:num_running_reqs{model_name="m"} 7.0
sglang:num_queue_reqs{model_name="m"} 2.0
sglang:token_usage{model_name="m"} 0.91
"""
LLAMA_CPP = b"llamacpp:requests_processing 4\nllamacpp:requests_deferred 6\nllamacpp:n_busy_slots_per_decode 3.2\n"


@pytest.mark.parametrize(
    ("page", "signals"),
    [
        (VLLM, Signals(16, 3, 0.5)),
        (OLD_VLLM, Signals(1, 0, 0.01)),
        (SGLANG, Signals(7, 2, 0.91)),
        (LLAMA_CPP, Signals(4, 6)),
        (LLAMA_CPP.replace(b"\n", b"\r\n"), Signals(4, 6)),
        (b"", None),
        (b"vllm:num_requests_running 3\n", None),
        (b"other_num_requests_running 3\n", None),
        (b"vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\n", None),
        (b"vllm:num_requests_running 1e999\nvllm:num_requests_waiting -1\n", None),
        (b"vllm:num_requests_running --\nvllm:num_requests_waiting 1\n", None),
        (b"\xff\x00{}" * 1_000, None),
    ],
)
def test_the_pages_of_known_servers_are_read(page: bytes, signals: Signals | None) -> None:
    assert read_signals(page) == signals


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with serving() as upstream:
        yield upstream


@pytest.fixture
async def inquiry(upstream: Upstream) -> AsyncIterator[Inquiry]:
    inquiry = Inquiry(Endpoint(upstream.url))
    yield inquiry
    await inquiry.pool.close()


async def test_the_page_at_the_root_of_the_server_is_asked_for(inquiry: Inquiry, upstream: Upstream) -> None:
    upstream.pages["/metrics"] = Say(body=LLAMA_CPP)
    assert await inquiry.ask() == Signals(4, 6)
    assert await inquiry.ask() == Signals(4, 6)
    assert upstream.got == ["/metrics", "/metrics"]


@pytest.mark.parametrize("say", [Say(404), Say(401), Say(403), Say(501), Say(200, b"<html>"), Say(503), Say(302)])
async def test_a_server_that_does_not_tell_is_left_alone(inquiry: Inquiry, upstream: Upstream, say: Say) -> None:
    upstream.pages["/metrics"] = say
    assert await inquiry.ask() is None
    assert await inquiry.ask() is None
    assert upstream.got == ["/metrics"]


async def test_an_endless_page_is_not_read(
    inquiry: Inquiry, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.pages["/metrics"] = Say(body=LLAMA_CPP + b"#" * (5 * 1024 * 1024))
    assert await inquiry.ask() is None
