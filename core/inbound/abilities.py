"""What a message's platform can do, for its answer and for messages later."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tidings.core.types import Audience, Capabilities, Inbound, SendProof, Target

Can = Callable[[Target], Capabilities | None]

# The abilities of a target without a configured adapter: its answer is stored and held.
NOTHING = Capabilities(
    async_delivery=True,
    streaming_edits=False,
    send_proof=SendProof(keyed_for=0, readback=False),
    threads=False,
    reactions=False,
    buttons=False,
    files=False,
    typing=False,
    hears_all=True,
    pace=(),
    show_pace=(),
    signal_pace=(),
)
# The abilities of an errand: there is no reader to show anything to or promise anything.
HEADLESS = replace(NOTHING, async_delivery=False)


def of(inbound: Inbound, can: Can) -> Capabilities:
    return HEADLESS if inbound.errand is not None else can(inbound.target) or NOTHING


def promisable(inbound: Inbound, can: Can) -> Capabilities:
    """The abilities that last beyond the answer: a reply to one person inside a group is possible only briefly."""
    abilities = of(inbound, can)
    return replace(abilities, async_delivery=False) if inbound.target.audience is Audience.ONE else abilities
