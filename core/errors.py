"""The error tree: a type is a verdict that tells the caller what to do next.

TidingsError
├── ConfigError          a setting is wrong: say which, exit 78
├── HomeInUse            another process owns this home: exit 75
├── StoreRefused         the database is foreign, newer, corrupt or not durable: exit 76
├── Unstored             the store cannot write now: do not confirm, come back
├── Clash                a row would break a rule of the schema: somebody was quicker, or the unit is wrong
├── Fenced               somebody else owns this run now: discard what you did
├── NoSession            nothing is bound to this task
├── Unsupported          the platform does not declare this ability: do something else
├── Unknown              no such run, delivery, target or adapter
├── Conflict             this key was used for something else
├── Unkeepable           it cannot be kept as it is: word it anew
├── Overdrawn            too much of it goes on already: wait, or end some of it
├── StandingBy           somebody else does this job now: look again soon
├── Lagged               you read too slowly: reconnect with the last number you saw
├── NotRunning           no gateway runs in this home: exit 69
├── Declined             the gateway answered, and the answer is no
│   └── Unrouted         nobody there answers to this word now
└── SendError            what became of one call to a platform
    ├── RateLimited      not sent: again after the pause
    ├── Unreachable      not sent: soon again
    ├── Misconfigured    not sent: hold until the owner has mended it
    ├── Rejected         not sent: never again
    ├── Unfit            not sent: compose it smaller
    ├── Moved            not sent: the chat lives elsewhere now
    ├── ViewLost         not shown: what should grow is gone
    └── Doubtful         may have been sent: no verdict came back
"""


class TidingsError(Exception):
    pass


class ConfigError(TidingsError):
    pass


class HomeInUse(TidingsError):
    pass


class StoreRefused(TidingsError):
    pass


class Unstored(TidingsError):
    pass


class Clash(TidingsError):
    pass


class Fenced(TidingsError):
    pass


class NoSession(TidingsError):
    pass


class Unsupported(TidingsError):
    def __init__(self, ability: str, where: str) -> None:
        super().__init__(f"{where} has no {ability.replace('_', ' ')}")
        self.ability = ability


class Unknown(TidingsError):
    pass


class Conflict(TidingsError):
    pass


class Unkeepable(TidingsError):
    pass


class Overdrawn(TidingsError):
    pass


class StandingBy(TidingsError):
    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds


class Lagged(TidingsError):
    pass


class NotRunning(TidingsError):
    """Nobody listens in this home, or not any more."""


class Declined(TidingsError):
    pass


class Unrouted(Declined):
    """The gateway runs but has no such word now: the platform behind it is off, or not up yet."""


class SendError(TidingsError):
    pass


class RateLimited(SendError):
    """`budget` names the pace key that is exhausted; none means the target's first."""

    def __init__(self, retry_after: float | None, budget: str = "") -> None:
        super().__init__("rate limited" + (f" for {retry_after:g} s" if retry_after is not None else ""))
        self.retry_after = retry_after
        self.budget = budget


class Unreachable(SendError):
    pass


class Misconfigured(SendError):
    pass


class Rejected(SendError):
    pass


class Unfit(SendError):
    pass


class Moved(SendError):
    def __init__(self, chat: str) -> None:
        super().__init__(f"the chat has moved to {chat}")
        self.chat = chat


class ViewLost(SendError):
    pass


class Stopped(ViewLost):
    """The person has stopped the growing answer; only the person who asked could have done it."""


class Doubtful(SendError):
    pass
