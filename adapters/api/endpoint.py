"""One route of the API: who may call it, what it takes, and what it says of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web
from pydantic import BaseModel

from tidings.adapters.api.adapter import ApiAdapter
from tidings.adapters.api.guard import Call
from tidings.adapters.api.keys import Scope

Handler = Callable[[ApiAdapter, Call], Awaitable[web.StreamResponse]]


class Endpoint(NamedTuple):
    """Without a scope it is open to everybody; all but the handler is for /openapi.json, too."""

    method: str
    path: str
    scope: Scope | None
    handler: Handler
    about: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    headers: type[BaseModel] | None = None
    status: int = 200
    # How it answers when all goes well.
    media: tuple[str, ...] = ("application/json",)
    # What may go wrong here besides what may go wrong with every request of this kind.
    faults: tuple[int, ...] = ()
    # Its own refusals are a plain sentence; those of the gate are as everywhere.
    plain: bool = False
    cancel_when_gone: bool = False
