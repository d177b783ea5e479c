"""Notifications: a text for any permitted target, and what became of it."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tidings.adapters.api.errors import CONFLICT, FINAL, Problem, not_found
from tidings.adapters.api.guard import Call, read_json, validate
from tidings.adapters.api.models import NotifyRequest
from tidings.adapters.api.service import ApiService, answer, idempotency_key
from tidings.core.errors import Conflict, Unknown, Unsupported
from tidings.core.types import Body, Delivery, DeliveryState, parse_target

# A held delivery waits until the owner has corrected something; clients see it as waiting, with a reason.
STATES = {DeliveryState.HELD: "waiting"}


async def notify(api: ApiService, call: Call) -> web.StreamResponse:
    """Stored before it is answered; what could never arrive is refused at once."""
    body = await read_json(call.request)
    asked = validate(NotifyRequest, body)
    if not asked.text.strip():
        raise Problem(400, "text: there is nothing to send", "invalid_request", param="text")
    try:
        target = parse_target(asked.target)
        await api.check_target(call, target)
        key, digest = idempotency_key(call), hashlib.sha256(body).hexdigest()
        delivery = await api.desk.owe(target, Body(text=asked.text), _cause(call), key, digest)
    except (Unknown, Unsupported) as error:
        raise Problem(
            404, f"nothing can be sent to {asked.target}: {error}", "target_not_found", param="target"
        ) from None
    except Conflict:
        raise Problem(409, CONFLICT, "idempotency_key_conflict", headers=FINAL) from None
    return answer(_described(await api.desk.delivery(delivery)), 202)


async def look(api: ApiService, call: Call) -> web.StreamResponse:
    try:
        delivery = await api.desk.delivery(call.names["delivery_id"])
    except Unknown:
        raise not_found("delivery") from None
    # A key sees what all its people sent, each of them only their own.
    is_own = delivery.cause == _cause(call) or (not call.user and delivery.cause.startswith(f"{_cause(call)}/"))
    if not is_own and not api.sees_all(call):
        raise not_found("delivery")
    return answer(_described(delivery))


def _cause(call: Call) -> str:
    return f"api/{call.key.id}/{quote(call.user, safe='')}" if call.user else f"api/{call.key.id}"


def _described(delivery: Delivery) -> dict[str, Any]:
    ids = [id for receipt in delivery.receipts for id in receipt.ids]
    return {
        "object": "delivery",
        "delivery_id": delivery.id,
        "target": str(delivery.target),
        "state": STATES.get(delivery.state, delivery.state.value),
        "reason": delivery.reason or None,
        "message_ids": ids,
        "message_id": ids[0] if ids else None,
    }
