"""The commands by name, what their errors look like, and how they end."""

from __future__ import annotations

import httpx
import typer

import overnight
from overnight.cli import (
    bench,
    cancel,
    delete,
    doctor,
    files,
    list_,
    migrate,
    models,
    pause,
    results,
    resume,
    retry,
    run_,
    serve,
    settings_,
    show,
    submit,
    watch,
)
from overnight.cli.output import complain, say
from overnight.cli.usage import UsageError, tell_usage
from overnight.client.errors import ConnectionFailed, OvernightError
from overnight.domain.errors import InputRefused, Unusable

REFUSED = 1
WRONG_USAGE = 2
COULD_NOT = 3
INTERRUPTED = 130
EXIT_CODES = {
    0: "Done; of `run` and `watch`: every request was answered; of `serve`: it was told to stop and has stopped.",
    REFUSED: "Requests without a response, or a file or batch that was refused for what is in it, be it empty (`run`,"
    " `submit`, `watch`); `doctor`: something missing.",
    WRONG_USAGE: "Wrong usage: an option or argument that is unknown, missing or not allowed, also where only the"
    " server knows it; a file that is not there or cannot be read.",
    COULD_NOT: "It could not be done; the message says why.",
    INTERRUPTED: "Interrupted. `run` goes on where it was when it is given again.",
}

app = typer.Typer(
    name="overnight",
    help="Batch inference on your own models: hand over many requests in one call, collect the results.",
    epilog="Exit codes: 0 done · 1 requests unanswered · 2 wrong usage · 3 could not be done · 130 interrupted",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"overnight {overnight.__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Batch inference on your own models: hand over many requests in one call, collect the results."""


app.command("serve")(serve.serve)
app.command("run")(run_.run)
app.command("submit")(submit.submit)
app.command("list")(list_.list_)
app.command("show")(show.show)
app.command("watch")(watch.watch)
app.command("results")(results.results)
app.command("cancel")(cancel.cancel)
app.command("pause")(pause.pause)
app.command("resume")(resume.resume)
app.command("retry")(retry.retry)
app.command("delete")(delete.delete)
app.add_typer(files.app, name="files")
app.command("models")(models.models)
app.add_typer(settings_.app, name="settings")
app.command("migrate")(migrate.migrate)
app.command("doctor")(doctor.doctor)
app.command("bench")(bench.bench)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every expected error becomes one sentence on standard error."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="overnight", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0
    except typer.Abort:
        return INTERRUPTED
    except UsageError as e:
        tell_usage(e)
        return WRONG_USAGE
    except (Unusable, OvernightError) as e:
        complain(str(e))
        if isinstance(e, ConnectionFailed):
            say(_hint_for(e))
        return REFUSED if isinstance(e, InputRefused) else COULD_NOT
    except UnicodeEncodeError:
        complain("An argument or a variable holds bytes that are no text in UTF-8.")
        return WRONG_USAGE
    except httpx.InvalidURL as e:
        complain(f"An argument cannot stand in an address: {e}.")
        return WRONG_USAGE
    except OSError as e:
        complain(f"{e.filename}: {e.strerror}" if e.filename else str(e.strerror or e))
        return COULD_NOT


def _hint_for(failure: ConnectionFailed) -> str:
    if isinstance(failure.__cause__, httpx.ReadTimeout):
        return "It is there and says nothing: it may be stopped, or have more to do than it can."
    return "Is a server running? Start one with `overnight serve`, or name it with --server or $OVERNIGHT_SERVER."
