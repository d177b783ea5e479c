"""What can be done for a message: what its platform declares, and what can be promised for later."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tidings.core.types import Audience, Capabilities, Inbound, SendProof, Target

Can = Callable[[Target], Capabilities | None]

# What a target can do whose adapter is no longer configured: the answer is owed and held.
NOTHING = Capabilities(
    async_delivery=True,
    streaming_edits=False,
    send_proof=SendProof(keyed_for=0, readback=False),
    threads=False,
    reactions=False,
    buttons=False,
    files=False,
    typing=False,
    pace=(),
    show_pace=(),
    signal_pace=(),
)
# What an errand can do: there is no reader whom it could show or promise anything.
HEADLESS = replace(NOTHING, async_delivery=False)


def of(inbound: Inbound, can: Can) -> Capabilities:
    return HEADLESS if inbound.errand is not None else can(inbound.target) or NOTHING


def promisable(inbound: Inbound, can: Can) -> Capabilities:
    """What can be relied on beyond the answer: the way to one person inside a group ends soon after it."""
    abilities = of(inbound, can)
    return replace(abilities, async_delivery=False) if inbound.target.audience is Audience.ONE else abilities
