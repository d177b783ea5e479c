"""The error tree: each type tells the caller what to do next.

TidingsError
├── ConfigError          a setting is wrong: say which, exit 78
├── HomeInUse            another process owns this home: exit 75
├── StoreRefused         the database is foreign, newer, corrupt or not durable: exit 76
├── Unstored             the store cannot write now: do not confirm, come back
├── Clash                a row would break a rule of the schema: another unit was quicker, or this unit is wrong
├── Fenced               another worker owns this run now: discard what you did
├── NoSession            no session is bound to this task
├── Unsupported          the platform does not declare this ability: do something else
├── Unknown              no such run, delivery, target or adapter
├── Conflict             this key was used for something else, or the state does not allow this
├── Unkeepable           the content is not acceptable: change it
│   └── NotPermitted     the person's role does not allow this
├── Overdrawn            a limit on work in progress is reached: wait, or end some of that work
├── StandingBy           another process does this job now: look again soon
├── Lagged               the reader was too slow: reconnect with the last number it saw
├── NotRunning           no gateway runs in this home: exit 69
├── Declined             the gateway answered no
│   └── Unrouted         no part of the gateway handles this verb now
└── SendError            how one call to a platform failed
    ├── RateLimited      not sent: try again after the pause
    ├── Unreachable      not sent: try again soon
    ├── Misconfigured    not sent: wait until the owner has corrected the settings
    ├── Rejected         not sent: never try again
    ├── Unfit            not sent: cut the text smaller
    ├── Moved            not sent: the chat has another id now
    ├── ViewLost         not shown: the view no longer exists
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


class NotPermitted(Unkeepable):
    pass


class Unfenced(TidingsError):
    """No fence can be put around a command here, so the command must not start."""


class Overdrawn(TidingsError):
    pass


class StandingBy(TidingsError):
    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds


class Lagged(TidingsError):
    pass


class NotRunning(TidingsError):
    """No gateway listens in this home, or it has just stopped."""


class Declined(TidingsError):
    pass


class Unrouted(Declined):
    """The gateway runs but does not handle this verb: its platform is switched off or not yet up."""


class SendError(TidingsError):
    pass


class RateLimited(SendError):
    """`budget` names the pace key that is exhausted; empty means the target's first budget."""

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
    """The person who asked has stopped the growing answer; the platform lets only that person do so."""


class Doubtful(SendError):
    pass
