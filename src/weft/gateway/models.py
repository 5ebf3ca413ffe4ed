"""`GET /v1/models`: the models, in the dialect that the headers of the client name."""

import asyncio
import logging
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import msgspec

from weft.dialects import dialect_of, http_of
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.gateway import http_response
from weft.gateway.endpoints import GatewayContext, Receive, Scope, Send, headers_of
from weft.relay.incoming import RequestFailed
from weft.relay.routing import Routing, UnknownModel
from weft.upstream.base import Upstream
from weft.upstream.demo.upstream import DemoUpstream
from weft.upstream.discovery import ListedModel, ListingFailed, list_models
from weft.upstream.http import HttpUpstream

FRESH = 300.0
"""Seconds that the listing of an upstream is used."""

FAILED = 30.0
"""Seconds until an upstream whose listing failed is asked again."""

DEMO_INPUT = ("text",)

log = logging.getLogger("weft.upstream")


class ModelDirectory:
    """The models that upstreams list themselves, asked for when somebody wants to know."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        # By the upstream, not by its name: after a reload that may be another host.
        self._found: WeakKeyDictionary[Upstream, tuple[ListedModel, ...]] = WeakKeyDictionary()
        self._due: WeakKeyDictionary[Upstream, float] = WeakKeyDictionary()
        self._asking: dict[Upstream, asyncio.Task[None]] = {}

    async def models(self) -> dict[str, tuple[str, ...] | None]:
        """As `known`, after those were asked that are due. It takes at most as long as one listing
        may."""
        now = asyncio.get_running_loop().time()
        for upstream in self._asked.values():
            if upstream not in self._asking and self._due.get(upstream, now) <= now:
                self._asking[upstream] = asyncio.create_task(self._ask(upstream))
        if self._asking:
            # A client that leaves must not cancel what others wait for, too.
            await asyncio.wait(set(self._asking.values()))
        return self.known

    @property
    def known(self) -> dict[str, tuple[str, ...] | None]:
        """`<upstream>/<model>` of each model, and what it reads, if the upstream says so."""
        return {
            f"{name}/{model.name}": model.input
            for name, upstream in self._asked.items()
            for model in self._found.get(upstream, ())
        }

    @property
    def _asked(self) -> dict[str, Upstream]:
        """Those in this process have all their models in their settings."""
        return {
            name: upstream
            for name, upstream in self._routing.upstreams.items()
            if isinstance(upstream, HttpUpstream) and upstream.config.discover
        }

    async def _ask(self, upstream: Upstream) -> None:
        pause = FAILED
        try:
            self._found[upstream] = await list_models(upstream)
            pause = FRESH
        except ListingFailed as problem:
            # The last listing stays: its models may well work.
            log.info("%s", problem, extra={"event": "listing-failed"})
        finally:
            self._due[upstream] = asyncio.get_running_loop().time() + pause
            del self._asking[upstream]


class ModelsEndpoint:
    """Lists the models that the key of the caller may use, or returns one of them."""

    def __init__(self, gateway: GatewayContext, routing: Routing) -> None:
        self._gateway = gateway
        self._routing = routing
        self._directory = ModelDirectory(routing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = dialect_of(scope["path"], headers_of(scope))
        name, caller = scope["path_params"].get("id"), scope["weft.caller"]
        listing = http_of(dialect).models
        if listing is None:
            raise InternalError(f"{dialect} has no list of models")
        try:
            if name is not None:
                # As for a request: a name is known if it could be requested, whether it is listed
                # or not.
                self._gateway.check_model(caller, name)
                self._routing.targets(name)
                found = listing.one(name, self._modalities(name, self._directory.known))
            else:
                offered = await self._directory.models()
                listed = dict.fromkeys([*self._routing.models, *offered])
                names = self._gateway.usable_models(caller, listed)
                models = [listing.one(one, self._modalities(one, offered)) for one in names]
                found = listing.all(models, names)
        except (UnknownModel, RequestFailed) as problem:
            unknown = new_error("not-found", str(problem))
            failed = problem if isinstance(problem, RequestFailed) else RequestFailed(unknown)
            about = http_response.weft_headers(scope["weft.id"])
            await http_response.send_error(send, dialect, failed, about)
            return
        await http_response.send_json(send, scope["weft.id"], msgspec.json.encode(found))

    def _modalities(
        self, name: str, offered: Mapping[str, tuple[str, ...] | None]
    ) -> tuple[str, ...] | None:
        """What a model reads, whichever of its targets is asked; None if that is not known."""
        found: tuple[str, ...] | None = None
        for target in self._routing.targets(name):
            is_demo = isinstance(target.upstream, DemoUpstream)
            own = DEMO_INPUT if is_demo else offered.get(target.name)
            if own is None:
                return None
            found = own if found is None else tuple(one for one in found if one in own)
        return found
