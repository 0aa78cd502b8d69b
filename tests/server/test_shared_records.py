"""Records, files, documents and glossaries on disk, shared by two processes."""

import multiprocessing
import os
import shutil
import stat
from dataclasses import replace
from operator import itemgetter

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.api import Overloaded, TooLarge
from server.contracts.deepl.documents import BEAT_SECONDS, GONE, DocumentJobs
from server.contracts.deepl.glossaries import Glossaries, Glossary
from server.errors import Refusal
from server.files.journal import Journal
from server.files.known_records import KnownRecords
from server.files.shared_records import Records
from server.files.store import Store

IDS = st.sampled_from(["a", "B-1", "c" * 64])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "drop", "get"]), IDS, st.integers()), max_size=30)


@pytest.mark.parametrize("shared", [True, False])
def test_records_act_like_a_dictionary(shared, tmp_path_factory):
    @given(steps=STEPS)
    def check(steps):
        folder = tmp_path_factory.mktemp("records") / "x" if shared else None
        records, oracle = Records(folder), {}
        for step, id, value in steps:
            if step == "put":
                records.put(id, {"value": value})
                oracle[id] = {"value": value}
            elif step == "drop":
                records.drop(id)
                oracle.pop(id, None)
            assert records.get(id) == oracle.get(id)
            assert (records.version(id) is not None) == (id in oracle)
        assert sorted(records.ids()) == sorted(oracle)

    check()


STEPS_OF_TWO = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.sampled_from(["put", "drop", "find", "list", "gone"]), IDS),
    max_size=30,
)


@pytest.mark.parametrize("shared", [True, False])
def test_cached_records_of_two_processes_act_like_a_dictionary(shared, tmp_path_factory):
    @given(steps=STEPS_OF_TWO)
    def check(steps):
        folder, oracle = tmp_path_factory.mktemp("known") if shared else None, {}
        both = [
            KnownRecords(Records(folder), itemgetter("value"), lambda value: {"value": value}) for _ in "12"
        ]
        for value, (who, step, id) in enumerate(steps):
            known = both[who if shared else 0]
            if step == "put":
                with known.locked():
                    known.put(id, value)
                oracle[id] = value
            elif step == "drop":
                with known.locked():
                    known.drop(id)
                oracle.pop(id, None)
            elif step == "list":
                with known.locked() as every:
                    assert sorted(every) == sorted(oracle.values())
            elif step == "gone" and folder:  # systems tidy up
                shutil.rmtree(folder, ignore_errors=True)
                oracle.clear()
            assert known.find(id) == known.find(id) == oracle.get(id)

    check()


def test_listing_glossaries_reads_only_changed_records(tmp_path, monkeypatch):
    one, other = (Glossaries(Records(tmp_path)) for _ in range(2))
    made = [Glossary(f"{n}", "x", {("de", "en"): {"a": "b"}}, version=3) for n in range(5)]
    for glossary in made:
        one.add(glossary)
    assert other.of("2", 3) == [made[2]]
    renamed = one.change("2", made[2].id, lambda glossary: replace(glossary, name="y"))
    read, get = [], Records.get
    monkeypatch.setattr(Records, "get", lambda self, id: read.append(id) or get(self, id))
    assert other.of("2", 3) == [renamed]
    assert other.of("3", 3) == [made[3]]
    assert read == [renamed.id]


@pytest.mark.parametrize("id", ["../x", "a/b", "", ".", "a" * 65, "a.json", "a\0", "é", "a\n"])
def test_ids_of_clients_are_no_paths(id, tmp_path):
    (tmp_path / "x.json").write_text("{}", "utf-8")
    records = Records(tmp_path / "records")
    assert records.get(id) is None
    assert records.version(id) is None
    records.drop(id)
    assert (tmp_path / "x.json").exists()


def test_folder_of_records_is_private_and_failed_writes_leave_no_file(tmp_path):
    records = Records(tmp_path / "records")
    assert stat.S_IMODE((tmp_path / "records").stat().st_mode) == 0o700
    records.put("a", {"value": 1})
    with pytest.raises(TypeError):
        records.put("a", {"value": object()})
    assert records.get("a") == {"value": 1}
    assert len(list((tmp_path / "records").iterdir())) == 1


def test_processes_share_files_and_their_room(tmp_path):
    one, other = (Store(60.0, 9_000, folder=tmp_path / "files") for _ in range(2))
    public = one.put("a.txt", b"1" * 6_000)
    assert other.get(public).path.read_bytes() == b"1" * 6_000
    with pytest.raises(Overloaded):
        other.put("b.txt", b"2" * 6_000)
    one.close()
    assert other.get(public) is not None, "a shared folder stays"
    assert other.get(public.replace("a.txt", "b.txt")) is None


def _fill(folder, name):
    store, done = Store(60.0, 100_000, folder=folder), 0
    for _ in range(20):
        try:
            store.put(name, b"x" * 7_000)
            done += 1
        except Overloaded:
            pass
    os._exit(done)


def test_two_processes_never_exceed_the_room(tmp_path):
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_fill, args=(tmp_path, f"{n}.txt")) for n in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(300)
    assert sum(process.exitcode for process in both) == 14
    assert Store(60.0, 100_000, folder=tmp_path).size == 98_000


def test_journal_is_emptied_before_it_grows_and_readers_miss_no_change(tmp_path, monkeypatch):
    monkeypatch.setattr("server.files.journal.MAX_JOURNAL_BYTES", 100)
    one, other, unread = Journal(tmp_path), Journal(tmp_path), []
    for number in range(99):
        with one.locked():
            one.record(f"id{number}")
        unread.append(f"id{number}")
        if number % 7 == 0:
            with other.locked() as news:
                assert news is None or news == unread
            unread.clear()
    assert (tmp_path / "journal").stat().st_size < 200


def test_processes_share_documents_until_their_process_ends(tmp_path):
    one, other = (DocumentJobs(Records(tmp_path), 600.0) for _ in range(2))
    job, key = one.new(12)
    assert other.find(job.id, key).state == "queued"
    assert other.find(job.id, "x") is None
    assert other.find("../" + job.id, key) is None
    assert key not in (tmp_path / f"{job.id}.json").read_text("utf-8")
    now = other.clock()
    other.clock = lambda: now + 4 * BEAT_SECONDS
    gone = other.find(job.id, key)
    assert (gone.state, gone.message) == ("error", GONE)
    one.clock = other.clock
    one.save(job)
    assert other.find(job.id, key).state == "queued", "a sign of life"
    other.clock = lambda: now + 700.0
    assert other.find(job.id, key) is None
    other.sweep()
    assert len(list(tmp_path.glob(f"{job.id}*"))) == 0, "what has expired is removed"


def test_processes_share_glossaries(tmp_path):
    one, other = (Glossaries(Records(tmp_path)) for _ in range(2))
    glossary = Glossary("ann", "1", {("de", "en"): {"Bahnhof": "terminus", "ä": "\u2028"}})
    one.add(glossary)
    assert other.find("ann", glossary.id) == glossary
    assert other.of("ann") == [glossary]
    with pytest.raises(Refusal):
        other.find("bob", glossary.id)
    other.drop("ann", glossary.id, 2)
    with pytest.raises(Refusal):
        one.find("ann", glossary.id)
    assert one.of("ann") == []


def test_file_larger_than_the_store_is_too_large(tmp_path):
    with pytest.raises(TooLarge):
        Store(60.0, 10, folder=tmp_path).put("a.txt", b"x" * 11)
