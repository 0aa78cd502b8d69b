"""Models in a memory budget: the policy against its promises, and real bundles behind it."""

import asyncio
import shutil
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.api import (
    BundleError,
    ConfigError,
    DeadlineExceeded,
    Placement,
    Service,
    ServiceSettings,
    State,
    Stopping,
    TextOptions,
    Unavailable,
    UnknownModel,
)
from engine.repository.budget import Actions, Budget, Ticket
from engine.repository.figures import RepositoryEntry, merge_entries
from tests.server.test_reload import damaged, rewritten
from tests.support.served import LANES, LONG, MODELS, bundles, busy, open_service, running, until
from tests.support.thorough import some

NAMES = ("a", "b", "c", "d")
DE, EN, TITLE = MODELS


class Policy(RuleBasedStateMachine):
    """Any order of uses, unloads, ends and results of loads: what is promised holds after each."""

    @initialize(costs=st.lists(st.integers(1, 6), min_size=4, max_size=4), limit=st.integers(6, 14))
    def begin(self, costs, limit):
        self.budget = Budget(dict(zip(NAMES, costs, strict=True)), limit)
        self.loading, self.unloading = set(), set()
        self.held, self.waiting = [], []  # tickets

    def in_use(self):
        return {name for ticket in self.held for name in ticket.names}

    def heed(self, acts: Actions):
        for name in acts.unload:
            assert name not in self.in_use(), "a model in use was unloaded"
            self.unloading.add(name)
        for name in acts.load:
            self.loading.add(name)
        for ticket in acts.granted:
            self.waiting.remove(ticket)
            if not ticket.unload:
                for name in set(ticket.names):
                    assert self.budget.state(name) is State.LOADED
                self.held.append(ticket)
        for ticket in acts.failed:
            assert not ticket.granted
            self.waiting.remove(ticket)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
    def ask(self, names):
        ticket = Ticket(tuple(names))
        if self.budget.fits(names):
            self.waiting.append(ticket)
            self.heed(self.budget.acquire(ticket))

    @rule(name=st.sampled_from(NAMES))
    def unload(self, name):
        ticket = Ticket((name,), unload=True)
        self.waiting.append(ticket)
        self.heed(self.budget.acquire(ticket))

    @rule(data=st.data())
    def end(self, data):
        if self.held:
            ticket = data.draw(st.sampled_from(self.held))
            self.held.remove(ticket)
            self.heed(self.budget.release(ticket))

    @rule(data=st.data())
    def withdraw_all(self, data):
        if self.waiting:
            ticket = data.draw(st.sampled_from(self.waiting))
            self.waiting.remove(ticket)
            self.heed(self.budget.release(ticket))

    @rule(data=st.data(), well=st.integers(0, 3))
    def a_load_ends(self, data, well):
        if self.loading:
            name = data.draw(st.sampled_from(sorted(self.loading)))
            self.loading.remove(name)
            self.heed(self.budget.finish_load(name) if well else self.budget.fail_load(name))

    @rule(data=st.data())
    def an_unload_ends(self, data):
        if self.unloading:
            name = data.draw(st.sampled_from(sorted(self.unloading)))
            self.unloading.remove(name)
            self.heed(self.budget.finish_unload(name))

    @invariant()
    def it_is_never_above_the_budget(self):
        if hasattr(self, "budget"):
            there = [n for n in NAMES if self.budget.state(n) is not State.UNLOADED]
            assert sum(self.budget.cost(n) for n in there) <= self.budget.limit
            assert self.loading == {n for n in NAMES if self.budget.state(n) is State.LOADING}
            assert self.unloading == {n for n in NAMES if self.budget.state(n) is State.UNLOADING}

    def teardown(self):
        """When all uses end and all loads do, nobody is left waiting."""
        if not hasattr(self, "budget"):
            return
        for _ in range(500):
            if self.held:
                self.heed(self.budget.release(self.held.pop(0)))
            elif self.loading:
                self.heed(self.budget.finish_load(self.loading.pop()))
            elif self.unloading:
                self.heed(self.budget.finish_unload(self.unloading.pop()))
        assert not self.waiting, "a ticket was lost"


Policy.TestCase.settings = settings(stateful_step_count=40)
TestPolicy = Policy.TestCase


