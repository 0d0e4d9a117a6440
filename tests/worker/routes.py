"""Routes that tests can switch off and on."""

from __future__ import annotations

from overnight.catalog.route import Route
from overnight.domain.targets import TARGETS
from overnight.store.served import Offer
from overnight.upstreams.http import Endpoint, Pool


class Switch(Route):
    """Stands in for the route to a local engine: it goes down and comes up as the test says."""

    is_local = True

    def __init__(self, url: str, slots: int = 4, *, caches: int | None = None) -> None:
        super().__init__("engine")
        self._caches = caches
        self._url = url
        self._slots = slots
        self._pool: Pool | None = None
        self._old: list[Pool] = []

    def up(self) -> None:
        """The engine is ready."""
        self._pool = Pool(Endpoint(self._url))
        self.tell_change()

    def down(self) -> None:
        """The engine died."""
        if self._pool is not None:
            self._old.append(self._pool)
        self._pool = None

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def slot_caches(self) -> int | None:
        return self._caches

    @property
    def offers(self) -> tuple[Offer, ...]:
        return (Offer("m", (), 4_096, tuple(target.name for target in TARGETS.values())),)

    @property
    def pool(self) -> Pool | None:
        return self._pool

    def most_running(self, now: float) -> int:
        return self._slots if self._pool is not None else 0

    def note_answer(self) -> None:
        pass

    def note_failure(self, now: float, began: float, *, answered: bool = False) -> None:
        pass

    async def tend(self) -> bool:
        return False

    async def close(self) -> None:
        self.down()
        for pool in self._old:
            await pool.close()


class OnTrial(Switch):
    """Takes one request at a time, as a probe."""

    is_local = False
    on_trial = False

    @property
    def is_on_trial(self) -> bool:
        return self.on_trial
