"""`overnight migrate`: bring the database to this version's schema and stop."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import Json
from overnight.cli.hosting import DatabaseUrl, DataDir, PostgresBin
from overnight.cli.serve import run_loop
from overnight.cli.silence import THE_DATABASE, Silence
from overnight.domain import events
from overnight.settings import Settings, data_dir
from overnight.store.migrate import newest_applied


def migrate(
    data: DataDir = None, database_url: DatabaseUrl = None, postgres_bin: PostgresBin = None, json: Json = False
) -> None:
    """Bring the database to this version's schema. `serve` and `run` do so by themselves when they start."""
    events.set_up_logging("info")
    newest = run_loop(_migrate(Settings(data_dir(data), database_url=database_url, postgres_bin=postgres_bin)))
    if json:
        output.as_json({"schema": newest})
    else:
        output.say(f"The database is at {newest}.")


async def _migrate(settings: Settings) -> str:
    """Migrate; return the name of the newest migration."""
    from overnight.database import opened_store
    from overnight.settings import prepare_data_dir

    prepare_data_dir(settings.data_dir)
    async with Silence(THE_DATABASE).counted(), opened_store(settings) as store, store.session() as session:
        return await newest_applied(session.connection)
