"""What the gateway uses of uvicorn, and of websockets below it, that is not their documented API.

uvicorn documents its configuration and how to run a server, not its protocol classes, which
`HttpProtocol`, `WebSocketProtocol` and `GatewayServer` extend. So `pyproject.toml` pins one minor
version, every import of such a name goes through this module, and `INTERNALS` lists each attribute
that is read, set, called or overridden. `tests/test_uvicorn_internals.py` fails if one of them is
gone from a new version, if the code uses one that is not listed, and if one is no longer used.
"""

from collections.abc import Mapping

import uvicorn
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent, HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.server import ServerProtocol
from websockets.streams import StreamReader

__all__ = [
    "HIGH_WATER_LIMIT",
    "INTERNALS",
    "ASGI3Application",
    "ASGIReceiveEvent",
    "ASGISendEvent",
    "ClientDisconnected",
    "Config",
    "FlowControl",
    "HTTPScope",
    "HttpToolsProtocol",
    "RequestResponseCycle",
    "ServerState",
    "WebSocketsSansIOProtocol",
]

INTERNALS: Mapping[type, frozenset[str]] = {
    HttpToolsProtocol: frozenset(
        (
            # overridden: what asyncio and the server call
            *("connection_made", "connection_lost", "data_received", "shutdown"),
            *("pause_writing", "resume_writing"),
            # overridden: callbacks of httptools, and of a response that is complete
            *("on_message_begin", "on_header", "on_headers_complete", "on_body"),
            *("on_message_complete", "on_response_complete"),
            # state of the server, the connection, and its current request
            *("config", "app", "app_state", "server_state", "connections", "tasks", "logger"),
            *("transport", "loop", "parser", "flow", "client", "ws_protocol_class"),
            *("scope", "url", "headers", "expect_100_continue", "cycle"),
            # upgrades, and the timer of an idle connection
            *("_should_upgrade", "handle_websocket_upgrade"),
            *("timeout_keep_alive", "timeout_keep_alive_task", "timeout_keep_alive_handler"),
            "_unset_keepalive_if_required",
        )
    ),
    RequestResponseCycle: frozenset(
        (
            *("scope", "flow", "transport", "waiting_for_100_continue"),
            *("disconnected", "response_started", "response_complete", "on_response"),
            *("keep_alive", "body", "more_body", "default_headers"),
            *("chunked_encoding", "expected_content_length"),
            *("run_asgi", "receive", "send"),
        )
    ),
    FlowControl: frozenset(
        ("read_paused", "write_paused", "pause_reading", "resume_reading", "resume_writing")
    ),
    WebSocketsSansIOProtocol: frozenset(
        (
            *("run_asgi", "connection_lost", "data_received"),
            *("send_receive_event_to_app", "handle_parser_exception"),
            *("transport", "loop", "scope", "queue", "conn", "frames", "curr_msg_data_type"),
            *("writable", "read_paused", "disconnected", "close_sent", "close_timer"),
        )
    ),
    ServerProtocol: frozenset(
        (
            *("reader", "state", "eof_sent", "close_sent", "fail"),
            *("send_text", "send_continuation", "data_to_send"),
        )
    ),
    StreamReader: frozenset(("buffer", "discard")),
    uvicorn.Server: frozenset(
        (
            *("startup", "main_loop", "on_tick", "shutdown", "capture_signals", "handle_exit"),
            *("config", "servers", "server_state", "lifespan", "should_exit", "force_exit"),
        )
    ),
    ServerState: frozenset(("connections", "tasks", "default_headers")),
}
