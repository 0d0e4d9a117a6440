"""Stands in for the program `vllm`: `vllm_stand_in.py serve MODEL …` answers as vLLM's documentation describes.

It has no model: a prompt is as long as its words, and an answer counts. `STAND_IN`, a JSON object in the environment,
asks for faults: `load_seconds`, `busy` (answers of 503 before it is healthy), `children` (a file for the pids of two
processes that it starts, as for two GPUs), `never_loads`, `lingers` (once it is dead), `once` (a folder that remembers
which faults have come), `again` (a file without which it does not load after its death), `beside` (so many other
requests that it dies under). Words in a prompt ask for more: `die`, `vanish`, `hang`, `deaf`, `wait`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WAITS = json.loads(os.environ.get("STAND_IN", "{}"))
DEAD = "The server had an error while processing your request."
KEY = os.environ.get("VLLM_API_KEY")


def say(level: str, file: str, text: str) -> None:
    """A line of the log in vLLM's form."""
    print(f"(APIServer pid={os.getpid()}) {level} 11-29 20:00:00 [{file}:1] {text}", file=sys.stderr, flush=True)


class State:
    """What the engine is at."""

    def __init__(self, given: argparse.Namespace, context: int) -> None:
        self.name = given.served_model_name
        self.context = context
        self.lock = threading.Lock()
        self.running = 0
        self.most = given.max_num_seqs or 256
        self.tokens = 0
        self.dead = threading.Event()
        self.deaf = False
        self.busy = int(WAITS.get("busy", 0))


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *args: Any) -> None:
        """Nothing: vLLM's access log is of no use here."""

    def answer(self, status: int, body: object, kind: str = "application/json") -> None:
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def refuse(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        self.answer(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})

    def is_allowed(self) -> bool:
        if KEY is None or not self.path.startswith("/v1") or self.headers["Authorization"] == f"Bearer {KEY}":
            return True
        self.answer(401, {"error": "Unauthorized"})
        return False

    def do_GET(self) -> None:
        state = self.state
        if state.deaf:
            time.sleep(3_600)
        if self.path == "/health":
            state.busy -= 1
            self.answer(503 if state.dead.is_set() or state.busy >= 0 else 200, "", "text/plain")
        elif self.path == "/metrics":
            labels = f'{{engine="0",model_name="{state.name}"}}'
            running = min(state.running, state.most)
            page = f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{labels} {running}.0\n"
            page += f"vllm:num_requests_waiting{labels} {state.running - running}.0\n"
            page += f"vllm:kv_cache_usage_perc{labels} 0.25\nvllm:generation_tokens_total{labels} {state.tokens}.0\n"
            self.answer(200, page, "text/plain")
        elif self.path == "/v1/models" and self.is_allowed():
            card = {"id": state.name, "object": "model", "owned_by": "vllm", "max_model_len": state.context}
            self.answer(200, {"object": "list", "data": [card]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_allowed():
            return
        prompt = body.get("prompt") or " ".join(message["content"] for message in body.get("messages", ()))
        words = prompt.split()
        if self.path == "/tokenize":
            self.answer(200, {"count": len(words), "max_model_len": self.state.context, "tokens": [0] * len(words)})
        elif body.get("model") not in (None, self.state.name):
            self.refuse(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        elif len(words) > self.state.context:
            self.refuse(
                400,
                f"This model's maximum context length is {self.state.context} tokens. However, your prompt contains at "
                f"least {self.state.context + 1} input tokens, which exceeds this limit even without any output "
                "tokens. Please reduce the length of the input prompt.",
            )
        else:
            with self.state.lock:
                self.state.running += 1
            self.run(words, body)
            with self.state.lock:
                self.state.running -= 1

    def run(self, words: list[str], body: dict[str, Any]) -> None:
        state = self.state
        if "vanish" in words and first("vanish"):
            os.kill(os.getpid(), signal.SIGKILL)
        if "die" in words and first("die"):
            until(lambda: state.running > WAITS.get("beside", 0))
            say("ERROR", "core.py", "EngineCore encountered a fatal error.")
            say("ERROR", "core.py", '  File "/site-packages/vllm/v1/engine/core.py", line 9, in run_busy_loop')
            say("ERROR", "core.py", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
            state.dead.set()
        if ("hang" in words or "deaf" in words) and first("hang"):
            state.deaf = "deaf" in words
            time.sleep(3_600)
        if "invalid" in words:
            say("ERROR", "serving.py", f"ValueError: {' '.join(words)}")
        moment = 60.0 if "beside" in WAITS else 0.2
        if state.dead.wait(moment if "wait" in words else 0.002):
            self.refuse(500, DEAD, "InternalServerError")
            return
        count = body.get("max_completion_tokens") or body.get("max_tokens") or 4
        with state.lock:
            state.tokens += count
        self.answer(200, self.completed(words, count, is_chat="messages" in body))

    def completed(self, words: list[str], count: int, *, is_chat: bool) -> dict[str, Any]:
        text = " ".join(map(str, range(count)))
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion" if is_chat else "text_completion",
            "created": 1,
            "model": self.state.name,
            "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": "length", "stop_reason": None}],
            "usage": {
                "prompt_tokens": len(words),
                "total_tokens": len(words) + count,
                "completion_tokens": count,
            },
        }


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, and no longer than a minute."""
    ends = time.monotonic() + 60
    while not is_so() and time.monotonic() < ends:
        time.sleep(0.002)


def first(fault: str) -> bool:
    """Whether the fault is still to come: it comes once where a folder remembers it."""
    folder = WAITS.get("once")
    if folder is None:
        return True
    try:
        Path(folder, fault).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def arguments() -> argparse.Namespace:
    """Those that vLLM has and tests use; another one is refused in argparse's way, as there."""
    parser = argparse.ArgumentParser(prog="vllm")
    serve = parser.add_subparsers().add_parser("serve")
    serve.add_argument("model_tag")
    serve.add_argument("--host")
    serve.add_argument("--port", type=int, default=8_000)
    for name in ("served-model-name", "generation-config", "override-generation-config", "dtype"):
        serve.add_argument(f"--{name}")
    for name in ("max-num-seqs", "max-model-len", "tensor-parallel-size"):
        serve.add_argument(f"--{name}", type=int)
    serve.add_argument("--data-parallel-size", "-dp", type=int, default=1)
    return parser.parse_args()


def load(given: argparse.Namespace) -> int:
    """What takes minutes there; returns the context length."""
    config = Path(given.model_tag) / "config.json"
    if not config.exists():
        say("ERROR", "core.py", "EngineCore failed to start.")
        say("ERROR", "core.py", "Traceback (most recent call last):")
        say("ERROR", "core.py", f"OSError: {given.model_tag} does not appear to have a file named config.json.")
        print("RuntimeError: Engine core initialization failed. See root cause above.", file=sys.stderr, flush=True)
        sys.exit(1)
    if "children" in WAITS:
        workers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)]
        Path(WAITS["children"]).write_text(" ".join(str(worker.pid) for worker in workers))
    if WAITS.get("never_loads"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3_600)
    if "again" in WAITS and Path(WAITS["once"], "die").exists():
        until(Path(WAITS["again"]).exists)
    time.sleep(WAITS.get("load_seconds", 0))
    longest = int(json.loads(config.read_text())["max_position_embeddings"])
    return min(longest, given.max_model_len or longest)


def main() -> None:
    """Serve until the engine dies or SIGTERM comes."""
    given = arguments()
    Handler.state = State(given, load(given))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 256
    server = ThreadingHTTPServer((given.host, given.port), Handler)
    say("INFO", "loggers.py", "Engine 000: Avg prompt throughput: 0.0 tokens/s")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.state.dead.wait()
    if WAITS.get("lingers"):
        time.sleep(3_600)
    # There, too, those in flight are answered before it goes.
    until(lambda: Handler.state.running == 0)
    os._exit(1)


if __name__ == "__main__":
    main()
