"""Live events for subscribers; one that is too slow loses its subscription, and delays nobody."""

import asyncio

from checkpointd.engine.answers import Happening

_BACKLOG = 1000


class Subscription:
    """An async iterator over what happens from the moment it was made."""

    def __init__(self, bus: "Bus") -> None:
        self._bus = bus
        self._queue: asyncio.Queue[Happening | None] = asyncio.Queue(_BACKLOG + 1)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Happening:
        happening = await self._queue.get()
        if happening is None:
            self._bus.drop(self)
            raise StopAsyncIteration
        return happening

    def put(self, happening: Happening) -> bool:
        """Whether there was room; where there was none, the subscription ends after what it holds."""
        if self._queue.qsize() >= _BACKLOG:
            self.end()
            return False
        self._queue.put_nowait(happening)
        return True

    def end(self) -> None:
        if not self._queue.full():
            self._queue.put_nowait(None)


class Bus:
    """Publishes to every open subscription. Used from the event loop only."""

    def __init__(self) -> None:
        self._open: set[Subscription] = set()

    def subscribe(self) -> Subscription:
        subscription = Subscription(self)
        self._open.add(subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        self._open.discard(subscription)

    def publish(self, happening: Happening) -> None:
        self._open = {subscription for subscription in self._open if subscription.put(happening)}

    def close(self) -> None:
        """Ends every subscription."""
        for subscription in self._open:
            subscription.end()
        self._open.clear()
