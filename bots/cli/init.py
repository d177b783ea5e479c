"""Sets up a bot in a dialogue, or by flags alone: `tidings init`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from tidings.bots.cli.context import Guide, Place
from tidings.core.errors import ConfigError

if TYPE_CHECKING:
    from tidings.bots.app.settings import Loaded

OWN, DEMO = "own", "demo"
OLLAMA = "http://127.0.0.1:11434/v1"
AGAIN, KEEP, LEAVE = "again", "keep", "leave"


class Provider(NamedTuple):
    title: str
    # The model that is proposed.
    model: str
    # The variable in which the provider's library looks for a key.
    variable: str


PROVIDERS = {
    "openai": Provider("OpenAI", "openai:gpt-5-mini", "OPENAI_API_KEY"),
    "anthropic": Provider("Anthropic", "anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
    "google": Provider("Google", "google:gemini-2.5-flash", "GOOGLE_API_KEY"),
    OWN: Provider("an address of your own: Ollama, vLLM, LM Studio, OpenRouter and the like", "", ""),
    DEMO: Provider("no model yet: the demo bot, which needs no key", "", ""),
}


def init(
    context: typer.Context,
    model: str = typer.Option("", metavar="PROVIDER:NAME", help="The model that answers; demo means no model."),
    model_url: str = typer.Option("", metavar="URL", help="The address of your own model server."),
    model_key: str = typer.Option(
        "", metavar="KEY", help="The model's key. Any secret may also be env:NAME or file:PATH."
    ),
    telegram_token: str = typer.Option("", metavar="TOKEN", help="Connects Telegram."),
    discord_token: str = typer.Option("", metavar="TOKEN", help="Connects Discord."),
    slack_bot_token: str = typer.Option("", metavar="TOKEN", help="Connects Slack, together with --slack-app-token."),
    slack_app_token: str = typer.Option("", metavar="TOKEN", help="The token that begins with xapp-."),
    given: list[str] = typer.Option(
        [], "--set", metavar="SECTION.KEY=VALUE", help="Any other setting; may be repeated."
    ),
    admit: list[str] = typer.Option([], metavar="PLATFORM:ID", help="Who may talk to the bot; may be repeated."),
    owner: list[str] = typer.Option([], metavar="PLATFORM:ID", help="You, or another owner; may be repeated."),
    start: bool | None = typer.Option(None, "--start/--no-start", help="Whether to start the gateway at the end."),
    yes: bool = typer.Option(False, "--yes", "-y", help="Ask nothing, and leave other settings as they are."),
    unchecked: bool = typer.Option(False, "--unchecked", help="Do not test tokens and keys."),
) -> None:
    """Set up a bot: the model, the platforms, and who may talk to it.

    In a terminal it asks step by step. Every answer can be given as an option instead, and then no terminal is
    needed. Tokens are tested at once. Existing settings stay unless you change them: run it as often as you like.
    """
    import logging

    from tidings.bots.cli import people

    # Errors are shown in the dialogue, not in a log.
    logging.getLogger().addHandler(logging.NullHandler())
    place: Place = context.obj
    tokens = {
        ("telegram", "token"): telegram_token,
        ("discord", "token"): discord_token,
        ("slack", "bot_token"): slack_bot_token,
        ("slack", "app_token"): slack_app_token,
    }
    asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
    is_given = model or model_url or model_key or given or admit or owner or start or any(tokens.values())
    if not asks and not is_given:
        why = "nothing was given, and nothing may be asked" if yes else "there is no terminal to ask in"
        raise typer.BadParameter(f"{why}: give the answers as options")
    people.check_all(place, owner, admit)
    setup = SetUp(place, asks=asks, checked=not unchecked)
    for (section, key), value in tokens.items():
        setup.take(section, key, value)
    for each in given:
        setup.take_written(each)
    setup.greet()
    setup.choose_model(model, model_url, _secret(model_key))
    setup.choose_platforms()
    setup.write()
    setup.admit(owner, admit)
    setup.begin(start)


class SetUp:
    """The answers so far; nothing is written before every question was asked."""

    def __init__(self, place: Place, *, asks: bool, checked: bool) -> None:
        self._place = place
        self._asks = asks
        self._checked = checked
        self._changes: dict[tuple[str, str], Any] = {}
        self._connected: list[str] = []
        # The person's own ids, which are stored and not written into the settings.
        self._own: list[str] = []
        from tidings.core.store.lock import check_owner

        # Errors in the existing files are reported before the first question.
        self._loaded = place.load({}, is_new=True)
        check_owner(place.home)

    def take(self, section: str, key: str, value: str) -> None:
        if value:
            self._changes[section, key] = _secret(value)

    def take_written(self, words: str) -> None:
        name, equals, value = words.partition("=")
        section, dot, key = name.strip().rpartition(".")
        if not (equals and dot and section and key):
            raise typer.BadParameter(f"{name!r} is not SECTION.KEY=VALUE, such as telegram.groups=all")
        self._changes[section, key] = _typed(value.strip())

    def greet(self) -> None:
        file = self._loaded.file
        self._tell(f"This sets up a bot in {self._place.home}; its settings are in {file}.")
        if file.exists():
            self._tell("Existing settings stay unless you change them.")
        if self._asks:
            self._tell("Press Enter to accept the value in brackets. Ctrl-C leaves everything as it was.")

    def choose_model(self, model: str, url: str, key: str) -> None:
        if key and not (model or url):
            # A key without a model replaces the key of the current model.
            model, url = self._loaded.bot.model, self._loaded.bot.base_url
            if not model and not self._asks:
                raise typer.BadParameter("a key alone does not help: name the model with --model")
        if model or url:
            self._note_model("" if model == DEMO else model, url, key)
            self._try_model()
        elif self._asks and self._has_one_bot():
            self._ask_for_model()

    def choose_platforms(self) -> None:
        guides = self._place.guides()
        for name, guide in guides.items():
            if any((name, key) in self._changes for key, _ in guide.needs):
                # A wrong token from a flag ends the command before anything is written.
                self._try_platform(name)
            elif self._asks:
                self._ask_for_platform(name, guide)
        self._connected = [name for name in guides if self._is_set(self._load(), name, guides[name])]

    def write(self) -> None:
        """Writes plain settings and secrets into separate files."""
        from tidings.bots.app.roster import secrets_file
        from tidings.bots.app.settings import SECRET
        from tidings.bots.cli import toml_edit

        # All answers together must be valid too.
        loaded = self._load()
        secret = {names: value for names, value in self._changes.items() if SECRET.search(names[1])}
        plain = {names: value for names, value in self._changes.items() if names not in secret}
        for path, changes in ((loaded.file, plain), (secrets_file(loaded.file), secret)):
            if not changes:
                continue
            copy = toml_edit.save(path, changes)
            keys = ", ".join(f"[{section}] {key}" for section, key in changes)
            self._tell(f"{path} now sets: {keys}" + (f"; the old version is in {copy.name}" if copy else ""))
        self._warn_of_variables()

    def admit(self, owners: list[str], others: list[str]) -> None:
        from tidings.bots.cli import people
        from tidings.core.roles import Role

        for id in (*owners, *self._own):
            self._tell(people.admitted(self._place, id, Role.OWNER))
        for id in others:
            self._tell(people.admitted(self._place, id, None))

    def begin(self, wanted: bool | None) -> None:
        from tidings.bots.cli import launch

        runs = launch.is_running(self._place)
        if runs and self._changes and (order := launch.service_order(self._place)):
            self._tell(f"It runs as a service; apply the new settings with: {order}")
            return
        if not runs or self._changes:
            question = "A gateway runs with the old settings. Restart it now?" if runs else "Start it now?"
            if not self._agrees(question, wanted):
                self._tell(
                    "The new settings take effect at the next restart." if runs else "Start it with: tidings run"
                )
                return
            if runs:
                launch.stop(self._place)
            number = launch.start(self._place)
            log = self._place.home / launch.LOG
            self._tell(f"Started as process {number}; stop it with: kill {number}. The log is {log}.")
        for line in launch.connected(self._place, self._connected):
            self._tell(line)
        self._let_in()
        self._tell(
            "Talk to it with: tidings chat. See its state with: tidings status. If something is wrong: tidings doctor."
        )
        self._tell("It keeps running when you leave. To start it again after a reboot: tidings service install")

    def _let_in(self) -> None:
        from tidings.bots.cli import owner

        guides = self._place.guides()
        for name in self._connected if self._asks else ():
            if owner.is_there(self._place, name):
                continue
            if not typer.confirm(f"Admit yourself on {guides[name].title} now?", default=True):
                continue
            done = owner.meet(self._place, name, guides[name], lambda words: typer.confirm(words, default=True))
            self._tell("You are admitted, and the owner." if done else owner.LATER)

    def _ask_for_model(self) -> None:
        bot = self._loaded.bot
        names = list(PROVIDERS)
        self._tell("\nWho should answer?")
        for number, name in enumerate(names, start=1):
            self._tell(f"  {number}  {PROVIDERS[name].title}")
        while True:
            # Another attempt starts from the last answers.
            model, url = self._pending("model", bot.model), self._pending("base_url", bot.base_url)
            own = OWN if url else model.partition(":")[0] if model else DEMO
            default = names.index(own) + 1 if own in names else names.index(OWN) + 1
            chosen = names[int(_choose("Number", [str(each + 1) for each in range(len(names))], str(default))) - 1]
            if chosen == DEMO:
                if bot.model:
                    self._note_model("", "", "")
                return
            self._ask_about_model(chosen, own == chosen)
            if self._settles(self._try_model, "bot"):
                return

    def _ask_about_model(self, chosen: str, is_set: bool) -> None:
        bot, provider, url = self._loaded.bot, PROVIDERS[chosen], ""
        if chosen == OWN:
            url = typer.prompt("Its address", default=self._pending("base_url", bot.base_url) or OLLAMA)
        proposed = self._pending("model", bot.model) if is_set else provider.model
        model = typer.prompt("Which model", default=proposed or None)
        key = self._ask_for_secret("Your key", bot.api_key.get_secret_value() if is_set else "", provider.variable)
        self._note_model(model, url, key)

    def _pending(self, key: str, known: str) -> str:
        return str(self._changes.get(("bot", key), known))

    def _ask_for_secret(self, words: str, known: str, variable: str = "") -> str:
        hint = "not shown while you paste it"
        if known:
            hint = f"{hint}; Enter keeps the current one"
        elif variable and os.environ.get(variable):
            hint = f"{hint}; Enter uses {variable} from the environment, which every start then needs"
        # getpass prints the prompt only after it has turned the echo off.
        return getpass(f"{words} ({hint}): ").strip()

    def _note_model(self, model: str, url: str, key: str) -> None:
        known = self._loaded.bot
        self._changes["bot", "model"] = model
        if url or known.base_url:
            self._changes["bot", "base_url"] = url
        if key:
            self._changes["bot", "api_key"] = key
        elif known.api_key.get_secret_value() and (model, url) != (known.model, known.base_url):
            # The key of another provider must not be sent to this one.
            self._changes["bot", "api_key"] = ""

    def _ask_for_platform(self, name: str, guide: Guide) -> None:
        is_set = self._is_set(self._loaded, name, guide)
        question = f"{guide.title} is set up. Replace its tokens?" if is_set else f"Connect {guide.title}?"
        typer.echo("")
        if not typer.confirm(question, default=False):
            return
        for number, step in enumerate(guide.steps, start=1):
            self._tell(f"  {number}. {step}")
        while True:
            for key, words in guide.needs:
                known = getattr(self._loaded.platforms[name], key).get_secret_value()
                self.take(name, key, self._ask_for_secret(words, known))
            if not is_set and not any((name, key) in self._changes for key, _ in guide.needs):
                self._tell(f"No token was given, so {guide.title} is left out.")
                return
            if self._settles(lambda: self._try_platform(name), name):
                break
        if any((name, key) in self._changes for key, _ in guide.needs):
            self._ask_for_owner(name, guide)

    def _ask_for_owner(self, name: str, guide: Guide) -> None:
        from tidings.bots.cli import owner

        if not owner.is_there(self._place, name) and (id := owner.ask_for_id(self._place, name, guide.title)):
            self._own.append(id)

    def _settles(self, check: Callable[[], None], section: str) -> bool:
        """Whether to go on; on an error the person may try again, keep the answer anyway or leave it out."""
        try:
            check()
        except ConfigError as error:
            self._tell(f"That does not work: {error}")
            end = _choose("Try again, keep it anyway, or leave it out?", [AGAIN, KEEP, LEAVE], AGAIN)
            if end == LEAVE:
                self._changes = {names: value for names, value in self._changes.items() if names[0] != section}
            return end != AGAIN
        return True

    def _try_model(self) -> None:
        bot = self._load().bot
        if not self._checked or bot.chosen_agent != "assistant":
            return
        import asyncio

        from tidings.bots.assistant.probe import try_out

        self._tell(f"Asking {bot.model} …")
        said = asyncio.run(try_out(bot))
        self._tell(f"It answers: {' '.join(said.split())[:80]}")

    def _try_platform(self, name: str) -> None:
        loaded = self._load()
        if not self._checked:
            return
        faults = []
        for _, account, findings in self._place.examine(loaded, name):
            for words, is_fault, is_odd in findings:
                if is_fault:
                    faults.append(words)
                else:
                    self._tell(f"  {'warn' if is_odd else 'ok':<4}  {name}@{account}: {words}")
        if faults:
            raise ConfigError("; ".join(faults))

    def _load(self) -> Loaded:
        """The settings with the answers so far. Raises ConfigError."""
        beside: dict[str, Any] = {}
        for (section, key), value in self._changes.items():
            table = beside
            for name in section.split("."):
                table = table.setdefault(name, {})
            table[key] = value
        return self._place.load(beside, is_new=True)

    def _is_set(self, loaded: Loaded, name: str, guide: Guide) -> bool:
        section = loaded.platforms[name]
        return all(getattr(section, key).get_secret_value() for key, _ in guide.needs)

    def _has_one_bot(self) -> bool:
        """Whether `init` may set the model: bots with `[bots.NAME]` tables are edited by hand."""
        from tidings.bots.app.settings import parse

        several = parse(self._loaded.file, self._loaded.texts.tidings).get("bots")
        return not several and self._loaded.bot.agent in ("", "assistant")

    def _agrees(self, question: str, wanted: bool | None) -> bool:
        if wanted is not None or not self._asks:
            return bool(wanted)
        typer.echo("")
        return typer.confirm(question, default=True)

    def _warn_of_variables(self) -> None:
        from tidings.bots.app.roster import variable

        names = {name.upper() for name in os.environ}
        for section, key in self._changes:
            if (name := variable(*section.split("."), key)) in names:
                self._tell(f"warning: {name} is set in the environment and overrides [{section}] {key}")

    def _tell(self, words: str) -> None:
        for line in words.split("\n"):
            self._place.say(line)


def _choose(question: str, among: list[str], default: str) -> str:
    """Asks until the answer is one of these words or the beginning of one."""
    while True:
        said: str = typer.prompt(question, default=default)
        found = [each for each in among if each == said.strip().lower()]
        found = found or [each for each in among if said.strip() and each.startswith(said.strip().lower())]
        if len(found) == 1:
            return found[0]
        typer.echo(f"Please answer with one of: {', '.join(among)}")


def _secret(words: str) -> str:
    """Reads a secret given as env:NAME or file:PATH, which keeps it out of the shell's history. Raises ConfigError."""
    kind, colon, name = words.partition(":")
    if not colon or kind not in ("env", "file"):
        return words
    try:
        found = os.environ.get(name, "") if kind == "env" else Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{words} cannot be read: {error}") from error
    if not found.strip():
        raise ConfigError(f"{words} is empty or not set")
    return found.strip()


def _typed(words: str) -> Any:
    """The value as TOML reads it, such as true, 7 or ["a"]; anything else is a text."""
    import tomllib

    try:
        return tomllib.loads(f"value = {words}")["value"]
    except tomllib.TOMLDecodeError:
        return words
