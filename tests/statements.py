"""Every SQL statement of the product, read from the source.

A statement that no test runs is seen too, and so is every text that parts make up. A text that cannot be told from the
source is reported: write it so that it can.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

from tests.sources import PACKAGES, ROOT, modules, place, tree

# The verbs of a transaction, and those of a connection.
VERBS = {"one", "all", "execute", "count", "executemany"}
# The names that a transaction or a connection has.
STORES = ("tx", "connection", "store")
STATEMENT = re.compile(r"(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH RECURSIVE) ")
# It passes on the statements that others give it.
PASSED_ON = "core/store/sqlite.py"


class Statement(NamedTuple):
    place: str
    sql: str
    # The module, as a path below the root.
    module: str = ""
    # The innermost function around the statement, and its line there.
    function: str = ""
    line: int = 0


class Unreadable(Exception):
    """The text of a statement cannot be told from the source."""


def statements(without: Collection[str] = ()) -> Iterator[Statement]:
    for path in modules(*PACKAGES):
        module = str(path.relative_to(ROOT))
        if module in without or module == PASSED_ON:
            continue
        for scopes, call in _calls(tree(path)):
            match call:
                case ast.Call(func=ast.Attribute(value=receiver, attr=verb), args=[text, *_]) if verb in VERBS:
                    if not ast.unparse(receiver).endswith(STORES):
                        continue
                    function = next((name for scope in scopes if (name := getattr(scope, "name", ""))), "")
                    for sql in {*Reader(path, scopes).texts(text)}:
                        if STATEMENT.match(sql):
                            yield Statement(place(path, call), sql, module, function, call.lineno)
                case _:
                    continue


def _calls(node: ast.AST, scopes: tuple[ast.AST, ...] = ()) -> Iterator[tuple[tuple[ast.AST, ...], ast.Call]]:
    """Each call with the functions around it, the innermost first."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        scopes = (node, *scopes)
    if isinstance(node, ast.Call):
        yield scopes, node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, scopes)


class Reader:
    """Tells which texts an expression can have."""

    def __init__(self, path: Path, scopes: tuple[ast.AST, ...]) -> None:
        self._path = path
        self._scopes = scopes

    def texts(self, node: ast.expr) -> Iterable[str]:
        match node:
            case ast.Constant(value=value):
                return [str(value)]
            case ast.JoinedStr(values=parts):
                return map("".join, product(*(list(self.texts(part)) for part in parts)))
            case ast.FormattedValue(value=value):
                return self.texts(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return map("".join, product(self.texts(left), list(self.texts(right))))
            case ast.IfExp(body=body, orelse=orelse):
                return chain(self.texts(body), self.texts(orelse))
            case ast.Name(id=name):
                return self._named(node, name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return [self._constant(node, owner, name)]
            case _:
                raise self._unreadable(node)

    def _named(self, node: ast.expr, name: str) -> Iterable[str]:
        for scope in self._scopes:
            bound = [*_bound_in(scope, name)]
            if bound:
                return chain.from_iterable(map(self.texts, bound))
            if name in _parameters(scope):
                return self._passed(node, scope, _parameters(scope).index(name))
        return [self._constant(node, name)]

    def _passed(self, node: ast.expr, function: ast.AST, position: int) -> Iterable[str]:
        """A private function's parameter has the texts that its callers give it."""
        called = getattr(function, "name", "")
        given = [
            Reader(self._path, scopes).texts(call.args[position])
            for scopes, call in _calls(tree(self._path))
            if called.startswith("_") and isinstance(call.func, ast.Name) and call.func.id == called
        ]
        if not given:
            raise self._unreadable(node)
        return chain.from_iterable(given)

    def _constant(self, node: ast.expr, *names: str) -> str:
        value: object = importlib.import_module(
            ".".join(("tidings", *self._path.relative_to(ROOT).with_suffix("").parts))
        )
        for name in names:
            value = getattr(value, name, None)
        if not isinstance(value, str | int):
            raise self._unreadable(node)
        return str(value)

    def _unreadable(self, node: ast.expr) -> Unreadable:
        return Unreadable(f"{place(self._path, node)} {ast.unparse(node)}")


def _parameters(scope: ast.AST) -> list[str]:
    assert isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    return [each.arg for each in scope.args.args]


def _bound_in(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a function gives to a name, also by a loop over values that it spells out."""
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.For(target=ast.Name(id=target), iter=ast.Tuple(elts=values)) if target == name:
                yield from values
            case _:
                continue
