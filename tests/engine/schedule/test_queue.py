"""The queue's bookkeeping and its fairness, on random histories."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.queue import SHORT_TOKENS, FairQueue, LaneRoom
from engine.types import DecodeOptions, Request

PLENTY = 10**9


def request(length=1, deadline=math.inf):
    return Request([5] * length, DecodeOptions(), print, deadline)


def room(free):
    """Return free slots of a lane without a limit for a group."""
    return LaneRoom(PLENTY, free)


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=6)
actions = st.one_of(
    st.tuples(st.just("add"), sizes, st.integers(0, 1), st.sampled_from([math.inf, 5.0, 15.0])),
    st.tuples(st.just("take"), st.integers(0, 1), st.integers(0, 4), st.integers(0, 20), st.booleans()),
    st.tuples(st.just("remove"), st.integers(0, 50)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("expire"), st.sampled_from([4.0, 10.0, 20.0])),
)


def act(queue, waiting, action):
    """Apply one action to the queue and to `waiting` (request -> lane), and compare the results."""
    kind, *values = action
    if kind == "add":
        lengths, lane, deadline = values
        group = {request(n, deadline): (lane + i) % 2 for i, n in enumerate(lengths)}
        queue.add(group.items())
        waiting |= group
    elif kind == "take":
        lane, slots, budget, first = values
        taken = queue.take(lane, room(slots), budget, first=first)
        assert len(taken) <= slots
        assert all(waiting.pop(r) == lane and not r.cancelled for r in taken)
        spent = sum(len(r.source) for r in taken)
        assert spent <= budget or (first and spent - len(taken[0].source) <= max(0, budget))
        for gone in [r for r in waiting if r.cancelled and r not in queue._group_of]:
            assert waiting.pop(gone) == lane  # met while taking
        if slots and first and any(at == lane for at in waiting.values()):
            assert taken
    elif kind in ("remove", "cancel") and waiting:
        chosen = list(waiting)[values[0] % len(waiting)]
        if kind == "cancel":
            chosen.cancelled = True
        else:
            assert queue.remove(chosen)
            assert not queue.remove(chosen)
            del waiting[chosen]
    elif kind == "sweep":
        queue.sweep()
        for gone in [r for r in waiting if r.cancelled]:
            del waiting[gone]
    elif kind == "expire":
        late = queue.pop_expired(values[0])
        assert set(late) == {r for r in waiting if r.deadline <= values[0]}
        for gone in late:
            del waiting[gone]


@given(st.lists(actions, min_size=5, max_size=40))
def test_the_queue_counts_its_requests_and_tokens_correctly(history):
    queue, waiting = FairQueue(2), {}
    for action in history:
        act(queue, waiting, action)
        assert queue.requests == len(waiting)
        assert queue.tokens == sum(len(r.source) for r in waiting)
    assert set(queue.clear()) == set(waiting)
    assert (queue.requests, queue.tokens) == (0, 0)
    assert not any(r.groups or r.requests or r.steps or r.sizes for r in queue.rounds)
    assert queue.pop_expired(math.inf) == []


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 5))
def test_groups_take_turns_and_keep_their_own_order(lengths, slots):
    queue = FairQueue(1)
    groups = [[request() for _ in range(n)] for n in lengths]
    for group in groups:
        queue.add((r, 0) for r in group)
    order = []
    while taken := queue.take(0, room(slots), PLENTY, first=True):
        order += taken
    assert [[r for r in order if r in group] for group in groups] == groups
    rounds = [[g for g in groups if len(g) > i] for i in range(max(lengths))]
    assert order == [g[i] for i, g_of_round in enumerate(rounds) for g in g_of_round]


@given(st.integers(1, 300), st.integers(0, 20), st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_a_new_group_waits_for_one_request_of_each_group_at_most(big, ahead, small):
    """The first request of a new group is among the next `groups` taken, for any size of earlier groups."""
    queue = FairQueue(1)
    queue.add((request(), 0) for _ in range(big))
    queue.take(0, room(min(ahead, big)), PLENTY, first=True)
    for n in small:
        queue.add((request(), 0) for _ in range(n))
    newcomer = request()
    queue.add([(newcomer, 0)])
    assert newcomer in queue.take(0, room(len(small) + 2), PLENTY, first=True)


def test_a_request_marked_as_cancelled_is_never_taken():
    queue = FairQueue(1)
    group = [request(3) for _ in range(4)]
    queue.add((r, 0) for r in group)
    group[0].cancelled = group[2].cancelled = True
    assert queue.take(0, room(4), PLENTY, first=True) == [group[1], group[3]]
    assert (queue.requests, queue.tokens) == (0, 0)


def test_a_source_over_the_budget_is_taken_alone_and_first_only():
    queue = FairQueue(1)
    long, short = request(50), request(2)
    queue.add([(long, 0), (short, 0)])
    assert queue.take(0, room(4), 10, first=False) == []
    assert queue.take(0, room(4), 10, first=True) == [long]
    assert queue.take(0, room(4), 10, first=False) == [short]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 1_000)), min_size=1, max_size=6),
    st.integers(1, 64),
    st.integers(0, 16),
)
def test_a_group_gets_its_share_of_slots_while_others_wait_or_its_sources_are_long(groups, slots, ahead):
    """Sources that are encoded ahead of need count as slots."""
    queue, sizes = FairQueue(1), {}
    for count, length in groups:
        group = [request(length) for _ in range(count)]
        queue.add((r, 0) for r in group)
        sizes[group[0].ticket] = count, length
    place = LaneRoom(slots, slots + ahead)
    taken = Counter(one.ticket for one in queue.take(0, place, PLENTY, first=True))
    assert place.used == taken
    for ticket, used in taken.items():
        count, length = sizes[ticket]
        # a group of short sources without other waiting groups may have all slots
        others = queue.rounds[0].groups.keys() - {ticket}
        if others or length > SHORT_TOKENS:
            assert used <= max(1, slots // 2 * SHORT_TOKENS // max(SHORT_TOKENS, length))
        elif len(groups) == 1:
            assert used == min(count, slots + ahead)


def test_a_group_below_its_share_of_slots_takes_its_next_request():
    queue = FairQueue(1)
    group = [request(100) for _ in range(9)]
    queue.add((r, 0) for r in group)
    assert queue.take(0, LaneRoom(8, 8), PLENTY, first=True) == group[:2]  # half, less for their length
    ticket = group[0].ticket
    assert queue.take(0, LaneRoom(8, 6, Counter({ticket: 2})), PLENTY, first=True) == []
    assert queue.take(0, LaneRoom(8, 7, Counter({ticket: 1})), PLENTY, first=True) == [group[2]]
    newcomer = request(1)
    queue.add([(newcomer, 0)])
    assert queue.take(0, LaneRoom(8, 6, Counter({ticket: 2})), PLENTY, first=True) == [newcomer]


def test_turns_of_groups_are_counted_in_steps():
    queue = FairQueue(1)
    groups = [[request() for _ in range(20)] for _ in range(2)]
    for group, steps in zip(groups, (64.0, 256.0), strict=True):
        for one in group:
            one.expected_steps = steps
        queue.add((one, 0) for one in group)
    order = [queue.take(0, room(1), PLENTY, first=True)[0] for _ in range(10)]
    steps = [sum(one.expected_steps for one in order if one in group) for group in groups]
    assert steps == [512.0, 512.0]
    alone = [queue.take(0, room(1), PLENTY, first=True)[0] for _ in range(20)]
    assert alone[-1] in groups[1], "who is alone waits for nobody"


def test_the_queue_forgets_deadlines_of_removed_requests():
    queue = FairQueue(1)
    for _ in range(500):
        passing = request(deadline=100.0)
        queue.add([(passing, 0)])
        queue.remove(passing)
        assert queue.pop_expired(0.0) == []
    assert len(queue._deadlines) <= 65
