"""Formats: columns are copied byte by byte, and translations equal those of a service."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from importlib.util import find_spec

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpus.formats.records import read_records
from corpus.formats.text import TextLines
from engine.api import InvalidRequest, TextOptions
from tests.corpus.jobs import MODEL, job_of, output_of, run_job, sentences
from tests.support.served import running

needs_arrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs the extra `corpus`")
TEXTS = [*sentences(60), "", "  ", "!?", 'Er sagte: "Ja, gut."', "Tabulator\tmitten drin"]


@pytest.fixture(scope="module")
def service():
    with running() as service:
        yield service


@pytest.fixture(scope="module")
def expected(service):
    options = TextOptions()
    return [
        result.text if text.strip() else ""
        for text, result in zip(TEXTS, service.run_many(MODEL, TEXTS, options), strict=True)
    ]


def packed(data, ending):
    return {"": data, ".gz": gzip.compress(data), ".zst": zstandard.compress(data)}[ending]


def unpacked(data, ending):
    opened = {".gz": gzip.decompress, ".zst": lambda b: zstandard.decompress(b, max_output_size=1 << 24)}
    return opened[ending](data) if ending else data


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_text_is_translated_line_by_line(service, expected, tmp_path, ending):
    source = tmp_path / f"a.txt{ending}"
    source.write_bytes(packed("\n".join(TEXTS).encode(), ending))
    run_job(service, job_of(service, shard_lines=25), [source], tmp_path / "out")
    output = output_of(tmp_path / "out")
    names = [f"a.{number:05d}-of-00003.txt{ending}" for number in range(3)]
    assert sorted(output) == [*names, "manifest.json"]
    text = b"".join(unpacked(output[name], ending) for name in names).decode()
    assert text == "".join(f"{line}\n" for line in expected)


def test_line_breaks_in_one_column_of_text_are_spaces():
    assert TextLines(["text"]).write(b"", ["a\r\nb\tc"], whole=True) == b"a b\tc"
    assert TextLines(["text", "score"]).write(b"", ["a\nb\tc", 1.5], whole=True) == b"a b c\t1.5"


def test_several_columns_of_text_are_separated_by_tabs(service, expected, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS), "utf-8")
    job = job_of(service, columns=["status", "source", "translation"])
    run_job(service, job, [tmp_path / "a.txt"], tmp_path / "out")
    rows = [line.split("\t") for line in output_of(tmp_path / "out")["a.txt"].decode().splitlines()]
    assert [row[2] for row in rows] == [text.replace("\t", " ") for text in expected]
    assert rows[0][:2] == ["ok", TEXTS[0]]
    assert rows[60][:2] == ["empty", ""]
    assert rows[-1][1] == "Tabulator mitten drin"


def test_json_members_are_copied_byte_by_byte(service, expected, tmp_path):
    lines = [
        f'{{ "id":{number}, "z" : 1.50e3,"text":{json.dumps(text)} , "a":[1, {{}}]}}'
        for number, text in enumerate(TEXTS)
    ]
    (tmp_path / "a.jsonl").write_bytes("\r\n".join(lines).encode())
    job = job_of(service, column="text", columns=["translation", "score"])
    run_job(service, job, [tmp_path / "a.jsonl"], tmp_path / "out")
    written = output_of(tmp_path / "out")["a.jsonl"].decode().splitlines()
    assert [json.loads(line)["translation"] or "" for line in written] == expected
    assert all(new.startswith(old[:-1]) for old, new in zip(lines, written, strict=True))
    assert {"id", "z", "text", "a", "translation", "score"} == set(json.loads(written[0]))


def test_tsv_with_a_header_names_the_new_columns(service, expected, tmp_path):
    texts = [text for text in TEXTS if "\t" not in text]
    rows = "\n".join(["id\tde", *(f"{number}\t{text}" for number, text in enumerate(texts))])
    (tmp_path / "a.tsv").write_text(rows + "\n", "utf-8-sig")
    job = job_of(service, column="de", columns={"translation": "en"}, shard_lines=40)
    run_job(service, job, [tmp_path / "a.tsv"], tmp_path / "out")
    output = output_of(tmp_path / "out")
    first, second = (output[f"a.0000{number}-of-00002.tsv"].decode() for number in (0, 1))
    assert first.splitlines()[0] == second.splitlines()[0] == "id\tde\ten"
    written = [line.split("\t") for line in [*first.splitlines()[1:], *second.splitlines()[1:]]]
    assert [row[2] for row in written] == expected[: len(texts)]
    assert [row[1] for row in written] == texts


def test_tsv_without_a_header_counts_columns_from_one(service, expected, tmp_path):
    (tmp_path / "a.tsv").write_text("\n".join(f"x\t{text}" for text in TEXTS[:5]), "utf-8")
    run_job(service, job_of(service, column="2"), [tmp_path / "a.tsv"], tmp_path / "out")
    written = output_of(tmp_path / "out")["a.tsv"].decode().splitlines()
    assert written == [f"x\t{text}\t{answer}" for text, answer in zip(TEXTS[:5], expected[:5], strict=True)]


def test_csv_cells_may_contain_line_ends_and_quotes(service, tmp_path):
    texts = ["Zwei\nZeilen", 'Ein "Wort"', "Eins, zwei", *sentences(20)]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["id", "text, quoted"])
    writer.writerows(enumerate(texts))
    (tmp_path / "a.csv").write_text(out.getvalue(), "utf-8", newline="")
    job = job_of(service, column="text, quoted", shard_lines=4, columns=["translation", "alternatives"])
    job = job.__class__.from_json(job.as_json() | {"options": job.as_json()["options"] | {"alternatives": 1}})
    run_job(service, job, [tmp_path / "a.csv"], tmp_path / "out")
    shards = [data for name, data in output_of(tmp_path / "out").items() if name.endswith(".csv")]
    tables = [list(csv.DictReader(io.StringIO(data.decode(), newline=""))) for data in shards]
    rows = [row for table in tables for row in table]
    assert [row["text, quoted"] for row in rows] == texts
    answers = list(service.run_many(MODEL, texts, TextOptions(alternatives=1)))
    assert [row["translation"] for row in rows] == [answer.text for answer in answers]
    assert [json.loads(row["alternatives"]) for row in rows] == [answer.alternatives for answer in answers]


@needs_arrow
def test_parquet_keeps_its_columns_and_types(service, expected, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [None if text == "" else text for text in TEXTS]
    table = pa.table(
        {
            "id": pa.array(range(len(TEXTS)), pa.uint16()),
            "text": pa.array(texts).dictionary_encode(),
            "nested": [{"a": [number]} for number in range(len(TEXTS))],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=17)
    job = job_of(service, column="text", columns=["translation", "score", "flags"], shard_lines=30)
    manifest = run_job(service, job, [tmp_path / "a.parquet"], tmp_path / "out")
    names = [shard["name"] for shard in manifest["shards"]]
    assert names == [f"a.{number:05d}-of-00003.parquet" for number in range(3)]
    written = pa.concat_tables([pq.read_table(tmp_path / "out" / name) for name in names])
    assert written.select(table.column_names).to_pydict() == table.to_pydict()
    assert written.schema.field("nested").type == table.schema.field("nested").type
    assert [text or "" for text in written["translation"].to_pylist()] == expected
    assert written.schema.field("score").type == pa.float64()
    assert written.schema.field("flags").type == pa.list_(pa.string())


def test_failed_lines_are_dropped_with_errors_drop(service, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"Das ist gut.\n\xff\xfe\n\nEin Haus.\n")
    job = job_of(service, errors="drop", columns=["status"])
    manifest = run_job(service, job, [tmp_path / "a.txt"], tmp_path / "out")
    statuses = output_of(tmp_path / "out")["a.txt"].decode().split()
    assert "encoding" not in statuses
    assert "empty" in statuses
    assert manifest["summary"]["statuses"]["encoding"] == 1
    assert manifest["summary"]["rows"] == manifest["summary"]["lines"] - 1 - manifest["summary"][
        "statuses"
    ].get("repetitive", 0)


def test_failed_line_stops_the_job_with_errors_stop(service, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\n\n\xff\n")
    with pytest.raises(InvalidRequest, match=r"a.txt, line 3: encoding: not UTF-8"):
        run_job(service, job_of(service, errors="stop"), [tmp_path / "a.txt"], tmp_path / "out")
    assert not output_of(tmp_path / "out")


@given(
    st.lists(st.lists(st.text('ab",\n\r ', max_size=6), min_size=2, max_size=3), max_size=8),
    st.sampled_from([("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL)]),
)
def test_csv_records_equal_the_standard_librarys(rows, dialect):
    out, (ending, quoting) = io.StringIO(), dialect
    csv.writer(out, lineterminator=ending, quoting=quoting).writerows(rows)
    data = out.getvalue().encode()
    cut = [
        record.raw.decode()
        for record in read_records(io.BufferedReader(io.BytesIO(data)), 1 << 20, quoted=True, start=True)
    ]
    assert [next(csv.reader(io.StringIO(record, newline=""))) for record in cut] == rows


@given(st.binary(max_size=200), st.integers(1, 40), st.booleans())
def test_records_of_any_bytes_cover_the_file(data, limit, quoted):
    found = list(read_records(io.BufferedReader(io.BytesIO(data)), limit, quoted=quoted, start=True))
    assert sum(record.size for record in found) == len(data)
    assert all(len(record.raw) <= limit + 1 for record in found)
    if not quoted:
        assert len(found) == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def test_open_quote_takes_linear_time():
    """The text of an open cell is scanned only once."""
    data = b'"' + b"x,y\n" * 300_000
    random.seed(0)
    found = list(read_records(io.BufferedReader(io.BytesIO(data)), 1 << 20, quoted=True, start=True))
    assert found[0].too_long
    assert sum(record.size for record in found) == len(data)
