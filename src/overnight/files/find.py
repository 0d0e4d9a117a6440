"""Look at one's files."""

from __future__ import annotations

from overnight.domain import ids
from overnight.domain.errors import FileNotFound, InvalidParameter
from overnight.files.shape import StoredFile, of_row
from overnight.store import files as rows
from overnight.store.pool import Store


async def get(store: Store, owner: int, file_id: str) -> StoredFile:
    """Return a file by its public id, with all its problems. Raises FileNotFound."""
    known = ids.read(ids.FILE, file_id)
    row = None if known is None else await rows.find(store, owner, known)
    if row is None:
        raise not_found(file_id)
    return of_row(row)


async def page(
    store: Store, owner: int, *, purpose: str | None, limit: int, order: str, after: str | None
) -> tuple[list[StoredFile], bool]:
    """Return up to `limit` files in order of creation (`asc` or `desc`), and whether there are more.

    `after` is the public id of the file before the page. Raises InvalidParameter where no such file is, or was
    lately, this owner's. The files have the problems that are shown, and no more.
    """
    place = None
    if after is not None:
        known = ids.read(ids.FILE, after)
        place = None if known is None else await rows.find_place(store, owner, known)
        if place is None:
            raise InvalidParameter("`after` is not the id of one of your files.", param="after")
    found = await rows.page(store, owner, purpose=purpose, most=limit + 1, newest_first=order == "desc", after=place)
    return [of_row(row) for row in found[:limit]], len(found) > limit


def not_found(file_id: str) -> FileNotFound:
    """What is raised for an id that is unknown, of somebody else, deleted or expired: all read the same."""
    shown = file_id if len(file_id) <= 80 else file_id[:77] + "..."
    return FileNotFound(f"There is no file {shown!r}. It may have been deleted or have expired.")
