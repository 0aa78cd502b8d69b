"""Hostile inputs get a status, and all other lines are translated."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from importlib.util import find_spec
from unittest.mock import patch

import pytest
import zstandard

from corpus import streams
from corpus.inputs import find_inputs
from engine.api import InvalidRequest
from tests.corpus.jobs import ROOT, command, job_of, output_of, run_job, sentences
from tests.support.served import running

GOOD = "Das ist gut."
needs_arrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs the extra `corpus`")


@pytest.fixture(scope="module")
def service():
    with running() as service:
        yield service


def statuses(service, path, tmp_path, **fields):
    """Return the status of each written line, the summary, and the problems of files."""
    columns = fields.pop("columns", ["status"])
    job = job_of(service, columns=columns, **fields)
    manifest = run_job(service, job, [path], tmp_path / "out")
    output = b"".join(data for name, data in output_of(tmp_path / "out").items() if name != "manifest.json")
    problems = [file["problem"] for file in manifest["inputs"] if file["problem"]]
    return output.decode().splitlines(), manifest, problems


def test_bad_lines_of_a_text_have_status_and_number(service, tmp_path):
    lines = [
        GOOD.encode(),
        b"\xff\xfebad",
        b"",
        b"x" * 3_000,
        b"Nul\0l und mehr.",
        "Zeile\u2028darin \x85 und\x0b".encode(),
        "\N{PILE OF POO}".encode() * 30,
        b"\t \x0c",
        GOOD.encode(),
    ]
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    found, manifest, _ = statuses(service, tmp_path / "a.txt", tmp_path, max_line_bytes=2_000)
    assert len(found) == len(lines)
    assert (found[1], found[2], found[3], found[7]) == ("encoding", "empty", "too_long", "empty")
    assert {found[0], found[4], found[5], found[6], found[8]} <= {"ok", "repetitive"}
    (shard,) = manifest["shards"]
    assert [1 + 1, "encoding", "not UTF-8: invalid start byte at byte 0"] in shard["examples"]
    assert [4, "too_long", "3,002 bytes"] in shard["examples"]


def test_manifest_lists_the_first_twenty_bad_lines_and_counts_all(service, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\n".join([GOOD.encode(), *[b"\xff"] * 50]))
    found, manifest, _ = statuses(service, tmp_path / "a.txt", tmp_path)
    assert found.count("encoding") == 50
    (shard,) = manifest["shards"]
    assert [example[:2] for example in shard["examples"]] == [[n, "encoding"] for n in range(2, 22)]
    assert shard["statuses"]["encoding"] == 50


def test_bad_lines_of_json_have_a_status(service, tmp_path):
    lines = [
        json.dumps({"text": GOOD}),
        json.dumps({"other": 1}),
        "{",
        "[1]",
        '{"text": 5}',
        '{"text": null}',
        '{"text": "\\ud800"}',
        '{"text": ' + "[" * 100_000,
        '{"text": "a", "status": 1}',
        '{"text": "x", "n": ' + "9" * 5_000 + "}",
        "",
        json.dumps({"text": GOOD}),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    written, *_ = statuses(service, tmp_path / "a.jsonl", tmp_path, column="text")
    found = [json.loads(line)["status"] for line in written]
    bad = ["malformed"] * 4
    expected = [*bad, "empty", "encoding", "malformed", "malformed", "malformed", "empty"]
    assert found[1:-1] == expected
    assert found[0] == found[-1]


def test_rows_with_a_wrong_number_of_cells_are_malformed(service, tmp_path):
    (tmp_path / "a.csv").write_text(f'id,text\n1,"{GOOD}"\n2\n3,a,b\n4,"open\n5,{GOOD}\n', "utf-8")
    written, *_ = statuses(service, tmp_path / "a.csv", tmp_path, column="text", max_line_bytes=40)
    assert [len(row) for row in csv.reader(written)] == [3] * 5
    assert written[0] == "id,text,status"
    assert [row[2] for row in csv.reader(written)][2:] == ["malformed"] * 3


def test_line_of_two_hundred_megabytes_takes_constant_memory(tmp_path):
    path, out = tmp_path / "a.txt", tmp_path / "out"
    with path.open("wb") as file:
        file.write(f"{GOOD}\n".encode())
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.write(f"\n{GOOD}\n".encode())
    code = (
        "import sys; from pathlib import Path; from cli.main import app\n"
        "try: app(sys.argv[1:])\n"
        "finally: print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    flags = command([path], out, "--columns", "status")[3:]
    done = subprocess.run([sys.executable, "-c", code, *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, long, last = output_of(out)["a.txt"].decode().split()
    assert (long, first) == ("too_long", last)
    assert int(done.stderr.splitlines()[-1]) < 180_000  # kB; a job of three lines has 105,000


def test_unreadable_files_are_listed_on_standard_error(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "good.txt").write_text(f"{GOOD}\n", "utf-8")
    for number in range(22):
        (folder / f"b{number:02}.tsv").write_text("id\ttext\n1\ta\n", "utf-8")
    done = subprocess.run(command([folder], out), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    first, *_, last = [line for line in done.stderr.splitlines() if line.startswith("convoy: error: ")]
    assert first == f"convoy: error: {folder}/b00.tsv: has columns: name the text's with --column"
    assert last == "convoy: error: manifest.json lists 2 more"
    assert "good.txt" in output_of(out)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_truncated_compressed_file_is_read_to_its_end(service, tmp_path, ending):
    texts = sentences(400)
    data = "\n".join(texts).encode()
    whole = gzip.compress(data) if ending == ".gz" else zstandard.compress(data)
    (tmp_path / f"a.txt{ending}").write_bytes(whole[: len(whole) * 9 // 10])
    (tmp_path / "b.txt").write_text(GOOD, "utf-8")
    job = job_of(service, columns=["source"], shard_lines=100)
    inputs = [tmp_path / f"a.txt{ending}", tmp_path / "b.txt"]
    manifest = run_job(service, job, inputs, tmp_path / "out")
    damaged, sound = manifest["inputs"]
    assert "damaged or cut off" in damaged["problem"]
    assert f"up to line {damaged['lines']:,}" in damaged["problem"]
    assert sound["problem"] == ""
    assert output_of(tmp_path / "out")["b.txt"].decode().strip() == GOOD
    if ending == ".gz":
        assert damaged["lines"] > 200
    with pytest.raises(InvalidRequest, match="damaged or cut off"):
        run_job(service, job_of(service, errors="stop"), inputs, tmp_path / "strict")


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_decompression_bomb_is_refused_early(service, tmp_path, ending):
    """With small limits, for 8 MB of line ends."""
    blank = b"\n" * (8 << 20)
    bomb = gzip.compress(blank) if ending == ".gz" else zstandard.compress(blank)
    (tmp_path / f"a.txt{ending}").write_bytes(bomb)
    (tmp_path / "b.txt").write_text(GOOD, "utf-8")
    inputs = [tmp_path / f"a.txt{ending}", tmp_path / "b.txt"]
    with patch.multiple(streams, BOMB_BYTES=1 << 20, BOMB_EXPANSION=20):
        manifest = run_job(service, job_of(service, shard_lines=1_000_000), inputs, tmp_path / "out")
    assert "a decompression bomb?" in manifest["inputs"][0]["problem"]
    assert manifest["summary"]["lines"] == 1
    assert list(output_of(tmp_path / "out")) == ["b.txt", "manifest.json"]


@needs_arrow
def test_damaged_parquet_is_reported_and_other_files_are_translated(service, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": sentences(4_000), "number": range(4_000)})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=1_000, compression="zstd", use_dictionary=False)
    data = bytearray(out.getvalue())
    (tmp_path / "cut.parquet").write_bytes(data[:-100])
    (tmp_path / "none.parquet").write_bytes(b"")
    (tmp_path / "fake.parquet").write_bytes(b"PAR1" + b"\xff" * 64 + b"\xff\xff\xff\x7fPAR1")
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(2).column(0)
    middle = group.data_page_offset + group.total_compressed_size // 2
    data[middle : middle + 50] = b"\0" * 50
    (tmp_path / "hurt.parquet").write_bytes(data)
    pq.write_table(table.slice(0, 10), tmp_path / "sound.parquet")
    job = job_of(service, columns=["status"], column="text", shard_lines=1_500)
    inputs = sorted(tmp_path.glob("*.parquet"))
    manifest = run_job(service, job, inputs, tmp_path / "out")
    problems = {file["name"]: file["problem"] for file in manifest["inputs"]}
    assert "it has no footer" in problems["cut.parquet"]
    assert "it has no footer" in problems["none.parquet"]
    assert problems["fake.parquet"]
    assert problems["hurt.parquet"].startswith("row group 2 is damaged")
    assert problems["hurt.parquet"].endswith("it is read up to row 2,000")
    assert problems["sound.parquet"] == ""
    assert manifest["summary"]["lines"] == 2_010
    written = pq.read_table(tmp_path / "out" / "hurt.00001-of-00002.parquet")
    assert written["number"].to_pylist() == list(range(1_500, 2_000))


def test_empty_files_become_empty_files(service, tmp_path):
    for name in ("a.txt", "b.jsonl"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "c.csv").write_text("id,text\n", "utf-8")
    (tmp_path / "d.csv").write_bytes(b"")
    manifest = run_job(service, job_of(service, column="text"), [tmp_path], tmp_path / "out")
    output = output_of(tmp_path / "out")
    assert (output["a.txt"], output["b.jsonl"], output["c.csv"]) == (b"", b"", b"id,text,translation\n")
    problems = {file["name"]: file["problem"] for file in manifest["inputs"]}
    assert problems["d.csv"] == "has no header: name the column by its number"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", gzip.compress(b"x", mtime=0), "is gzip: let its name end with .gz"),
        ("a.txt", GOOD.encode("utf-16"), "is UTF-16: convert it to UTF-8"),
        ("a.txt.gz", zstandard.compress(b"x"), "is zstd: let its name end with .zst"),
        ("a.csv", b"id,other\n1,2\n", "has no column 'text', but id, other"),
        ("a.csv", b"text,translation\n1,2\n", "--columns translation=new_translation"),
        ("a.docx", b"PK", "is no format of corpora"),
    ],
)
def test_file_of_another_format_is_refused_with_a_remedy(service, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match=message):
        run_job(service, job_of(service, column="text"), [tmp_path / name], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_and_globs_give_files_with_distinct_names(tmp_path):
    for name in ("a/x.txt", "a/b/y.jsonl.gz", "a/.z.txt", "a/_convoy/plan.txt", "a/note.md", "c/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [file.name for file in find_inputs([str(tmp_path / "a")])] == ["b/y.jsonl.gz", "x.txt"]
    assert [file.name for file in find_inputs([str(tmp_path / "*" / "x.txt")])] == ["a/x.txt", "c/x.txt"]
    (file,) = find_inputs([str(tmp_path / "a" / "note.md")])
    assert (file.name, file.kind) == ("note.md", "text")
    with pytest.raises(InvalidRequest, match="no such file"):
        find_inputs([str(tmp_path / "nothing*")])


@pytest.mark.skipif(find_spec("fsspec") is None, reason="needs the extra `corpus`")
def test_inputs_may_be_urls_of_fsspec(service, tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus/a.txt.gz", gzip.compress(f"{GOOD}\n{GOOD}\n".encode()))
    memory.pipe("/corpus/b/c.jsonl", json.dumps({"text": GOOD}).encode())
    job = job_of(service, column="text", columns=["source"], shard_lines=1)
    run_job(service, job, ["memory://corpus"], tmp_path / "out")
    output = output_of(tmp_path / "out")
    assert gzip.decompress(output["a.00001-of-00002.txt.gz"]).decode() == f"{GOOD}\n"
    assert json.loads(output["b/c.jsonl"])["source"] == GOOD
