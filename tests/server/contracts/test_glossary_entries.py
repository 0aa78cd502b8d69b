"""Entries of glossaries: parsing tables, and finding the entries that occur in a text."""

import csv
import io
import json
import os
import random
import threading
import time
import tracemalloc
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import TooLarge, at_once, forms_of
from server.contracts.deepl import entries as lookup
from server.contracts.deepl.entries import present_entries, read_entries
from server.contracts.deepl.glossaries import tsv_of
from server.recent import Recent
from tests.server.contracts.conftest import KEYS
from tests.support.served import until

OWN = {"Authorization": f"DeepL-Auth-Key {KEYS.partition(',')[0]}"}


def test_lookup_needs_memory_for_entries_but_not_for_the_text():
    text = "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x4E00 + 20_000), k=300_000)))
    tracemalloc.start()
    found = at_once(present_entries({"ab": "x", text[5:9]: "y", text[:3] + "!": "z"}, [text]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == {text[5:9]: "y"}
    assert most < 12 << 20


PHRASE = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)
PHRASES = st.dictionaries(PHRASE.map(str.strip).filter(bool), PHRASE.map(str.strip).filter(bool), min_size=1)


@given(entries=PHRASES)
def test_written_entries_are_read_back(entries):
    assert at_once(read_entries(tsv_of(entries), "tsv")) == entries
    table = io.StringIO()
    csv.writer(table).writerows(entries.items())
    assert at_once(read_entries(table.getvalue(), "csv")) == entries


@given(
    entries=PHRASES | st.dictionaries(st.text("ab ", min_size=1).map(str.strip).filter(bool), PHRASE),
    text=PHRASE | st.text("ab "),
    many=st.sampled_from([0, 2, 500]),
)
def test_present_finds_exactly_the_entries_that_occur(entries, text, many):
    texts = ["x", f"{text} {next(iter(entries), '')}"]
    whole = " ".join(" ".join(texts).split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "MANY_PHRASES", many)
        patch.setattr(lookup, "INDEXES", Recent(0))
        found = at_once(present_entries(entries, texts))
    assert found == {
        source: target
        for source, target in entries.items()
        if any(" ".join(form.split()) in whole for form in forms_of(source))
    }


def test_forms_of_a_glossary_are_computed_once(monkeypatch):
    computed = []

    def count(entry):
        computed.append(entry)
        return forms_of(entry)

    monkeypatch.setattr(lookup, "forms_of", count)
    monkeypatch.setattr(lookup, "INDEXES", Recent(3))
    first, other = {"a house": "x", "dog|dogs": "y"}, {"cat": "z", "tree": "w"}
    for _ in range(3):
        assert at_once(present_entries(dict(first), ["two dogs"])) == {"dog|dogs": "y"}
    assert computed == ["a house", "dog|dogs"]
    assert at_once(present_entries(dict.fromkeys(first, "new"), ["a house"])) == {"a house": "new"}
    assert len(computed) == 2
    at_once(present_entries(other, ["cat"]))  # there is room for three entries
    at_once(present_entries(first, ["dog"]))
    assert computed[2:] == ["cat", "tree", "a house", "dog|dogs"]


def slow_to_look_up(lengths):
    """Return entries of many lengths that begin like a text of one letter but do not occur in it."""
    return {"a" * (size - 8) + f"{n:08}": "x" for size in range(20, 20 + lengths) for n in range(400)}


def test_lookup_stops_after_its_processor_seconds(monkeypatch):
    monkeypatch.setattr(lookup, "MAX_LOOKUP_SECONDS", 0.2)
    began = time.thread_time()
    with pytest.raises(TooLarge, match="seconds of a processor"):
        at_once(present_entries(slow_to_look_up(60), ["a" * 29_000]))
    assert time.thread_time() - began < 10, "one step longer than the limit; all entries take minutes"


def test_lookup_stops_when_the_client_has_gone(place, monkeypatch):
    monkeypatch.setattr(lookup, "MAX_LOOKUP_SECONDS", 1e9)
    entries = "\n".join(f"{source}\tx" for source in slow_to_look_up(20))
    glossary = {"name": "x", "source_lang": "de", "target_lang": "en", "entries_format": "tsv"}
    made = place[1].post("/v2/glossaries", json=glossary | {"entries": entries}, headers=OWN, timeout=600)
    values = {"text": ["a" * 29_000] * 20, "source_lang": "DE", "target_lang": "EN-GB"}
    values["glossary_id"] = made.json()["glossary_id"]
    before = slices_seconds()
    url = place[1].base_url
    with closing(HTTPConnection(url.host, url.port)) as leaving:
        leaving.request(
            "POST", "/v2/translate", json.dumps(values), OWN | {"Content-Type": "application/json"}
        )
        until(lambda: slices_seconds() > before + 0.05)
    until(lambda: slices_seconds() == slices_seconds(after=0.3))


def slices_seconds(after=0.0):
    """Return the processor seconds of the thread for slow work, after a pause of `after` seconds."""
    time.sleep(after)
    thread = next((t for t in threading.enumerate() if t.name == "convoy-slices"), None)
    if thread is None:
        return 0.0
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
