"""MCP servers that the official package would not let one write: `agent_mcp_misbehaving.py HOW`.

They speak the protocol of 2025, one JSON object per line, as far as the test needs it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

HOW = sys.argv[1]

ANY = [{"name": "act", "inputSchema": {"type": "object"}}]
TOOLS: dict[str, list[Any]] = {
    # neither schema is one, and the result fits none
    "lying": [
        {
            "name": "lie",
            "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
            "outputSchema": {"type": "object", "properties": {"sum": {"type": "integer"}}},
        },
        {"name": "lie", "inputSchema": {"type": "object"}, "description": "Once more."},
    ],
    "invalid-list": [*ANY, {"name": "number", "inputSchema": {"type": "number"}}],
    "invalid-result": [{"name": "lie", "inputSchema": {"type": "object"}}],
}
RESULTS: dict[str, Any] = {
    "lying": {"content": [{"type": "text", "text": "1"}], "structuredContent": {"sum": "three"}},
    "invalid-result": {"content": "nothing that one could read"},
}
LISTED = 0
OK = {"content": [{"type": "text", "text": "ok"}]}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def initialized(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": HOW, "version": "1"},
    }


def listed(params: dict[str, Any]) -> dict[str, Any]:
    global LISTED
    LISTED += 1
    if HOW == "slow-list" and LISTED > 1:
        time.sleep(600)
    if HOW == "endless-list":
        tool = {"name": f"act{LISTED}", "inputSchema": {"type": "object"}}
        return {"tools": [tool], "nextCursor": "again"}
    return {"tools": TOOLS.get(HOW, ANY)}


def called(params: dict[str, Any]) -> dict[str, Any]:
    if HOW == "flooding":
        while True:
            sys.stdout.write("x" * 65536)
    if HOW == "closing-output":
        os.close(1)
        time.sleep(60)
    if HOW == "error":
        raise ValueError
    return RESULTS.get(HOW, OK)  # type: ignore[no-any-return]


METHODS = {"initialize": initialized, "tools/list": listed, "tools/call": called}


def main() -> None:
    if HOW == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it takes more than a word to stop it
    if HOW == "parent":
        # A child that survives its parent, unless somebody ends it: it has pipes of its own, so
        # that those of its parent close in time.
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        null = subprocess.DEVNULL
        child = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)
        print(child.pid, file=sys.stderr, flush=True)
    if HOW == "exiting":
        sys.exit("cannot open the database")
    for line in sys.stdin:
        if HOW in ("silent", "stubborn"):
            continue
        if HOW == "printing":
            print("DEBUG: got a line\n\n{}\n[1, 2]\n\x00\ufffd", flush=True)
        request = json.loads(line)
        if "id" not in request:
            continue
        method = METHODS.get(request["method"])
        if method is None:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
            continue
        try:
            send({"id": request["id"], "result": method(request.get("params", {}))})
        except ValueError:
            send({"id": request["id"], "error": {"code": -32042, "message": "out of order"}})
    if HOW == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    main()
