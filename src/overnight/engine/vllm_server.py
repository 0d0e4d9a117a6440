"""The process around `vllm serve`: gives it an address and a key, waits until it serves, ends with it or our parent.

Run as `python -m overnight.engine.vllm_server --slots N -- vllm serve …`; `launch.py` tells what it reads and writes.
All that vLLM starts is in our process group, which ends as a whole.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from overnight.engine.parent import die_with_parent, private_output, tell, tell_when_parent_ends

LOOK_EVERY = 0.2
LONGEST_CALL = 10.0
LISTENING = "0A"
"""The state of a listening socket in Linux's table of sockets."""


def main() -> None:
    """Serve until the parent or vLLM ends; exit as vLLM did."""
    say = private_output()
    asked = json.loads(sys.stdin.buffer.readline() or b"null")
    if not isinstance(asked, dict):
        sys.exit("This program is started by Overnight, which sends it a line of JSON on standard input.")
    given = _arguments()
    with _free_port() as port:
        engine = _start(given.command, port, str(asked["api_key"]))
        signal.signal(signal.SIGTERM, lambda *_: engine.terminate())
        # Not before it is started: a child made by a process with threads may hang before it is a program.
        tell_when_parent_ends(int(asked["parent"]), _end_group)
        _wait_until_healthy(engine, port)
    if engine.poll() is None:
        _tell_ready(say, port, str(asked["api_key"]), given.slots)
    _end_like(engine.wait())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="overnight.engine.vllm_server")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


@contextmanager
def _free_port() -> Iterator[int]:
    """A free port, kept from everyone who does not insist on it: vLLM does, as servers do."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def _start(command: list[str], port: int, key: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        # Others on the machine can read a process's arguments, but not its environment.
        "VLLM_API_KEY": key,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    }
    return subprocess.Popen(  # noqa: S603
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        env=environment,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )


def _wait_until_healthy(engine: subprocess.Popen[bytes], port: int) -> None:
    """Until it answers 200, which a model of many gigabytes takes minutes for, or ends."""
    while engine.poll() is None:
        answer = _get(port, "/health")
        if answer is not None and answer[0] == 200 and _is_ours(port):
            return
        time.sleep(LOOK_EVERY)


def _tell_ready(say: int, port: int, key: str, slots: int) -> None:
    answer = _get(port, "/v1/models", key)
    try:
        status, body = answer or (0, b"")
        context = json.loads(body)["data"][0]["max_model_len"]
        tell(say, {"url": f"http://127.0.0.1:{port}", "slots": slots, "context_length": int(context)})
    except (ValueError, TypeError, KeyError, IndexError):
        tell(say, {"failed": f"it does not say which model it serves (GET /v1/models: {status or 'no answer'})"})
        _end_group()


def _get(port: int, path: str, key: str = "") -> tuple[int, bytes] | None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_CALL)) as connection:
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return None


def _is_ours(port: int) -> bool:
    """Whether the one that listens there is of our user: nobody else gets the key. Only Linux tells."""
    table = Path("/proc/net/tcp")
    if not table.exists():
        return True
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    owners = {int(row[7]) for row in rows if row[3] == LISTENING and row[1].endswith(f":{port:04X}")}
    return owners <= {os.getuid()}


def _end_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _end_like(code: int) -> NoReturn:
    """End as vLLM did, so that our parent sees why; it ends what is left of our group."""
    if code < 0:
        # There is none to set for SIGKILL.
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        threading.Event().wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
