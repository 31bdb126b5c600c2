"""Live events for subscribers; a slow one loses its oldest, never delays anybody."""

import asyncio
from collections.abc import Mapping
from typing import Any

_BACKLOG = 1000


class Subscription:
    """An async iterator over the events published since it was made."""

    def __init__(self, bus: "Bus") -> None:
        self._bus = bus
        self.queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue(_BACKLOG)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Mapping[str, Any]:
        event = await self.queue.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Ends the subscription."""
        self._bus.drop(self)


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

    def publish(self, event: Mapping[str, Any]) -> None:
        for subscription in self._open:
            _put(subscription.queue, event)

    def close(self) -> None:
        """Ends every subscription."""
        for subscription in self._open:
            _put(subscription.queue, None)
        self._open.clear()


def _put(queue: asyncio.Queue[Mapping[str, Any] | None], event: Mapping[str, Any] | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(event)
