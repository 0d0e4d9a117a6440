"""`overnight files`: what is stored on a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from overnight.cli import output
from overnight.cli.connect import WORKED_WITHIN, Json, Server, client, read_id
from overnight.cli.parameters import check_results
from overnight.cli.show import problems

FileId = Annotated[
    str, typer.Argument(metavar="FILE", help="Id of the file, as `overnight files list` shows it.", callback=read_id)
]

PURPOSES = ("batch", "batch_output")

app = typer.Typer(help="List, show, download and delete the files of a server.", no_args_is_help=True)


@app.command("list")
def list_(
    server: Server = None,
    purpose: Annotated[
        str | None, typer.Option(metavar="PURPOSE", help="batch or batch_output.", autocompletion=lambda: PURPOSES)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    after: Annotated[str | None, typer.Option(metavar="FILE", help="Go on after this file.")] = None,
    json: Json = False,
) -> None:
    """List files, newest first: inputs and results."""
    with client(server) as c:
        page = c.list_files(purpose=purpose, limit=limit, after=after)
    if json:
        output.as_json(page)
        return
    if not page["data"]:
        output.say("There are no files.")
        return
    output.table(
        ("FILE", "PURPOSE", "BYTES", "CREATED", "NAME"),
        (
            (f["id"], f["purpose"], f"{f['bytes']:,}", output.moment(f["created_at"]), f["filename"])
            for f in page["data"]
        ),
        whole=4,
        stacked=True,
        shorten=(4,),
    )
    if page["has_more"]:
        output.say(f"There are more: overnight files list --after {page['last_id']}")


@app.command("show")
def show(file: FileId, server: Server = None, json: Json = False) -> None:
    """Show one file: its size, its time, and what is wrong with its lines."""
    with client(server) as c:
        found = c.get_file(file)
    if json:
        output.as_json(found)
        return
    _describe(found)


def _describe(file: dict[str, Any]) -> None:
    rows: list[tuple[str, object]] = [
        ("file", file["id"]),
        ("name", file["filename"]),
        ("purpose", file["purpose"]),
        ("bytes", f"{file['bytes']:,}"),
        ("lines", "–" if file.get("lines") is None else f"{file['lines']:,}"),
        ("sha256", file.get("sha256") or "–"),
        ("created", output.moment(file["created_at"])),
        ("kept until", output.moment(file.get("expires_at"))),
    ]
    output.facts(rows)
    found = file.get("problems")
    if found:
        output.say(f"{output.many(found['count'], 'problem')}; a batch of this file would be refused. The first:")
        problems(found["first"])


@app.command("download")
def download(
    file: FileId,
    server: Server = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write. (default: standard output)")
    ] = None,
    json: Json = False,
) -> None:
    """Write a file's content: whole or not at all where a file is named, checked against its SHA-256.

    With --json it prints what was written where; that needs --output.
    """
    check_results(out, json=json)
    with client(server, within=WORKED_WITHIN) as c:
        if out is None:
            sys.stdout.buffer.write(c.download_file_content(file))
            sys.stdout.flush()
        else:
            c.download_file(file, out)
            if json:
                output.as_json({"file": file, "output": str(out), "bytes": out.stat().st_size})
                return
            output.say(f"{out.stat().st_size:,} bytes written to {out}")


@app.command("delete")
def delete(file: FileId, server: Server = None, json: Json = False) -> None:
    """Delete a file, for good. A batch that was made of it is not touched."""
    with client(server) as c:
        found = c.delete_file(file)
    if json:
        output.as_json(found)
    else:
        output.answer(f"{found['id']} is deleted")
