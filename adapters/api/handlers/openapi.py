"""What /openapi.json says: made of the routes and of the models that validate the requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tidings.adapters.api.errors import ErrorBody, PlainErrorBody

if TYPE_CHECKING:
    from tidings.adapters.api.routes import Endpoint

REFERENCE = "#/components/schemas/{model}"
# Either is enough.
SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def describe(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    _add(ErrorBody, schemas)
    _add(PlainErrorBody, schemas)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidings", "version": version},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": SECURITY},
    }


def faults(endpoint: Endpoint) -> list[int]:
    """Every status but the good one, by what such a request can do wrong."""
    found = {403, 421, *endpoint.faults}
    if endpoint.scope is not None:
        # A person may be named in a header of every request with a key.
        found |= {400, 401, 429}
    if _names(endpoint):
        found.add(404)
    if endpoint.method != "GET":
        found.add(415)
    if endpoint.body is not None:
        # Whatever has a body is stored under a key, and may come too slowly.
        found |= {400, 408, 409, 413, 503}
    return sorted(found)


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    good = {"description": endpoint.about, "content": {media: _content(media) for media in endpoint.media}}
    responses = {str(endpoint.status): good, **{str(status): _fault(status, endpoint) for status in faults(endpoint)}}
    described: dict[str, Any] = {"summary": endpoint.about, "responses": responses}
    if endpoint.scope is not None:
        described["security"] = [{name: []} for name in SECURITY]
        described["x-scope"] = endpoint.scope.value
        described["x-permission"] = endpoint.needs.value if endpoint.needs else None
    headers = endpoint.headers if endpoint.scope is not None else None
    if parameters := [*_in_path(endpoint), *_in(endpoint.query, "query"), *_in(headers, "header")]:
        described["parameters"] = parameters
    if endpoint.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _add(endpoint.body, schemas)}},
        }
    return described


def _content(media: str) -> dict[str, Any]:
    return {"schema": {"type": "object"}} if media == "application/json" else {}


def _fault(status: int, endpoint: Endpoint) -> dict[str, Any]:
    model = PlainErrorBody if endpoint.plain else ErrorBody
    schema = {"$ref": REFERENCE.format(model=model.__name__)}
    return {"description": HTTPStatus(status).phrase, "content": {"application/json": {"schema": schema}}}


def _names(endpoint: Endpoint) -> list[str]:
    return [segment[1:-1] for segment in endpoint.path.split("/") if segment.startswith("{")]


def _in_path(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for name in _names(endpoint):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _in(model: type[BaseModel] | None, place: str) -> Iterator[dict[str, Any]]:
    fields = model.model_json_schema()["properties"] if model is not None else {}
    for name, schema in fields.items():
        # A path, query or header cannot hold null: an optional value may be left out.
        shape = next((choice for choice in schema.get("anyOf", ()) if choice["type"] != "null"), schema)
        kept = {word: value for word, value in shape.items() if word not in ("title", "description")}
        yield {"name": name, "in": place, "description": schema["description"], "schema": kept}


def _add(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=REFERENCE)
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema
    return {"$ref": REFERENCE.format(model=model.__name__)}
