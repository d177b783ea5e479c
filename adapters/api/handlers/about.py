"""What the API says of itself: models, capabilities, health, metrics and its own description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from tidings.adapters.api.errors import not_found
from tidings.adapters.api.guard import Call
from tidings.adapters.api.service import ApiService, answer
from tidings.core.telemetry.metrics import BOUNDS

RETENTION_SECONDS = 86_400


async def health(api: ApiService, call: Call) -> web.StreamResponse:
    """Needs no key, so it says nothing but that the gateway is up."""
    return answer({"status": "ok"})


async def starting(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
    """Answers while the store is being opened: alive, and not ready yet."""
    return web.json_response({"status": "starting"}, status=503, headers={"Retry-After": "1"})


async def health_in_detail(api: ApiService, call: Call) -> web.StreamResponse:
    health = await api.desk.health()
    troubled = [part.name for part in health.parts if part.state not in ("up", "starting", "standing by")]
    status = "ok" if health.store == "ok" and not troubled else "degraded"
    return answer({"status": status, **msgspec.to_builtins(health)})


async def models(api: ApiService, call: Call) -> web.StreamResponse:
    return answer({"object": "list", "data": [_model(name) for name in api.bots(call.key)]})


async def model(api: ApiService, call: Call) -> web.StreamResponse:
    if call.names["id"] not in api.bots(call.key):
        raise not_found("model")
    return answer(_model(call.names["id"]))


def _model(name: str) -> dict[str, Any]:
    common = {"object": "model", "created": 0, "owned_by": "tidings", "permission": [], "parent": None}
    return {"id": name, "root": name, **common}


def capabilities(api: ApiService, call: Call, endpoints: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What this server can do, in the words of clients that ask before they try."""
    features = {
        "chat_completions": True,
        "chat_completions_streaming": True,
        "responses_api": True,
        "responses_streaming": True,
        "responses_background": True,
        "reasoning_streaming": True,
        "run_submission": True,
        "run_status": True,
        "run_events_sse": True,
        "run_events_resume": True,
        "run_stop": True,
        "run_steer": True,
        "run_approval_response": True,
        "tool_progress_events": True,
        "approval_events": True,
        "notify": True,
        "session_continuity_header": "X-Tidings-Conversation",
        "cors": bool(api.settings.origins),
    }
    return {
        "object": "tidings.capabilities",
        "platform": "tidings",
        "model": next(iter(api.bots(call.key)), None),
        "auth": {"type": "bearer", "required": True},
        "runtime": {"mode": "server_agent", "tool_execution": "server", "split_runtime": False},
        "features": features,
        "run_idempotency": {"supported": True, "durable": True, "retention_seconds": RETENTION_SECONDS},
        "endpoints": {f"{method} {path}": {"method": method, "path": path} for method, path in endpoints},
    }


async def metrics(api: ApiService, call: Call) -> web.StreamResponse:
    """Metrics for Prometheus: counts and times only."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST

    registry = CollectorRegistry()
    registry.register(_Collector(api, await api.desk.health()))
    return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Collector:
    def __init__(self, api: ApiService, health: Any) -> None:
        self._meters = api.desk.meters
        self._health = health

    def collect(self) -> Any:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        meters, health = self._meters, self._health
        inbound = CounterMetricFamily("tidings_inbound", "What came in.", labels=["adapter"])
        for adapter, count in meters.inbound.items():
            inbound.add_metric([adapter], count)
        outbound = CounterMetricFamily(
            "tidings_outbound", "Parts handed to a platform, by what became of them.", labels=["adapter", "verdict"]
        )
        for (adapter, verdict), count in meters.outbound.items():
            outbound.add_metric([adapter, verdict], count)
        runs = CounterMetricFamily("tidings_runs", "Runs that ended, by outcome.", labels=["outcome"])
        for outcome, count in meters.runs.items():
            runs.add_metric([outcome], count)
        tokens = CounterMetricFamily("tidings_tokens", "Tokens of models.", labels=["direction"])
        tokens.add_metric(["input"], meters.input_tokens)
        tokens.add_metric(["output"], meters.output_tokens)
        took = HistogramMetricFamily("tidings_run_seconds", "How long runs took.")
        total, buckets = 0, []
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], meters.run_buckets, strict=True):
            total += count
            buckets.append((bound, total))
        took.add_metric([], buckets, meters.run_seconds)
        depth = GaugeMetricFamily("tidings_queue_depth", "What waits or runs now.", labels=["queue"])
        asking = health.overview.asking if health.overview else 0
        for queue, count in (("running", health.running), ("queued", health.queued), ("approvals", asking)):
            depth.add_metric([queue], count)
        for state, count in health.deliveries.items():
            depth.add_metric([f"deliveries_{state}"], count)
        up = GaugeMetricFamily("tidings_part_up", "Whether a part is well.", labels=["part", "state"])
        for part in health.parts:
            up.add_metric([part.name, part.state], int(part.state == "up"))
        yield from (inbound, outbound, runs, tokens, took, depth, up)
