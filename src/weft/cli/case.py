"""`weft case`: what the upstream of a stored response sent, as a regression case."""

from pathlib import Path

import click

from weft.cases import NAME, CaseContext, case_files, zipped
from weft.cli.captures import write, write_private
from weft.cli.open_store import UnusableStore, settings_of, with_store
from weft.cli.trace import stored_response
from weft.dialects import DialectName
from weft.relay.persistence import Persistence
from weft.relay.rerun import recorded_capture
from weft.scrub import Scrubber
from weft.store.base import Store


def run(id: str, name: str | None, out: str, config: Path | None) -> None:
    """Writes the zip file."""
    named = name or id
    if not NAME.fullmatch(named):
        raise click.UsageError(f"--name {named[:100]!r}: expected up to 100 letters, digits, ._-")
    settings = settings_of(config)
    scrub = Scrubber(settings.secrets)

    async def work(store: Store) -> tuple[bytes, DialectName, CaseContext] | None:
        entry = await stored_response(store, id)
        if entry.ended is None:
            raise UnusableStore(f"{id}: the response is still running")
        return await recorded_capture(Persistence(store), id, scrub)

    found = with_store(settings.store.url, work)
    if found is None:
        # click.ClickException exits with 1.
        raise click.ClickException(
            f"{id}: what its upstream sent was not kept; see store.upstream and "
            "store.upstream_retention in the settings"
        )
    data = zipped(case_files(named, *found).items())
    if out == "-":
        write((data,))
    else:
        write_private(Path(out), data)
