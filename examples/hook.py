"""A hook: appends a line to requests.csv for every finished request.

    [server]
    hooks = ["hook:write_row"]

It runs in a thread of the gateway, after the response. If it fails, the log says so, and no client
notices.
"""

import csv
from pathlib import Path

from weft.relay.request_record import RequestRecord

FILE = Path("requests.csv")


def write_row(record: RequestRecord) -> None:
    usage = record.response.usage if record.response is not None else None
    tokens = (usage.input_tokens, usage.output_tokens) if usage is not None else (None, None)
    seconds = (record.ended or record.started) - record.started
    with FILE.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow(
            [record.id, record.model, record.upstream, record.status, f"{seconds:.3f}", *tokens]
        )
