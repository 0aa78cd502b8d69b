"""The price of an upstream's answers, held under a limit for each day."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

DAY_SECONDS: Final = 86_400


class Reservation(NamedTuple):
    """The highest price of a request in flight, and the day (UTC, since 1970) that it belongs to."""

    price: float
    day: int


@dataclass(slots=True)
class Spending:
    """The price of one day, with the highest prices of the requests in flight. For one thread.

    most: largest price of a day.
    clock: function that returns the time in seconds since 1970.
    """

    most: float = math.inf
    clock: Callable[[], float] = time.time
    _day: int = field(default=0, init=False)
    _price: float = field(default=0.0, init=False)

    def reserve(self, price: float) -> Reservation | None:
        """Reserve the highest price of a request; None if the day's limit does not allow it.

        A reservation that is never settled stays: the upstream may charge for an answer that did not arrive.
        """
        if (today := self._today()) != self._day:
            self._day, self._price = today, 0.0
        if self._price + price > self.most:
            return None
        self._price += price
        return Reservation(price, today)

    def settle(self, reservation: Reservation, price: float) -> None:
        """Count the price of a request instead of its highest price.

        reservation: result of `reserve`.
        price: price of the request.
        """
        if reservation.day == self._day:
            self._price += price - reservation.price

    @property
    def seconds_left(self) -> int:
        """Seconds until the next day."""
        return math.ceil((self._today() + 1) * DAY_SECONDS - self.clock())

    def _today(self) -> int:
        return int(self.clock() // DAY_SECONDS)
