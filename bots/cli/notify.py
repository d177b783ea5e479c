"""Sends messages from a shell, and chooses where gateway alerts go: `tidings notify` and `tidings home`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from tidings.bots.cli.context import Place


def notify(
    context: typer.Context,
    target: str = typer.Argument(help="Where to: console, platform:CHAT[:THREAD], or platform for its home."),
    text: str = typer.Argument("-", help="What to say.", show_default="read from the pipe"),
    file: list[Path] = typer.Option([], "--file", "-f", help="Send this file too; give it once for each."),
) -> None:
    """Send a message. It is stored first, so it arrives even if the platform or the gateway fails meanwhile."""
    question: dict[str, Any] = {"verb": "notify", "target": target, "text": _read(text, bool(file))}
    if file:
        question["files"] = [_found(path) for path in file]
    place: Place = context.obj
    answer = place.ask(question)
    typer.echo(f"stored as {answer['owed']}; it goes to {answer['target']} as soon as that can be reached")


def home(
    context: typer.Context,
    target: str = typer.Argument("", help="The chat that gets gateway alerts from now on, such as telegram:123."),
) -> None:
    """Show or choose the chats that get gateway alerts; in a chat, owners can use /sethome."""
    place: Place = context.obj
    answer = place.ask({"verb": "home", "target": target})
    for name, chosen in answer["homes"].items():
        typer.echo(f"{name:<20} {chosen}")
    if not answer["homes"]:
        typer.echo("tidings: there is no home yet; write /sethome in a chat, or: tidings home telegram:123", err=True)


def _read(text: str, has_files: bool) -> str:
    if text == "-" and sys.stdin.isatty():
        if not has_files:
            raise typer.BadParameter("say what to send, or pipe it in: df -h | tidings notify console")
        return ""
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    # Text from the shell may not be UTF-8.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip() and not has_files:
        raise typer.BadParameter("the text is empty, so there is nothing to send")
    return text


def _found(path: Path) -> str:
    whole = path.expanduser().absolute()
    if not whole.is_file():
        raise typer.BadParameter(f"{path} is not a file")
    return str(whole)
