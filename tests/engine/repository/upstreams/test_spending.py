"""The price of a day stays under its limit, whatever the order of requests."""

import random

from engine.repository.upstreams.spending import DAY_SECONDS, Spending


def test_price_of_each_day_stays_under_the_limit_with_requests_in_flight():
    draw, now, spent, refused = random.Random(3), [0.0], dict[int, float](), 0
    spending, in_flight = Spending(10.0, lambda: now[0]), []
    for _ in range(3_000):
        now[0] += draw.uniform(0, DAY_SECONDS / 300)
        if in_flight and draw.random() < 0.5:
            reservation = in_flight.pop(draw.randrange(len(in_flight)))
            price = reservation.price * draw.random()
            spending.settle(reservation, price)
            spent[reservation.day] = spent.get(reservation.day, 0.0) + price
        elif reservation := spending.reserve(draw.uniform(0.1, 1.0)):
            in_flight.append(reservation)
        else:
            refused += 1
    assert len(spent) >= 4
    assert max(spent.values()) <= 10.0
    assert refused
    assert min(list(spent.values())[:-1]) > 5.0, "settled requests make room for others"


def test_reservation_that_is_not_settled_counts_until_the_next_day():
    now = [DAY_SECONDS - 10.0]
    spending = Spending(1.0, lambda: now[0])
    lost = spending.reserve(1.0)
    assert lost and spending.reserve(0.1) is None
    assert spending.seconds_left == 10
    now[0] += 11
    assert spending.reserve(1.0)
    spending.settle(lost, 0.0)
    assert spending.reserve(0.1) is None, "yesterday's price does not count today"
