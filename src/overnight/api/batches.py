"""/v1/batches: hand over, look at, list, cancel."""

from __future__ import annotations

from typing import Any

from litestar import post, route
from litestar.enums import HttpMethod

from overnight.api.auth import authorise
from overnight.api.body import read_json
from overnight.api.deps import Request, deps_of
from overnight.batches import cancel as cancelling
from overnight.batches import create as creating
from overnight.batches import find
from overnight.batches.shape import as_json
