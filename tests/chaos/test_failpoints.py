"""The matrix of failpoints: every label is in the code and really passed, and no kill or fault there loses anything."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import matrix
from tests.chaos.crew import Ask, Crew, Result

ROOT = Path(__file__).resolve().parents[2]
# The tests' own adapter and tool stand for those that nobody has written yet.
FILES = ("core", "adapters", "bots", "tests/simulators", "tests/chaos/scripted.py")


def _texts(node: ast.AST) -> Iterator[str]:
    """What a label may be: its text, or either text of a condition."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))


def _labels(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if "fail_here" not in text:
        return
    module = ast.parse(text)
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id="fail_here"), args=[ast.Call(func=ast.Name(id=name))]):
                returned = (each.value for each in ast.walk(functions[name]) if isinstance(each, ast.Return))
                yield from (text for value in returned if value for text in _texts(value))
            case ast.Call(func=ast.Name(id="fail_here"), args=[label]):
                yield from _texts(label)


def test_the_matrix_and_the_code_have_the_same_labels() -> None:
    places = [ROOT / name for name in FILES]
    paths = [path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])]
    assert {label for path in paths for label in _labels(path)} == matrix.MATRIX.keys() | matrix.ELSEWHERE


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew() as crew:
        yield crew


def told(results: list[Result]) -> list[str]:
    return [
        f"{result.scenario} {result.at} {name}: {sentence}"
        for result in results
        for name, sentences in result.violations.items()
        for sentence in sentences
    ]


def test_every_label_is_passed_and_a_kill_there_loses_nothing(crew: Crew) -> None:
    clean = list(crew.play([Ask(at="", scenario=scenario, labels=True) for scenario in ("ten", "odd", "approvals")]))
    counts = {result.scenario: result.labels for result in clean}
    # The first time that it is passed; `make sweep` also kills at later ones.
    results = list(crew.play(list(matrix.kills(counts, hits=(1,)))))
    # A kill that never came is told too: nobody has passed its label.
    assert told([*clean, *results]) == []
    assert {label for label in matrix.MATRIX if not any(f"{label}:1" in result.at for result in results)} == set()


@pytest.mark.parametrize("action", ["stop", "raise", "enospc", "delay"])
def test_what_is_not_a_kill_loses_nothing_either(action: str, crew: Crew) -> None:
    asks = [ask for ask in matrix.actions() if f":{action}" in ask.at]
    assert len(asks) >= 3
    assert told(list(crew.play(asks))) == []


def test_a_label_that_nobody_passes_is_a_violation(crew: Crew) -> None:
    asks = [Ask(at="no.such_label:1"), Ask(at="no.such_label:1:delay=1")]
    results = list(crew.play(asks))
    assert len(results) == 2
    assert all(result.violations == {"harness": [f"{result.at} never came"]} for result in results)
