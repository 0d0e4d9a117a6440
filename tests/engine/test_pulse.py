"""An engine that has requests and does nothing is known by its counters."""

from __future__ import annotations

from overnight.engine.pulse import Pulse, Reading, read_llama_cpp, read_vllm


def test_it_is_still_while_it_has_requests_and_takes_no_step() -> None:
    pulse = Pulse(0)

    assert pulse.still_for(Reading(2, 10), 5) == 0
    assert pulse.still_for(Reading(2, 10), 25) == 20
    assert pulse.still_for(Reading(1, 11), 40) == 0
    assert pulse.still_for(Reading(1, 11), 41) == 1


def test_without_requests_it_may_rest_for_ever() -> None:
    pulse = Pulse(0)

    assert [pulse.still_for(Reading(0, 10), now) for now in (5, 5_000)] == [0, 0]
    assert pulse.still_for(Reading(1, 10), 5_010) == 10


def test_one_that_does_not_tell_takes_no_step() -> None:
    pulse = Pulse(0)
    pulse.still_for(Reading(1, 3), 5)

    assert pulse.still_for(None, 605) == 600


def test_the_metrics_of_vllm_are_added_up_over_its_engines() -> None:
    page = """# HELP vllm:num_requests_running Number of requests
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 7.0
"""
    assert read_vllm(page) == Reading(7, 107)


def test_the_metrics_of_llama_cpp_are_read() -> None:
    assert read_llama_cpp("llamacpp:requests_processing 3\nllamacpp:n_decode_total 12\n") == Reading(3, 12)


def test_a_page_without_them_says_nothing() -> None:
    assert read_vllm("process_cpu_seconds_total 5\nnonsense") is None