@given(
    uses=st.lists(st.sampled_from(NAMES), min_size=1, max_size=30),
    limit=st.integers(1, 4),
)
def test_of_models_used_one_at_a_time_the_least_recently_used_goes(uses, limit):
    """Against the textbook: a list in the order of use, cut to the limit."""
    budget, recent = Budget(dict.fromkeys(NAMES, 1), limit), []
    for name in uses:
        ticket = Ticket((name,))
        acts = budget.acquire(ticket)
        if name in recent:
            assert ticket.granted
            recent.remove(name)
        elif len(recent) == limit:
            assert acts.unload == [recent.pop(0)]
            acts = budget.finish_unload(acts.unload[0])
        recent.append(name)
        if not ticket.granted:
            assert acts.load == [name]
            budget.finish_load(name)
        budget.release(ticket)
        assert [n for n in NAMES if budget.state(n) is State.LOADED] == sorted(recent)


def loaded_with(budget, *names):
    """Tickets in use of these models."""
    tickets = [Ticket((name,)) for name in names]
    for ticket in tickets:
        budget.acquire(ticket)
        budget.finish_load(ticket.names[0])
        assert ticket.granted
    return tickets


def test_two_first_uses_load_once():
    budget = Budget({"a": 1}, 1)
    one, two = Ticket(("a",)), Ticket(("a",))
    assert budget.acquire(one).load == ["a"]
    assert budget.acquire(two).load == []
    assert budget.finish_load("a").granted == [one, two]


def test_who_waits_for_memory_is_not_overtaken_for_ever():
    budget = Budget({"a": 1, "b": 1}, 1)
    (using,) = loaded_with(budget, "a")
    waiting, later = Ticket(("b",)), Ticket(("a",))
    assert budget.acquire(waiting) == Actions()
    assert budget.acquire(later) == Actions(), "a must go for b, so it takes nobody new"
    assert budget.release(using).unload == ["a"]
    assert budget.finish_unload("a").load == ["b"]
    assert budget.finish_load("b").granted == [waiting]
    assert budget.release(waiting).unload == ["b"], "and a is wanted again"


def test_a_use_of_a_loaded_model_passes_those_who_wait_for_others():
    budget = Budget({"a": 2, "b": 1, "c": 2}, 3)
    loaded_with(budget, "a", "b")
    budget.acquire(Ticket(("c",)))  # a must go: b would not be enough, and is the more recent
    free = Ticket(("b",))
    budget.acquire(free)
    assert free.granted


def test_two_models_of_a_pivot_are_held_together_or_not_at_all():
    budget = Budget({"a": 1, "b": 1, "c": 1}, 2)
    (using,) = loaded_with(budget, "a")
    both = Ticket(("b", "c"))
    assert budget.acquire(both) == Actions()
    assert budget.release(using).unload == ["a"]
    assert sorted(budget.finish_unload("a").load) == ["b", "c"]
    assert budget.finish_load("b").granted == []
    assert budget.finish_load("c").granted == [both]
    assert not budget.fits(("a", "b", "c"))


TEXTS = {DE: "Das ist gut.", EN: "That is good.", TITLE: "We prove a theorem. It is new."}


def ask(service, model, options=None, deadline=float("inf")):
    return asyncio.run(service.run(model, [TEXTS[model]], options, deadline))[0].text


def costs():
    service = open_service()
    return {name: kept.cost for name, kept in service.repository_entries().items()}


def states(service):
    return {name: str(kept.state) for name, kept in service.repository_entries().items()}


@pytest.fixture(scope="module")
def answers():
    with running() as service:
        return {name: ask(service, name) for name in MODELS}


@contextmanager
def repository_for(count, folder=None):
    """A started service of the toys, with room for so many."""
    each = max(costs().values())
    settings = ServiceSettings(Placement(lanes=LANES), budget=count * each)
    service = Service.open([folder or bundles()], settings)
    service.start()
    try:
        yield service
    finally:
        service.stop(drain=False, timeout=30)


class Gate:
    """The service's own way to open bundles, held up until it is let go. opened: which were begun."""

    def __init__(self, service):
        source = service.repository._source
        self.go, self.opened = threading.Event(), []

        def slowly(path):
            self.opened.append(path.name)
            assert self.go.wait(30)
            return source.open(path)

        service.repository._source = replace(source, open=slowly)


def test_a_model_is_loaded_when_first_used_and_answers_as_ever(answers):
    with repository_for(1) as service:
        assert states(service) == dict.fromkeys(MODELS, "unloaded")
        assert service.healthy()
        assert ask(service, DE) == answers[DE]
        assert states(service) == {DE: "loaded", EN: "unloaded", TITLE: "unloaded"}
        assert list(service.run_many(TITLE, [TEXTS[TITLE]]))[0].text == answers[TITLE]
        assert states(service) == {DE: "unloaded", EN: "unloaded", TITLE: "loaded"}
        assert [t.name for t in threading.enumerate() if t.name.startswith("engine toy")] == [
            f"engine {TITLE}"
        ]


