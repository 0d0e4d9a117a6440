"""The settings that an operator may change while everything runs, and what each decides."""

from __future__ import annotations

from collections.abc import Mapping

from overnight.domain.errors import InvalidParameter, UnknownParameter
from overnight.domain.limits import Limits
from overnight.domain.setting import Setting, Value

TABLE = (
    Setting(
        "BATCH_ENABLED",
        "enabled",
        True,
        "Serve batches. Off: batch, file and upload routes answer 404, nothing starts, what runs finishes, and expiry "
        "and retention wait.",
    ),
    Setting(
        "BATCH_MODEL_CONCURRENCY",
        "per_model",
        None,
        "Requests of one model that may run at once; 0 pauses all models.",
        "requests",
        0,
        1_000_000,
        unset="what its servers take",
    ),
    Setting(
        "BATCH_YIELD_TO_INTERACTIVE",
        "yields_to_interactive",
        True,
        "Interactive requests in flight on a model take the slots of batches one by one, of its cap and of its server. "
        "Off: batches fill both whatever else runs, and the next two settings have no effect.",
    ),
    Setting(
        "BATCH_SHARED_INTERACTIVE_LOAD",
        "shares_interactive_load",
        True,
        "Give way to the interactive requests of every process where a model has a cap. Off: to those of the same "
        "process only.",
    ),
    Setting(
        "BATCH_INTERACTIVE_RESERVE",
        "interactive_reserve",
        0,
        "Slots that batches leave free for interactive requests, on top of those in flight: of every model's cap, and "
        "of what each server runs at once (`--upstream-slots`, or the slots of a local engine).",
        "slots",
        0,
        1_000_000,
    ),
    Setting(
        "BATCH_QUEUED_ALERT_HOURS",
        "queued_alert",
        6,
        "How long a model may wait for a machine (503 with the code model_queued) before the log warns of it, once; 0: "
        "never.",
        "hours",
        0,
        8_760,
        zero_lifts=True,
    ),
    Setting(
        "BATCH_MAX_REQUESTS",
        "batch_requests",
        50_000,
        "Requests that one batch may hold. Does not hold for the local account.",
        "requests",
        1,
        100_000_000,
    ),
    Setting(
        "BATCH_MAX_BODY_MB",
        "create_body_bytes",
        32,
        "Largest body of a call that creates a batch.",
        "MiB",
        1,
        1_024,
    ),
    Setting("BATCH_MAX_FILE_MB", "file_bytes", 16_384, "Largest input file.", "MiB", 1, 1_048_576),
    Setting(
        "BATCH_MAX_LINE_KB",
        "line_bytes",
        4_096,
        "Longest line of an input file, and largest request of a create call or of an interactive one.",
        "KiB",
        1,
        16_384,
    ),
    Setting(
        "BATCH_MAX_RESULT_KB",
        "result_bytes",
        4_096,
        "Largest reply of a model that is kept as the response of one request.",
        "KiB",
        1,
        16_384,
    ),
    Setting(
        "BATCH_MAX_RESULTS_MB_PER_BATCH",
        "results_bytes",
        8_192,
        "Responses that one batch may store in all. A response that does not fit any more, and every request "
        "after it, fails with result_too_large; 0 lifts the limit.",
        "MiB",
        0,
        16_777_216,
        zero_lifts=True,
    ),
    Setting(
        "BATCH_REQUEST_TIMEOUT_SECONDS",
        "request_seconds",
        3_600,
        "How long a server may take for one try at a request.",
        "seconds",
        1,
        86_400,
    ),
    Setting(
        "BATCH_COMPLETION_WINDOW_HOURS",
        "window",
        24,
        "How long a batch may start its requests if it asks for 24h, which OpenAI's clients always do, or for nothing; "
        "0 lifts the window.",
        "hours",
        0,
        168,
        zero_lifts=True,
    ),
    Setting(
        "BATCH_LONGEST_WINDOW_HOURS",
        "longest_window",
        168,
        "The longest window that a batch may ask for.",
        "hours",
        1,
        168,
    ),
    Setting(
        "BATCH_RETENTION_DAYS",
        "retention",
        7,
        "How long a batch that has ended is kept, with its results.",
        "days",
        1,
        3_650,
    ),
    Setting(
        "BATCH_FILE_RETENTION_DAYS",
        "file_retention",
        30,
        "How long an input file is kept that was uploaded without a life of its own.",
        "days",
        1,
        3_650,
    ),
    Setting(
        "BATCH_ONE_PER_FILE",
        "one_batch_per_file",
        True,
        "Let an input file have only one unfinished batch at a time.",
    ),
    Setting(
        "BATCH_MAX_ACTIVE_PER_USER",
        "batches_per_owner",
        10,
        "Unfinished batches that one owner may have. Does not hold for the local account.",
        "batches",
        1,
        1_000_000,
    ),
    Setting(
        "BATCH_MAX_QUEUED_REQUESTS_PER_USER",
        "requests_per_owner",
        100_000,
        "Unanswered requests that one owner may have in all unfinished batches. Does not hold for the local account.",
        "requests",
        1,
        1_000_000_000,
    ),
    Setting(
        "BATCH_FILE_UPLOADS_PER_HOUR",
        "uploads_per_hour",
        60,
        "Uploads that one owner may begin within an hour, those that fail included. Does not hold for the local "
        "account.",
        "uploads",
        1,
        1_000_000,
    ),
    Setting(
        "BATCH_FILES_MAX_TOTAL_MB_PER_USER",
        "file_bytes_per_owner",
        512,
        "Input files that one owner may keep, in all. Does not hold for the local account.",
        "MiB",
        1,
        1_073_741_824,
    ),
)

SETTINGS = {setting.name: setting for setting in TABLE}


def find(name: str) -> Setting:
    """The setting of a name. Raises UnknownParameter."""
    if name not in SETTINGS:
        raise UnknownParameter(f"There is no setting {name[:80]!r}; `overnight settings` lists them.", param=name[:80])
    return SETTINGS[name]


def in_force(stored: Mapping[str, object]) -> dict[str, Value]:
    """The value of every setting, from those that are stored.

    One that is not stored, or whose stored value this version does not take, has its default.
    """
    values: dict[str, Value] = {}
    for setting in TABLE:
        values[setting.name] = setting.default
        if stored.get(setting.name) is not None:
            try:
                values[setting.name] = setting.check(stored[setting.name])
            except InvalidParameter:
                pass
    return values


def apply(limits: Limits, values: Mapping[str, Value]) -> None:
    """Let limits say what the settings do; what no setting decides stays as it is."""
    for name, value in values.items():
        setattr(limits, SETTINGS[name].field, SETTINGS[name].as_limit(value))
