"""What programs import to use an Overnight server: `Client`, `AsyncClient`, and the errors they raise."""

from overnight.client.clients import AsyncClient, Client
from overnight.client.errors import (
    ApiError,
    BadRequest,
    BatchFailed,
    ConnectionFailed,
    DownloadDamaged,
    NotAllowed,
    NotFound,
    OvernightError,
    ServerFault,
    TooManyRequests,
    WaitTimeout,
)

__all__ = [
    "ApiError",
    "AsyncClient",
    "BadRequest",
    "BatchFailed",
    "Client",
    "ConnectionFailed",
    "DownloadDamaged",
    "NotAllowed",
    "NotFound",
    "OvernightError",
    "ServerFault",
    "TooManyRequests",
    "WaitTimeout",
]
