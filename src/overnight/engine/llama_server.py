"""The process of a llama.cpp engine: loads one model, serves it over HTTP on loopback, ends with its parent.

Run as `python -m overnight.engine.llama_server`; `launch.py` tells what it reads and writes. The key comes
over standard input because everyone on the machine can read a process's arguments.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

from overnight.engine.llama_flags import UnknownFlagError, set_flags
from overnight.engine.parent import die_with_parent, exit_when_input_ends, private_output, tell
from overnight.engine.sizing import CONTEXT_STEP

SPARE_THREADS = 32
ERRORS_ONLY = 1
"""At this verbosity llama.cpp says why a load fails and nothing about requests that go well."""


def http_threads(slots: int) -> int:
    """Each connection that is kept open takes one, also those that ask for its health or the length of a prompt."""
    return 2 * slots + SPARE_THREADS


def main() -> None:
    """Serve until the parent ends; exit with 1 when the model cannot be loaded."""
    say = private_output()
    asked = json.loads(sys.stdin.buffer.readline() or b"null")
    if not isinstance(asked, dict):
        sys.exit("This program is started by Overnight, which sends it a line of JSON on standard input.")
    # The signal also comes while the engine loads or hangs, when no thread of Python would run.
    die_with_parent(int(asked["parent"]))
    exit_when_input_ends()
    try:
        # The package is an extra, and a long import: the parent must be watched before it begins.
        import xllamacpp
    except ImportError:
        tell(
            say,
            {"failed": "the package xllamacpp is missing; run: pip install 'overnight[engine]'"},
        )
        sys.exit(1)
    key = str(asked["api_key"])
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, _arguments(), key))
    except UnknownFlagError as error:
        tell(say, {"failed": str(error)})
        sys.exit(1)
    except (RuntimeError, ValueError, OverflowError):
        # The exception says no more than this; the reason is in the log on standard error.
        tell(say, {"failed": None})
        sys.exit(1)
    url = server.listening_address
    tell(say, {"url": url, **_capacity(url, key)})
    threading.Event().wait()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="overnight.engine.llama_server")
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True, help="what answers call the model")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--host-cache", type=int, required=True, help="MiB of prompts kept beside the slots")
    parser.add_argument("--embedding", action="store_true")
    parser.add_argument("--pool-mean", action="store_true")
    parser.add_argument("--engine-arg", action="append", default=[], help="a flag of llama.cpp, or the value of one")
    return parser.parse_args()


def _parameters(xllamacpp: Any, asked: argparse.Namespace, key: str) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = asked.model
    # Else answers would name the file, with its whole path.
    parameters.model_alias = {asked.name}
    parameters.hostnames = ["127.0.0.1"]
    parameters.api_keys = [key]
    parameters.verbosity = ERRORS_ONLY
    parameters.ui = False
    parameters.endpoint_metrics = True
    parameters.n_parallel = asked.slots
    parameters.n_threads_http = http_threads(asked.slots)
    # The engine divides this among its slots.
    parameters.n_ctx = asked.slots * asked.context
    # With it an answer would push out its own beginning at the end of its context, and go on for ever.
    parameters.ctx_shift = False
    parameters.cache_ram_mib = asked.host_cache
    parameters.cpuparams.n_threads = asked.threads
    parameters.cpuparams_batch.n_threads = asked.threads
    # What a request leaves out: the most likely word is taken, so that the same request has the same answer.
    parameters.sampling.temp = 0.0
    if asked.embedding:
        parameters.embedding = True
        # An input is computed in one piece, so that a piece must hold a whole context as the engine rounds it.
        whole = -(-asked.context // CONTEXT_STEP) * CONTEXT_STEP
        parameters.n_batch = parameters.n_ubatch = whole
    if asked.pool_mean:
        parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    set_flags(parameters, asked.engine_arg)
    return parameters


def _capacity(url: str, key: str) -> dict[str, int]:
    """The slots and the context of each as the engine made them, which may differ from what was asked."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=30)
    try:
        connection.request("GET", "/props", headers={"Authorization": f"Bearer {key}"})
        properties = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return {
        "slots": properties["total_slots"],
        "context_length": properties["default_generation_settings"]["n_ctx"],
    }


if __name__ == "__main__":
    main()