def test_what_is_known_of_a_model_is_the_same_before_it_is_loaded():
    with repository_for(1) as service, running() as eager:
        known = [replace(info, load_seconds=0.0) for info in eager.models()]
        assert service.models() == known
        assert service.languages() == eager.languages()
        assert service.pick("translate", "de", "en").name == DE
        ask(service, DE)
        assert [replace(info, load_seconds=0.0) for info in service.models()] == known


def test_counts_go_on_when_a_model_comes_back():
    with repository_for(1) as service:
        for name in (DE, EN, DE):
            ask(service, name)
        kept, stats = service.repository_entries()[DE], service.stats()[DE]
        assert (kept.loads, kept.evictions, kept.failures) == (2, 1, 0)
        assert stats.answered == 4, "two texts and the canaries of two loads"


def test_answers_stay_right_while_models_come_and_go_under_load(answers):
    with repository_for(1) as service:
        jobs = [name for _ in range(some(6, 3)) for name in (DE, EN, TITLE, DE)]
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda name: ask(service, name), jobs))
        assert found == [answers[name] for name in jobs]
        assert sum(kept.evictions for kept in service.repository_entries().values()) >= 2
        assert list(states(service).values()).count("loaded") <= 1


def test_a_pivot_has_both_its_models_at_once(answers):
    with repository_for(2) as service, running() as eager:
        ask(service, TITLE)
        name = f"{DE}+{EN}"
        wanted = asyncio.run(eager.run(name, [TEXTS[DE]]))[0].text
        assert asyncio.run(service.run(name, [TEXTS[DE]]))[0].text == wanted
        assert states(service) == {DE: "loaded", EN: "loaded", TITLE: "unloaded"}
    with repository_for(1) as service, pytest.raises(Unavailable, match="raise model_budget"):
        asyncio.run(service.run(name, [TEXTS[DE]]))


def test_first_uses_at_once_load_once_and_hold_up_nobody_else(answers):
    with repository_for(2) as service:
        ask(service, EN)
        gate = Gate(service)
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(ask, service, DE) for _ in range(3)]
            until(lambda: gate.opened)
            assert ask(service, EN) == answers[EN]
            assert not any(job.done() for job in waiting)
            gate.go.set()
            assert [job.result() for job in waiting] == [answers[DE]] * 3
        assert gate.opened == [DE]


def test_a_model_in_use_stays_and_who_waits_for_its_memory_has_a_deadline():
    with repository_for(1) as service:
        with service.repository.using([DE]):
            with pytest.raises(DeadlineExceeded, match=f"{EN} waited to be loaded"):
                ask(service, EN, deadline=time.monotonic() + 0.05)
            assert service.repository_entries()[DE].state is State.LOADED
        assert ask(service, EN)
        assert service.repository_entries()[DE].state is State.UNLOADED


def test_a_load_that_fails_is_told_and_tried_again(tmp_path, answers):
    shutil.copytree(bundles(), tmp_path / "models")
    path = tmp_path / "models" / DE
    with repository_for(2, tmp_path / "models") as service:
        damaged(path)
        with pytest.raises(Unavailable, match="could not be loaded; the server's log says why"):
            ask(service, DE)
        with pytest.raises(BundleError, match="SHA-256"):
            service.load(DE)
        kept = service.repository_entries()[DE]
        assert (kept.failures, str(kept.state)) == (2, "unloaded")
        assert "SHA-256" in kept.fault
        damaged(path)  # the same bit again: mended
        assert ask(service, DE) == answers[DE]
        assert service.repository_entries()[DE].fault == ""


def test_a_budget_below_every_model_is_refused_at_the_start_with_the_setting_to_raise():
    with pytest.raises(ConfigError, match="no model fits in the budget.*raise model_budget"):
        Service.open([bundles()], ServiceSettings(Placement(lanes=LANES), budget=1000))


def test_models_that_are_larger_together_than_the_budget_are_refused_with_the_setting_to_raise():
    settings = ServiceSettings(Placement(lanes=LANES), budget=10**9)
    cost = max(entry.cost for entry in Service.open([bundles()], settings).repository_entries().values())
    service = Service.open([bundles()], replace(settings, budget=cost))
    with pytest.raises(Unavailable, match="raise model_budget"), service.repository.using([DE, EN]):
        pass


