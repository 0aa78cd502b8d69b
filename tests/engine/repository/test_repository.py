"""A repository with a memory budget: loading, unloading and reloading of small models."""

import asyncio
import shutil
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

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
from engine.repository.figures import RepositoryEntry, merge_entries
from tests.server.test_reload import damaged, rewritten
from tests.support.served import LANES, LONG, MODELS, bundles, busy, open_service, running, until
from tests.support.thorough import some

DE, EN, TITLE = MODELS
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
    """A started service of the small models with memory for `count` of them."""
    each = max(costs().values())
    settings = ServiceSettings(Placement(lanes=LANES), budget=count * each)
    service = Service.open([folder or bundles()], settings)
    service.start()
    try:
        yield service
    finally:
        service.stop(drain=False, timeout=30)


class Gate:
    """A gate that blocks the opening of bundles until it is released.

    opened: names of the bundles whose opening was begun.
    """

    def __init__(self, service):
        source = service.repository._source
        self.go, self.opened = threading.Event(), []

        def slowly(path):
            self.opened.append(path.name)
            assert self.go.wait(300)
            return source.open(path)

        service.repository._source = replace(source, open=slowly)


def test_a_model_loaded_at_its_first_use_gives_the_same_answers(answers):
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


def test_shared_weights_of_an_evicted_model_are_removed(tmp_path):
    placement = Placement(lanes=LANES, precision="int8", shared=tmp_path)
    settings = ServiceSettings(placement, budget=max(costs().values()))
    service = Service.open([bundles()], settings)
    service.start()
    try:
        stored = {}
        for model in (DE, EN, DE):
            ask(service, model)
            stored[model] = {path.parent for path in tmp_path.rglob("*.npy")}
            assert len(stored[model]) == 1, stored  # of the model in memory alone
        assert stored[DE] != stored[EN]
    finally:
        service.stop(drain=False, timeout=30)


def test_the_description_of_a_model_is_the_same_before_it_is_loaded():
    with repository_for(1) as service, running() as eager:
        known = [replace(info, load_seconds=0.0) for info in eager.models()]
        assert service.models() == known
        assert service.languages() == eager.languages()
        assert service.pick("translate", "de", "en").name == DE
        ask(service, DE)
        assert [replace(info, load_seconds=0.0) for info in service.models()] == known


def test_totals_continue_when_a_model_is_loaded_again():
    with repository_for(1) as service:
        for name in (DE, EN, DE):
            ask(service, name)
        kept, stats = service.repository_entries()[DE], service.stats()[DE]
        assert (kept.loads, kept.evictions, kept.failures) == (2, 1, 0)
        assert stats.answered == 4, "two texts and the canaries of two loads"


def test_answers_stay_right_while_models_are_loaded_and_unloaded(answers):
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


def test_simultaneous_first_uses_load_once_and_do_not_block_other_models(answers):
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


def test_a_model_in_use_is_not_unloaded_and_waiting_for_memory_has_a_deadline():
    with repository_for(1) as service:
        with service.repository.using([DE]):
            with pytest.raises(DeadlineExceeded, match=f"{EN} waited to be loaded"):
                ask(service, EN, deadline=time.monotonic() + 0.05)
            assert service.repository_entries()[DE].state is State.LOADED
        assert ask(service, EN)
        assert service.repository_entries()[DE].state is State.UNLOADED


def test_a_failed_load_is_reported_and_tried_again(tmp_path, answers):
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


def test_an_unload_waits_for_requests_in_flight_and_a_later_use_loads_again(answers):
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


def test_the_lanes_of_an_unloaded_model_are_freed_while_its_engine_is_referenced(answers):
    with running() as service:
        assert ask(service, DE) == answers[DE]
        (engine,) = service.repository._engines[DE]
        lanes = [weakref.ref(lane) for lane in engine.lanes]
        service.unload(DE)
        assert all(lane() is None for lane in lanes)


def test_a_cancelled_wait_leaves_the_queue_of_tickets(answers):
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


def test_a_stop_answers_requests_that_wait_for_a_load():
    with repository_for(1) as service, ThreadPoolExecutor(2) as pool:
        gate = Gate(service)
        waiting = pool.submit(ask, service, DE)
        until(lambda: gate.opened)
        stopped = pool.submit(service.stop, drain=True, timeout=600)
        with pytest.raises(Stopping):
            waiting.result()
        gate.go.set()
        assert stopped.result() is False
        assert not service.healthy()
        with pytest.raises(Stopping):
            ask(service, EN)


def test_a_reload_of_an_unloaded_model_reads_the_new_bundle(tmp_path):
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


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_weights_prepared_by_another_process_give_the_same_answers(tmp_path, precision):
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


def test_entries_of_two_processes_merge_to_sums_and_the_fault_of_either():
    fine = RepositoryEntry(State.LOADED, 7, 1, 0, 2, 0.5, "")
    faulty = RepositoryEntry(State.UNLOADED, 7, 2, 3, 4, 1.5, "damaged")
    both = RepositoryEntry(State.LOADED, 7, 3, 3, 6, 1.5, "damaged")
    assert merge_entries(fine, faulty) == merge_entries(faulty, fine) == both
