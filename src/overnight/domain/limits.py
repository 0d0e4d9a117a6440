"""The sizes and numbers that bound what is accepted and what runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

DEEPEST_NESTING = 128
"""Arrays and objects within each other, the line's own object included."""

LONGEST_CUSTOM_ID = 512
"""Unicode code points."""

MOST_PROBLEMS = 1_000
"""Entries of a batch's `errors`; the last one tells the total when there are more."""

MOST_MODELS = 256
"""That one batch of direct requests may name: each is planned and leased by itself."""

PROBLEMS_SHOWN_ON_FILE = 20

CHUNK_BYTES = 256 * KIB
"""A stored file is cut at the last line end before this many bytes."""

PART_BYTES = 64 * MIB
"""The largest part of an upload: what the official clients send."""

MOST_PARTS = 10_000
"""Parts that one upload may have, those sent again included."""

BLOCK_LINES = 256
BLOCK_BYTES = MIB
"""A block ends at either; so leasing one never takes more memory than this and one line."""

FRAME_LINES = 8
"""Lines compressed together in a segment: a results page decompresses no more than it shows, times this."""


@dataclass(slots=True)
class Limits:
    """What one deployment accepts, as it is now.

    A process has one of it, which all its rooms hold and read at use: it is changed in place when a setting changes.
    What has to stay the same from beginning to end works with a copy.
    """

    file_bytes: int = 16 * GIB
    line_bytes: int = 4 * MIB
    result_bytes: int = 4 * MIB
    create_body_bytes: int = 32 * MIB
    intake: int = 1_000_000
    """Requests accepted and not yet answered, over all batches; also the most that one batch may hold."""
    slots: int = 10_240
    """Requests that one process may have running; 0 while none may start."""
    per_model: int | None = None
    """Requests of one model that may run at once in the whole deployment; None: what its routes were given."""
    interactive_reserve: int = 0
    """Slots of a model's cap, and of each server, kept free for interactive requests, on top of those in flight."""
    yields_to_interactive: bool = True
    """Whether batches give way to interactive requests of the same model."""
    shares_interactive_load: bool = True
    """Whether they give way to those of other processes, too."""
    queued_alert: timedelta | None = timedelta(hours=6)
    """How long a model may wait for a machine before the operator is told; None: however long."""
    window: timedelta | None = timedelta(hours=24)
    """Of a batch that asks for no other; None: it has none."""
    longest_window: timedelta = timedelta(hours=168)
    """That a batch may ask for."""
    retention: timedelta = timedelta(days=7)
    file_retention: timedelta = timedelta(days=30)
    request_seconds: float = 3_600.0
    """How long one try may take after it was sent."""
    enabled: bool = True
    """Whether batches are served at all."""
    batch_requests: int = 50_000
    """That one batch may hold."""
    results_bytes: int | None = 8 * GIB
    """Of responses that one batch may store."""
    one_batch_per_file: bool = True
    """Whether a file may have only one unfinished batch."""
    batches_per_owner: int = 10
    """Unfinished ones."""
    requests_per_owner: int = 100_000
    """Of unfinished batches, not yet answered."""
    uploads_per_hour: int = 60
    """That an owner may begin, those that fail included."""
    file_bytes_per_owner: int = 512 * MIB
    """Of input files that an owner may keep."""

    def most_requests(self, is_local: bool) -> int:
        """How many requests a batch may hold; one of the local account as many as the queue takes."""
        return self.intake if is_local else min(self.intake, self.batch_requests)


ALMOST_FULL = 0.9
SMALL = 0.01
"""Above ALMOST_FULL of intake only batches of up to SMALL of it are let in."""
