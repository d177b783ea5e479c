"""Builds the models that a bot asks, from `provider:name`, an address and a key; imported when first needed."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from tidings.bots.assistant.settings import Assistant, ModelChoice
from tidings.core import redaction

# The window that is assumed for an unknown model.
WINDOW_TOKENS = 128_000
NO_KEY = "none"
OLLAMA = "http://127.0.0.1:11434/v1"
# More connections would only queue at the provider.
CONNECTIONS = 1000
# The last event of a stream, and how long to wait for the end of the bytes after it.
DONE = b"data: [DONE]\n\n"
DONE_SECONDS = 0.5

_WANTS_STREAM = re.compile(rb'"stream"\s*:\s*true')


class Unbuilt(Exception):
    """A model cannot be built; the message is a sentence for the person and the owner."""


class NotStreamed(httpx2.TransportError):
    """The server was asked for a stream and sent something else."""


@dataclass(slots=True)
class Built:
    """A model that can be asked."""

    name: str
    # The name that people are shown.
    provider: str
    model: Model
    window: int
    images: bool
    # True after the model failed to stream once; from then on it is asked without a stream.
    streams: bool
    # Whether its bytes pass through `Watching`.
    watched: bool


class Models:
    """The models of one bot; each is built once, and all share one pool of connections."""

    def __init__(self, settings: Assistant) -> None:
        self._settings = settings
        self._built: dict[tuple[str, str, str], Built] = {}
        self._client: httpx2.AsyncClient | None = None
        # Models are built in threads, and two conversations may need the same one at once.
        self._building = Lock()

    def choices(self, preferred: str) -> list[ModelChoice]:
        """The models to ask, in order: the conversation's choice or the bot's own, then the fallbacks."""
        own = self._settings
        first: ModelChoice = own
        if preferred not in ("", own.model):
            named = {each.model: each for each in own.fallbacks}
            # Only the name is taken over: the bot's key must not reach another provider.
            first = named.get(preferred) or ModelChoice(model=preferred)
        order = [first, *(each for each in own.fallbacks if each is not first)]
        return [self._with_way(each) for each in order]

    async def get(self, choice: ModelChoice) -> Built:
        if built := self._built.get(_key(choice)):
            return built
        # Loading certificates and profiles takes a while.
        return await asyncio.to_thread(self._build, choice)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _with_way(self, choice: ModelChoice) -> ModelChoice:
        """Gives a model of the bot's own provider the bot's address and key."""
        own = self._settings
        if provider_of(choice.model) == provider_of(own.model):
            choice = _reached_like(choice, own)
        if provider_of(choice.model) == "ollama" and not choice.base_url and "OLLAMA_BASE_URL" not in os.environ:
            choice = choice.model_copy(update={"base_url": OLLAMA})
        return choice

    def _build(self, choice: ModelChoice) -> Built:
        with self._building:
            if _key(choice) not in self._built:
                self._built[_key(choice)] = self._make(choice)
            return self._built[_key(choice)]

    def _make(self, choice: ModelChoice) -> Built:
        if self._settings.base_url and not _is_known(provider_of(choice.model)):
            # At a `base_url`, a prefix such as llama3: in llama3:8b is part of the name.
            choice = _reached_like(choice, self._settings)
        provider_name, name = split(choice)
        watched = False

        def make(kind: str) -> Provider[Any]:
            nonlocal watched
            provider, watched = self._provider(kind, choice)
            return provider

        try:
            model = infer_model(f"{provider_name}:{name}", make)
        except (UserError, ImportError, ValueError) as error:
            raise Unbuilt(f"the model {choice.model} cannot be used here: {' '.join(str(error).split())}") from error
        settings = self._settings
        images = model.profile.get("supports_image_input", True) if settings.images is None else settings.images
        window = settings.window_tokens or model.context_window or WINDOW_TOKENS
        called = "the model's provider" if choice.base_url else provider_name.partition("-")[0]
        return Built(choice.model, called, model, window, images, settings.stream, watched)

    def _provider(self, kind: str, choice: ModelChoice) -> tuple[Provider[Any], bool]:
        """The provider, and whether it uses our connections."""
        provider = infer_provider_class(kind)
        known = inspect.signature(provider.__init__).parameters
        wanted: dict[str, Any] = {"base_url": choice.base_url, "api_key": choice.api_key.get_secret_value()}
        if choice.base_url and not wanted["api_key"]:
            # Without a key the library would take the provider's key from the environment and send it to this address.
            wanted["api_key"] = NO_KEY
        given = {name: value for name, value in wanted.items() if value}
        for name in given.keys() - known.keys():
            raise UserError(f"{kind} takes no {name}")
        with_client = {"http_client": self._pool()} if "http_client" in known else {}
        try:
            made = provider(**given, **with_client)
        except TypeError:
            # Some libraries accept only their own kind of client.
            made, with_client = provider(**given), {}
        with suppress(AttributeError):
            # Retries are counted in `ask`, which can tell the person about them.
            made.client.max_retries = 0
            # The key may come from the environment, where the settings have not registered it as a secret.
            if made.client.api_key != NO_KEY:
                redaction.remember(str(made.client.api_key))
            _hasten(made.client.chat.completions)
        return made, bool(with_client)

    def _pool(self) -> httpx2.AsyncClient:
        if self._client is None:
            settings = self._settings
            # The transport has one timeout for every byte; `Watching` tells the first byte from later ones.
            longest = max(settings.read_seconds, settings.stall_seconds)
            self._client = httpx2.AsyncClient(
                transport=Watching(settings),
                timeout=httpx2.Timeout(longest, connect=settings.connect_seconds),
                # A redirect to another address must not carry the key.
                follow_redirects=False,
            )
        return self._client


def _hasten(completions: Any) -> None:
    """Skips the OpenAI library's walk through messages and tools by their type hints, which takes 0.5 ms for each.

    Both are plain JSON already, so they travel as additional fields of the body.
    """
    create = completions.create

    async def create_quickly(*, messages: Any, extra_body: Any = None, tools: Any = None, **more: Any) -> Any:
        body = {**(extra_body or {}), "messages": messages}
        if isinstance(tools, list):
            body["tools"] = tools
        return await create(messages=[], extra_body=body, **more)

    completions.create = create_quickly


def provider_of(model: str) -> str:
    return model.partition(":")[0] if ":" in model else ""


def split(choice: ModelChoice) -> tuple[str, str]:
    """The library's name of the provider, and the model's name at that provider."""
    provider, colon, name = choice.model.partition(":")
    if choice.base_url and (not colon or not _is_known(provider)):
        return "openai-chat", choice.model
    if not colon:
        raise Unbuilt(f'the model "{choice.model}" has no provider: write it as provider:name')
    # A server at a `base_url` is asked in the older dialect, which all such servers know.
    return "openai-chat" if provider == "openai" and choice.base_url else provider, name


def _is_known(provider: str) -> bool:
    try:
        infer_provider_class(provider)
    except ValueError:
        return False
    except ImportError:
        return True
    return True


def _key(choice: ModelChoice) -> tuple[str, str, str]:
    """What tells two models apart: the same name may be served at two addresses or for two accounts."""
    return choice.model, choice.base_url, choice.api_key.get_secret_value()


def _reached_like(choice: ModelChoice, own: ModelChoice) -> ModelChoice:
    if choice.base_url or choice.api_key.get_secret_value():
        return choice
    return choice.model_copy(update={"base_url": own.base_url, "api_key": own.api_key})


class Watching(httpx2.AsyncBaseTransport):
    """A transport that notices an answer that does not begin or stops growing; any byte is a sign of life.

    It uses the proxy that the environment names, because a client with its own transport ignores the environment.
    """

    def __init__(self, settings: Assistant) -> None:
        self._begin_seconds = settings.connect_seconds + settings.read_seconds
        self._stall_seconds = settings.stall_seconds
        limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=50)
        self._direct = httpx2.AsyncHTTPTransport(limits=limits)
        proxies = {scheme: url for scheme, url in getproxies().items() if scheme in ("http", "https")}
        self._proxied = {scheme: httpx2.AsyncHTTPTransport(limits=limits, proxy=url) for scheme, url in proxies.items()}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        way = self._direct if proxy_bypass(request.url.host) else self._proxied.get(request.url.scheme, self._direct)
        try:
            async with asyncio.timeout(self._begin_seconds):
                response = await way.handle_async_request(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("the answer does not begin", request=request) from error
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.status_code == 200 and _is_json(response) and _WANTS_STREAM.search(request.content):
            await response.stream.aclose()
            raise NotStreamed("what was sent is no stream", request=request)
        response.stream = _Watched(response.stream, self._stall_seconds, request)
        return response

    async def aclose(self) -> None:
        for way in (self._direct, *self._proxied.values()):
            await way.aclose()


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("application/json")


class _Watched(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, stall_seconds: float, request: httpx2.Request) -> None:
        self._inner = inner
        self._stall_seconds = stall_seconds
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._inner)
        try:
            while (chunk := await self._next(chunks)) is not None:
                if not chunk.endswith(DONE):
                    yield chunk
                    continue
                # The libraries abandon the connection at this event; reading to the end lets them close it properly.
                if rest := chunk.removesuffix(DONE):
                    yield rest
                with suppress(TimeoutError, httpx2.TransportError):
                    async with asyncio.timeout(DONE_SECONDS):
                        while await anext(chunks, None) is not None:
                            continue
                return
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                return await anext(chunks, None)
        except TimeoutError as error:
            silence = f"no byte for {self._stall_seconds:g} s"
            raise httpx2.ReadTimeout(silence, request=self._request) from error

    async def aclose(self) -> None:
        await self._inner.aclose()
