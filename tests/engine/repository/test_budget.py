"""The decisions of a memory budget: granted tickets, loads and unloads."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.api import State
from engine.repository.budget import Actions, Budget, Ticket

NAMES = ("a", "b", "c", "d")


class Policy(RuleBasedStateMachine):
    """Random uses, unloads, releases and results of loads; the invariants hold after each."""

    @initialize(costs=st.lists(st.integers(1, 6), min_size=4, max_size=4), limit=st.integers(6, 14))
    def begin(self, costs, limit):
        self.budget = Budget(dict(zip(NAMES, costs, strict=True)), limit)
        self.loading, self.unloading = set(), set()
        self.held, self.waiting = [], []  # tickets

    def in_use(self):
        return {name for ticket in self.held for name in ticket.names}

    def perform(self, actions: Actions):
        for name in actions.unload:
            assert name not in self.in_use(), "a model in use was unloaded"
            self.unloading.add(name)
        for name in actions.load:
            self.loading.add(name)
        for ticket in actions.granted:
            self.waiting.remove(ticket)
            if not ticket.unload:
                for name in set(ticket.names):
                    assert self.budget.state(name) is State.LOADED
                self.held.append(ticket)
        for ticket in actions.failed:
            assert not ticket.granted
            self.waiting.remove(ticket)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
    def ask(self, names):
        ticket = Ticket(tuple(names))
        if self.budget.fits(names):
            self.waiting.append(ticket)
            self.perform(self.budget.acquire(ticket))

    @rule(name=st.sampled_from(NAMES))
    def unload(self, name):
        ticket = Ticket((name,), unload=True)
        self.waiting.append(ticket)
        self.perform(self.budget.acquire(ticket))

    @rule(data=st.data())
    def end(self, data):
        if self.held:
            ticket = data.draw(st.sampled_from(self.held))
            self.held.remove(ticket)
            self.perform(self.budget.release(ticket))

    @rule(data=st.data())
    def withdraw_all(self, data):
        if self.waiting:
            ticket = data.draw(st.sampled_from(self.waiting))
            self.waiting.remove(ticket)
            self.perform(self.budget.release(ticket))

    @rule(data=st.data(), well=st.integers(0, 3))
    def a_load_ends(self, data, well):
        if self.loading:
            name = data.draw(st.sampled_from(sorted(self.loading)))
            self.loading.remove(name)
            self.perform(self.budget.finish_load(name) if well else self.budget.fail_load(name))

    @rule(data=st.data())
    def an_unload_ends(self, data):
        if self.unloading:
            name = data.draw(st.sampled_from(sorted(self.unloading)))
            self.unloading.remove(name)
            self.perform(self.budget.finish_unload(name))

    @invariant()
    def it_is_never_above_the_budget(self):
        if hasattr(self, "budget"):
            there = [n for n in NAMES if self.budget.state(n) is not State.UNLOADED]
            assert sum(self.budget.cost(n) for n in there) <= self.budget.limit
            assert self.loading == {n for n in NAMES if self.budget.state(n) is State.LOADING}
            assert self.unloading == {n for n in NAMES if self.budget.state(n) is State.UNLOADING}

    def teardown(self):
        """When all uses and loads have ended, no ticket waits."""
        if not hasattr(self, "budget"):
            return
        for _ in range(500):
            if self.held:
                self.perform(self.budget.release(self.held.pop(0)))
            elif self.loading:
                self.perform(self.budget.finish_load(self.loading.pop()))
            elif self.unloading:
                self.perform(self.budget.finish_unload(self.unloading.pop()))
        assert not self.waiting, "a ticket was lost"


Policy.TestCase.settings = settings(stateful_step_count=40)
TestPolicy = Policy.TestCase


@given(
    uses=st.lists(st.sampled_from(NAMES), min_size=1, max_size=30),
    limit=st.integers(1, 4),
)
def test_the_least_recently_used_model_is_unloaded(uses, limit):
    """The oracle is a list of models in the order of use, cut to the limit."""
    budget, recent = Budget(dict.fromkeys(NAMES, 1), limit), []
    for name in uses:
        ticket = Ticket((name,))
        actions = budget.acquire(ticket)
        if name in recent:
            assert ticket.granted
            recent.remove(name)
        elif len(recent) == limit:
            assert actions.unload == [recent.pop(0)]
            actions = budget.finish_unload(actions.unload[0])
        recent.append(name)
        if not ticket.granted:
            assert actions.load == [name]
            budget.finish_load(name)
        budget.release(ticket)
        assert [n for n in NAMES if budget.state(n) is State.LOADED] == sorted(recent)


def loaded_with(budget, *names):
    """Return granted tickets of some models."""
    tickets = [Ticket((name,)) for name in names]
    for ticket in tickets:
        budget.acquire(ticket)
        budget.finish_load(ticket.names[0])
        assert ticket.granted
    return tickets


def test_two_first_uses_load_a_model_once():
    budget = Budget({"a": 1}, 1)
    one, two = Ticket(("a",)), Ticket(("a",))
    assert budget.acquire(one).load == ["a"]
    assert budget.acquire(two).load == []
    assert budget.finish_load("a").granted == [one, two]


def test_a_ticket_that_waits_for_memory_is_not_overtaken_forever():
    budget = Budget({"a": 1, "b": 1}, 1)
    (using,) = loaded_with(budget, "a")
    waiting, later = Ticket(("b",)), Ticket(("a",))
    assert budget.acquire(waiting) == Actions()
    assert budget.acquire(later) == Actions(), "a is unloaded for b, so that it grants no new ticket"
    assert budget.release(using).unload == ["a"]
    assert budget.finish_unload("a").load == ["b"]
    assert budget.finish_load("b").granted == [waiting]
    assert budget.release(waiting).unload == ["b"], "and a is wanted again"


def test_a_use_of_a_loaded_model_overtakes_tickets_that_wait_for_others():
    budget = Budget({"a": 2, "b": 1, "c": 2}, 3)
    loaded_with(budget, "a", "b")
    budget.acquire(Ticket(("c",)))  # unloads a, because b is smaller and more recent
    free = Ticket(("b",))
    budget.acquire(free)
    assert free.granted


def test_two_models_of_a_pivot_are_granted_together_or_not_at_all():
    budget = Budget({"a": 1, "b": 1, "c": 1}, 2)
    (using,) = loaded_with(budget, "a")
    both = Ticket(("b", "c"))
    assert budget.acquire(both) == Actions()
    assert budget.release(using).unload == ["a"]
    assert sorted(budget.finish_unload("a").load) == ["b", "c"]
    assert budget.finish_load("b").granted == []
    assert budget.finish_load("c").granted == [both]
    assert not budget.fits(("a", "b", "c"))


def test_memory_that_is_being_freed_is_counted_once():
    """A ticket that needs the memory that is being freed unloads no further model for it."""
    budget = Budget({"a": 2, "b": 2, "c": 2, "d": 4}, 6)
    used = loaded_with(budget, "a", "b", "c")
    for ticket in used:
        budget.release(ticket)
    assert budget.acquire(Ticket(("a",), unload=True)).unload == ["a"]
    actions = budget.acquire(Ticket(("d",)))
    assert actions.unload == ["b"], "two bytes are on their way, two more are needed"
    assert not actions.load
