"""S5: a key is compared in one place, in constant time, and every route goes through it."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from tests.worlds.fakes import FakePeople
from tidings.adapters.api.keys import Grant, Keys, digest
from tidings.core.desk.people import Key, PeopleDesk

ROOT = Path(__file__).resolve().parents[2]
MODULES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "adapters/api").rglob("*.py"))}
SECRET = re.compile("secret|digest|token|password|bearer|credential", re.IGNORECASE)


def compared(module: ast.AST) -> Iterator[str]:
    """Every comparison of values in which something secret takes part."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Compare) or all(isinstance(sign, ast.Is | ast.IsNot) for sign in node.ops):
            continue
        words = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        words += [part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)]
        # How long it is tells nothing of what it is.
        if any(map(SECRET.search, words)) and "len" not in words:
            yield ast.unparse(node)


def known() -> PeopleDesk:
    return cast("PeopleDesk", FakePeople())


def callers(name: str, of: str = "") -> list[str]:
    """The functions in which something of this name, and of this object, is called."""
    return [
        f"{path.stem}.{function.name}"
        for path, module in MODULES.items()
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in function.body
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == name
        if ast.unparse(call.func.value).endswith(of)
    ]


def test_s5_nothing_secret_is_compared_by_its_letters() -> None:
    assert {path.name: found for path, module in MODULES.items() if (found := [*compared(module)])} == {}


def test_s5_the_rule_knows_a_sinner() -> None:
    for line in ("secret == key.digest", "if given.digest != other: pass", "secret in secrets", "a == self._bearer"):
        assert [*compared(ast.parse(line))], line
    for line in ("secret is None", "len(secret) < 32", "key.name == name"):
        assert not [*compared(ast.parse(line))], line


def test_s5_one_function_compares_one_asks_it_and_one_lets_in() -> None:
    assert callers("compare_digest") == ["keys.find"]
    assert set(callers("find", "keys")) == {"guard.admit"}
    # Everything in `serve` that calls a handler with a key has had it from there.
    assert {place.split(".")[0] for place in callers("admit", "gate")} == {"serve"}
    assert {place.split(".")[0] for place in callers("handler")} == {"serve"}


def test_s5_the_headers_that_carry_a_key_are_read_in_one_function() -> None:
    readers = [
        f"{path.stem}.{function.name}"
        for path, module in MODULES.items()
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        for word in node.args
        if isinstance(word, ast.Constant) and str(word.value).lower() in ("authorization", "x-api-key", "cookie")
    ]
    assert set(readers) == {"guard._secret"}


def test_s5_an_unknown_key_costs_the_same_work() -> None:
    """Digests of one length, and no way out of the loop before all are compared."""
    assert {len(digest(secret)) for secret in ("", "a", "ä" * 1000, "\udcff")} == {64}
    function = ast.parse(textwrap.dedent(inspect.getsource(Keys.find))).body[0]
    loop = next(node for node in ast.walk(function) if isinstance(node, ast.For))
    assert not [node for node in ast.walk(loop) if isinstance(node, ast.Return | ast.Break | ast.Continue)]


async def test_s5_the_value_of_a_key_is_compared_and_not_its_presence() -> None:
    keys = Keys(known(), "the-owner's-key-0123456789-abcdefghijkl")
    secret = await keys.add("someone", Grant(), 0.0)
    found = keys.find(secret)
    assert isinstance(found, Key)
    assert found.name == "someone"
    for wrong in (
        "",
        " ",
        secret[:-1],
        secret + "x",
        secret.upper(),
        found.digest,
        digest(secret),
        found.id,
        "someone",
    ):
        assert keys.find(wrong) is None, wrong


async def test_s5_what_is_stored_is_a_digest() -> None:
    people = known()
    secret = await Keys(people).add("someone", Grant(), 0.0)
    (stored,) = people.keys()
    assert secret not in str(stored)
    assert stored.digest == digest(secret)
