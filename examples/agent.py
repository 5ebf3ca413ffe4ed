"""A durable agent run: the agent asks before it refunds an order, and a person approves."""

import os
import time

import httpx

client = httpx.Client(
    base_url=os.environ.get("WEFT_URL", "http://127.0.0.1:8787"),
    headers={"authorization": f"Bearer {os.environ.get('WEFT_KEY', 'client')}"},
    timeout=60,
    trust_env=False,
)
question = "What is the status of order A-17? Please refund it."
started = client.post("/v1/runs", json={"agent": "demo", "input": question})
started.raise_for_status()
id = started.json()["id"]
print(f"{id}: {question}")

# A run is state in the store: it can be looked at from anywhere, also after a crash.
while (run := client.get(f"/v1/runs/{id}").json())["ended_at"] is None:
    for approval in (run["waiting"] or {}).get("approvals", []):
        print(f"approved: {approval['tool']}({approval['arguments']})")
        decision = {"approval_id": approval["approval_id"], "approve": True}
        client.post(f"/v1/runs/{id}/approvals", json=decision).raise_for_status()
    time.sleep(0.1)
print(run["output"])
print(f"-- {run['status']} after {run['turns']} turns")
