"""What `weft serve` prints when it is ready: where it listens, and what to try first."""

import json
import shlex

from weft.cli.config import columns
from weft.cli.store_check import store_name
from weft.gateway.settings import DEFAULT, Settings
from weft.upstream.urls import DEMO

_SHOWN = 6
"""Models and upstreams that are named; of more, the rest is counted."""


def banner(settings: Settings, url: str, *, needs_key: bool) -> str:
    """Returns the lines. The first one is for programs: `listening on URL`."""
    upstreams = []
    for one in settings.upstreams:
        note = " (built in)" if one.base_url in DEMO else " (no key)" if one.key is None else ""
        upstreams.append(one.name + note)
    known = model_names(settings)
    model = known[0] if known else f"{settings.upstreams[0].name}/MODEL"
    body = json.dumps({"model": model, "stream": True, "input": "hello"})
    # The name of a variable, never a key.
    key = """ -H "authorization: Bearer $KEY\"""" if needs_key else ""
    headers = f"-H 'content-type: application/json'{key}"
    source = f"none: defaults; `weft init` writes {DEFAULT.absolute()}"
    if settings.path is not None:
        source = str(settings.path.absolute())
    rows = [
        ("try", f"curl -N {url}/v1/responses {headers} -d {shlex.quote(body)}"),
        ("models", _list(known) or "those of the upstreams: see /v1/models"),
        ("upstreams", _list(upstreams)),
        ("agents", _list(list(settings.agents))),
        ("store", store_name(settings) if settings.store.enabled else "none: nothing is stored"),
        ("settings", source),
    ]
    if settings.server.page:
        rows.insert(0, ("page", f"{url}/"))
    lines = columns((name, text) for name, text in rows if text)
    return "\n".join([f"listening on {url}", *(f"  {line}" for line in lines)])


def model_names(settings: Settings) -> list[str]:
    """Returns the models that the settings name: aliases first, then those of upstreams."""
    aliases = [name for name in settings.models if "*" not in name]
    listed = [f"{one.name}/{model}" for one in settings.upstreams for model in one.models]
    return [*aliases, *listed]


def _list(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
