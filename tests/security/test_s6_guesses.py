"""S6: who guesses keys is soon not even listened to, also after a restart, and nobody else suffers for it."""

from collections.abc import Callable
from pathlib import Path

from adapters.api.adapter import ApiAdapter
from adapters.api.gate import Gate
from adapters.api.guesses import MOST, MOST_OF_ALL, SECONDS, Guesses
from adapters.api.keys import Key, Keys
from adapters.api.problem import Problem
from adapters.api.settings import HttpSettings
from core.adapter import Host
from tests.api_world import ApiWorld
from tests.fakes import FakeClock, MemoryNotebook
from tests.security.wire import ask, bearer, connected, request
from tests.world import Echo


class CountingKeys(Keys):
    compared = 0

    def find(self, secret: str) -> Key | None:
        self.compared += 1
        return super().find(secret)


class Counted(ApiWorld):
    """The real gateway, whose keys count how often they are compared."""

    keys: CountingKeys

    def _building(self, settings: HttpSettings) -> Callable[[Host], ApiAdapter]:
        def build(host: Host) -> ApiAdapter:
            self.adapter = ApiAdapter("main", settings, host)
            self.adapter.keys = self.keys = CountingKeys(host.notebook, self.key)
            self.adapter._gate = Gate(settings, self.keys, self.adapter._guesses)
            return self.adapter

        return build


async def guess(api: ApiWorld, *credentials: str, source: str = "127.0.0.1") -> int:
    return (await ask(api.url, "GET", "/v1/models", *credentials, source=source)).status


async def test_s6_of_a_thousand_guesses_ten_are_looked_at(tmp_path: Path) -> None:
    async with Counted(tmp_path, Echo()) as api:
        statuses = []
        async with connected(api.url) as client:
            for number in range(1000):
                # By whatever header, and with whatever bogus credential beside it: one bucket, looked at first.
                wrong = f"wrong-{number}"
                credentials = (
                    (bearer(wrong),),
                    (f"X-Api-Key: {wrong}",),
                    (bearer(wrong), f"X-Api-Key: also-{wrong}", "X-Device-Token: bogus"),
                    (f"Authorization: Basic {wrong}", f"X-Api-Key: {wrong}"),
                )[number % 4]
                client.send(request("GET", "/v1/models", *credentials))
                answer = await client.answer()
                statuses.append(answer.status)
        assert statuses == [401] * MOST + [429] * (1000 - MOST)
        assert answer.code == "too_many_guesses"
        assert 1 <= int(answer.headers["retry-after"]) <= SECONDS
        assert api.keys.compared == MOST
        # The address has guessed too often, so not even a right key is looked at; from elsewhere it is.
        assert await guess(api, bearer(api.key)) == 429
        assert api.keys.compared == MOST
        assert await guess(api, bearer(api.key), source="127.0.0.2") == 200


async def test_s6_a_restart_forgets_no_guess(tmp_path: Path) -> None:
    async with Counted(tmp_path, Echo()) as api:
        for number in range(MOST):
            assert await guess(api, bearer(f"wrong-{number}")) == 401
        await api.crash()
        await api.start()
        assert await guess(api, bearer("another")) == 429
        assert api.keys.compared == 0
        assert "wrong-" not in api.rows("SELECT value FROM notebook WHERE name = 'guesses'")[0]["value"]


async def test_s6_the_same_old_key_again_and_again_is_one_guess(tmp_path: Path) -> None:
    """A forgotten client that polls with a revoked key must not lock out its neighbours on this machine."""
    async with Counted(tmp_path, Echo()) as api:
        statuses = [await guess(api, bearer("an old key")) for _ in range(30)]
        assert statuses == [401] * MOST + [429] * (30 - MOST)
        assert api.keys.compared == 1
        assert await guess(api, bearer(api.key)) == 200


async def test_s6_many_strangers_cannot_lock_out_who_is_known(tmp_path: Path) -> None:
    async with Counted(tmp_path, Echo()) as api:
        assert await guess(api, bearer(api.key), source="127.0.1.1") == 200
        compared = api.keys.compared
        for number in range(2 * MOST_OF_ALL):
            await guess(api, bearer(f"wrong-{number}"), source=f"127.0.2.{number // MOST + 1}")
        assert api.keys.compared - compared == MOST_OF_ALL
        assert await guess(api, bearer("one more"), source="127.0.3.1") == 429
        assert await guess(api, bearer(api.key), source="127.0.1.1") == 200


async def test_s6_without_a_key_nothing_is_counted(tmp_path: Path) -> None:
    async with Counted(tmp_path, Echo()) as api:
        assert {await guess(api) for _ in range(3 * MOST)} == {401}
        assert api.keys.compared == 0
        assert await guess(api, bearer(api.key)) == 200


async def test_s6_after_a_minute_there_is_another_chance() -> None:
    clock = FakeClock()
    guesses = Guesses(MemoryNotebook(), clock)
    for number in range(MOST):
        assert refused(guesses, f"wrong-{number}") is None
        await guesses.count("a", f"wrong-{number}")
        await clock.advance(1)
    assert refused(guesses, "another") == str(round(SECONDS) - MOST)
    await clock.advance(SECONDS - MOST)
    assert refused(guesses, "another") is None


def refused(guesses: Guesses, secret: str) -> str | None:
    """When to come back."""
    try:
        guesses.is_repeated("a", secret)
    except Problem as problem:
        return (problem.headers or {})["Retry-After"]
    return None
