"""Reads a Dockerfile and finds what is wrong with it: what a linter would say, and what our image promises."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

KNOWN = {
    *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL", "USER"),
    *("VOLUME", "WORKDIR"),
}
SECRET = re.compile(r"(TOKEN|KEY|SECRET|PASSW)", re.IGNORECASE)
BANNED = re.compile(r"\b(sudo|curl|wget|apt-get|apk|git|chmod -R|777)\b(?<!1777)")
TAG = re.compile(r"[\w./-]+:(?!latest\b)[\w.${}-]*\d[\w.${}-]*")


class Step(NamedTuple):
    word: str
    rest: str
    line: int

    @property
    def is_exec(self) -> bool:
        """`["a", "b"]` is run as it stands; anything else goes through a shell that eats signals."""
        try:
            return isinstance(json.loads(self.rest), list)
        except ValueError:
            return False

    @property
    def words(self) -> list[str]:
        return shlex.split(self.rest)


class Stage(NamedTuple):
    image: str
    name: str
    steps: tuple[Step, ...]

    def all(self, word: str) -> list[Step]:
        return [step for step in self.steps if step.word == word]

    def last(self, word: str) -> Step | None:
        found = self.all(word)
        return found[-1] if found else None

    @property
    def environment(self) -> dict[str, str]:
        pairs = (pair.partition("=") for step in self.all("ENV") for pair in step.words)
        return {name: value for name, _, value in pairs}


def read(text: str) -> list[Stage]:
    """Raises ValueError for a line that is no instruction."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for step in _steps(text):
        if step.word == "ARG" and not stages:
            name, _, value = step.rest.partition("=")
            arguments[name] = value
        elif step.word == "FROM":
            image, _, name = step.rest.partition(" AS ")
            for argument, value in arguments.items():
                image = image.replace(f"${{{argument}}}", value)
            stages.append(Stage(image, name, ()))
        elif stages:
            stages[-1] = stages[-1]._replace(steps=(*stages[-1].steps, step))
        else:
            raise ValueError(f"line {step.line}: {step.word} before FROM")
    return stages


def _steps(text: str) -> Iterator[Step]:
    held, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not held):
            continue
        begun = begun or number
        held += line.strip().removesuffix("\\").rstrip() + " "
        if line.rstrip().endswith("\\"):
            continue
        word, _, rest = held.strip().partition(" ")
        if word not in KNOWN:
            raise ValueError(f"line {begun}: {word} is no instruction, or none that belongs here")
        yield Step(word, rest.strip(), begun)
        held, begun = "", 0
    if held:
        raise ValueError(f"line {begun}: it never ends")


def ignored(root: Path) -> list[str]:
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def sent(path: str, patterns: Sequence[str]) -> bool:
    """Whether a file of the tree reaches the builder: the last pattern that matches it or a folder above decides."""
    kept = True
    above = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        variants = {wanted, wanted.removeprefix("**/")}
        if any(fnmatch.fnmatchcase(each, variant) for each in above for variant in variants) or (
            wanted.startswith("**/") and any(fnmatch.fnmatchcase(Path(each).name, wanted[3:]) for each in above)
        ):
            kept = pattern.startswith("!")
    return kept


def faults(text: str, root: Path) -> list[str]:
    try:
        stages = read(text)
    except ValueError as error:
        return [str(error)]
    if len(stages) != 2 or not stages[0].name:
        return ["it must have two stages, the first with a name"]
    build, final = stages
    return [*_everywhere(stages), *_in_build(build, root), *_in_final(final, build.name)]


def _everywhere(stages: Sequence[Stage]) -> Iterator[str]:
    for stage in stages:
        if not TAG.fullmatch(stage.image):
            yield f"the image {stage.image} is not pinned to a version"
        for step in stage.steps:
            if step.word == "ENV" and SECRET.search(step.rest) or step.word == "ARG" and SECRET.search(step.rest):
                yield f"line {step.line}: a secret would stay in the image"
            if step.word == "RUN" and (found := BANNED.search(step.rest)):
                yield f"line {step.line}: {found[0]} has no place here"
            if step.word == "WORKDIR" and not step.rest.startswith("/"):
                yield f"line {step.line}: WORKDIR is not absolute"
            if step.word == "RUN" and " install " in step.rest:
                yield from _installs(step)


def _installs(step: Step) -> Iterator[str]:
    for command in step.rest.split("&&"):
        words = command.split()
        if "install" not in words:
            continue
        if "--require-hashes" not in words and not {"--no-deps", "--no-build-isolation"} <= set(words):
            yield f"line {step.line}: something would be fetched without its hash"


def _in_build(stage: Stage, root: Path) -> Iterator[str]:
    patterns = ignored(root)
    for step in stage.all("COPY"):
        *sources, _ = step.words
        for source in sources:
            if source in (".", "./") or not (root / source).exists() or not sent(source, patterns):
                yield f"line {step.line}: {source} is everything, missing, or kept back by .dockerignore"
    if not any("compileall" in step.rest for step in stage.all("RUN")):
        yield "nothing is compiled, so every start compiles anew"


def _in_final(stage: Stage, built: str) -> Iterator[str]:
    for step in stage.all("COPY"):
        if step.words[0] != f"--from={built}":
            yield f"line {step.line}: only what was built belongs into the last stage"
    user = stage.last("USER")
    if user is None or not re.fullmatch(r"[1-9]\d*(:\d+)?", user.rest):
        yield "USER must be a number other than 0: a name cannot be checked by whoever runs it"
    for word in ("ENTRYPOINT", "CMD"):
        step = stage.last(word)
        if step is None or not step.is_exec:
            yield f"{word} is missing or goes through a shell, which would keep SIGTERM for itself"
    health = stage.last("HEALTHCHECK")
    if health is None or not re.search(r'CMD \["tidings", ', health.rest):
        yield "HEALTHCHECK is missing or goes through a shell"
    home = stage.environment.get("TIDINGS_HOME", "")
    volumes = [step.rest for step in stage.all("VOLUME")]
    if not any(Path(home).parent == Path(volume) for volume in volumes):
        yield "TIDINGS_HOME must lie in the volume, one folder down, so that any uid can make it"