def test_an_unload_waits_for_those_at_work_and_a_later_use_loads_again(answers):
    with running() as service, ThreadPoolExecutor(3) as pool:
        long = pool.submit(ask, service, DE, TextOptions(LONG))
        until(lambda: busy(service)[0])
        unload = pool.submit(service.unload, DE)
        later = pool.submit(ask, service, DE)
        assert long.result()
        assert unload.result().name == DE
        assert later.result() == answers[DE]
        assert service.repository_entries()[DE].evictions == 1
        for _ in range(2):  # again, and of one that is away
            service.unload(DE)
            assert service.repository_entries()[DE].state is State.UNLOADED
        for _ in range(2):
            service.load(DE)
            assert service.repository_entries()[DE].state is State.LOADED
        with pytest.raises(UnknownModel):
            service.unload("nobody")


def test_the_lanes_of_an_unloaded_model_go_though_its_engine_is_still_known(answers):
    with running() as service:
        assert ask(service, DE) == answers[DE]
        (engine,) = service.repository._engines[DE]
        lanes = [weakref.ref(lane) for lane in engine.lanes]
        service.unload(DE)
        assert all(lane() is None for lane in lanes)


def test_a_cancelled_wait_frees_its_place(answers):
    with repository_for(1) as service:
        gate = Gate(service)

        async def withdraw_all():
            task = asyncio.create_task(service.run(DE, [TEXTS[DE]]))
            while not gate.opened:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(withdraw_all())
        gate.go.set()
        assert ask(service, EN) == answers[EN], "nobody wants the other any more, so it goes"


def test_a_stop_answers_those_who_wait_for_a_load():
    with repository_for(1) as service, ThreadPoolExecutor(2) as pool:
        gate = Gate(service)
        waiting = pool.submit(ask, service, DE)
        until(lambda: gate.opened)
        stopped = pool.submit(service.stop, drain=True, timeout=30)
        with pytest.raises(Stopping):
            waiting.result()
        gate.go.set()
        assert stopped.result() is False
        assert not service.healthy()
        with pytest.raises(Stopping):
            ask(service, EN)


def test_a_reload_of_an_unloaded_model_reads_what_it_is_now(tmp_path):
    shutil.copytree(bundles(), tmp_path / "models")
    path = tmp_path / "models" / DE
    with repository_for(1, tmp_path / "models") as service:
        before = ask(service, DE)
        ask(service, EN)
        (old,) = (info for info in service.models() if info.name == DE)
        rewritten(path, lambda w: -w)
        fresh = service.reload(DE)
        assert fresh.digest != old.digest
        assert service.repository_entries()[DE].state is State.UNLOADED
        assert ask(service, DE) != before
        damaged(path)
        service.unload(DE)
        with pytest.raises(BundleError, match="SHA-256"):
            service.reload(DE)


def test_memory_that_is_being_freed_is_counted_once():
    """Who needs as much as is being freed waits for that, and for nobody else's model."""
    budget = Budget({"a": 2, "b": 2, "c": 2, "d": 4}, 6)
    used = loaded_with(budget, "a", "b", "c")
    for ticket in used:
        budget.release(ticket)
    assert budget.acquire(Ticket(("a",), unload=True)).unload == ["a"]
    acts = budget.acquire(Ticket(("d",)))
    assert acts.unload == ["b"], "two bytes are on their way, two more are needed"
    assert not acts.load


# weights that processes share


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_weights_that_another_process_has_prepared_give_the_same_answers(tmp_path, precision):
    def answers(shared):
        with running(precision=precision, shared=shared) as service:
            wishes = TextOptions(alternatives=3, alignment=True)
            one = asyncio.run(service.run(DE, ["Das ist gut.", "Es war einmal ein König."], wishes))
        return [(a.text, a.score, a.alternatives) for a in one]

    def files():
        return {(path, path.stat().st_ino) for path in tmp_path.rglob("*.npy")}

    alone, first = answers(None), answers(tmp_path)
    kept = files()
    assert len(kept) > len(MODELS)
    assert answers(tmp_path) == first == alone
    assert files() == kept


def test_of_a_model_in_two_processes_the_fault_of_either_is_told_and_figures_are_summed():
    fine = RepositoryEntry(State.LOADED, 7, 1, 0, 2, 0.5, "")
    faulty = RepositoryEntry(State.UNLOADED, 7, 2, 3, 4, 1.5, "damaged")
    both = RepositoryEntry(State.LOADED, 7, 3, 3, 6, 1.5, "damaged")
    assert merge_entries(fine, faulty) == merge_entries(faulty, fine) == both
