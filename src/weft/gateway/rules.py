"""`GET /v1/rules`: the rules of streams, as `weft check --explain` has them."""

import msgspec

from weft.check.clients import verdicts_on
from weft.check.lifecycle import NOT_RULES
from weft.check.report import explanation
from weft.check.rules import LIFECYCLE, all_rules, rule, rules_named
from weft.errors import ClientError
from weft.gateway import http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.endpoints import Receive, Scope, Send
from weft.gateway.stored_responses import not_found, send_problem
from weft.relay.incoming import RequestFailed
from weft.relay.offload import offload

_json = msgspec.json.Encoder().encode


class RulesEndpoint:
    """All rules, or the one that the path names: by its id, or by the code of a finding."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id, code = scope["weft.id"], scope["path_params"].get("code")
        try:
            # Rules are files, which are read at first.
            data = await (offload(_all_rules) if code is None else offload(_named_rule, code))
        except RequestFailed as problem:
            await send_problem(send, RESPONSES, id, problem)
        else:
            await http_response.send_json(send, id, data)


def _all_rules() -> bytes:
    return _json({"object": "list", "data": [_short_object(id) for id in all_rules()]})


def _short_object(id: str) -> dict[str, object]:
    found = rule(id)
    return {"id": id, "object": "rule", "severity": found.severity, "promise": found.promise}


def _named_rule(code: str) -> bytes:
    """Raises HttpRejection."""
    try:
        ids = rules_named(code)
    except ClientError:
        # A finding that is no rule, such as what an encoder could not carry.
        reason = next((why for known, why in NOT_RULES.items() if known == code), None)
        if reason is None:
            raise not_found("Rule", code) from None
        about = {"id": code, "object": "rule", "severity": "note", "promise": "", "why": reason}
        return _json({**about, "example": "", "clients": [], "text": f"{code}\n\n{reason}\n"})
    # A bare name may stand for rules of several wires: that of every stream counts.
    id = next((one for one in ids if one.startswith(f"{LIFECYCLE}/")), ids[0])
    found = rule(id)
    clients = [
        {
            "client": one.client.name,
            "version": one.client.version,
            "dialect": one.dialect,
            "effect": one.effect,
            "says": one.says,
        }
        for one in verdicts_on(id)
    ]
    return _json(
        {
            **_short_object(id),
            "why": found.why,
            "example": found.example,
            "clients": clients,
            "text": explanation(id),
        }
    )
