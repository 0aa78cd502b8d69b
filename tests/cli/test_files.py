"""`convoy translate` with several files, folders and patterns, and with files of unknown endings."""

from __future__ import annotations

import shutil

import pytest

from cli.files import files_of, is_document
from engine.errors import InvalidRequest
from tests.cli.commands import done, failure
from tests.support.served import bundles

PLACE = ("--threads", 1)


@pytest.fixture
def folder(tmp_path):
    """Return a folder of documents, texts and other files."""
    for name, content in {
        "in/a.html": "<p>Das ist <b>gut</b>.</p>",
        "in/sub/b.md": "# Das ist gut\n",
        "in/t.txt": "Das ist gut.\nWer bist du?\n",
        "in/.git/c.md": "x",
        "in/x.zip": "x",
        "strings.xyz": "Das ist %d gut.\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")
    return tmp_path


def test_missing_document_is_named_before_the_missing_output(tmp_path, capsys):
    code, message = failure(capsys, "translate", tmp_path / "missing.docx")
    assert code
    assert "missing.docx: No such file" in message


def test_bilingual_files_and_memories_are_written_here(folder, capsys):
    model = bundles() / "toy-de-en"
    source = folder / "in/t.txt"
    for how, ending in (("above", ".txt"), ("tmx", ".tmx")):
        out = folder / f"o{ending}"
        done("translate", source, "--model", model, "-o", out, "--bilingual", how, *PLACE)
        assert "Das ist gut." in out.read_text("utf-8")
    assert "<tmx" in out.read_text("utf-8")
    (folder / "in/b.po").touch()
    code, message = failure(
        capsys,
        "translate",
        folder / "in/b.po",
        "--model",
        model,
        "-o",
        folder / "b.po",
        "--bilingual",
        "above",
    )
    assert code
    assert "side or tmx" in message
    code, message = failure(
        capsys, "translate", source, "--model", model, "-o", folder / "o.txt", "--bilingual", "left"
    )
    assert "above, below, side, tmx" in message


def test_translation_memory_answers_whole_lines_of_a_file(folder, capsys):
    source, memory, out = folder / "in/t.txt", folder / "m.tmx", folder / "o.txt"
    unit = "<tu><tuv xml:lang='de-AT'><seg>{}</seg></tuv><tuv xml:lang='en'><seg>{}</seg></tuv></tu>"
    source.write_text("Das ist gut.\n\nWie im Speicher.\n", "utf-8")
    memory.write_text(f"<tmx><body>{unit.format('Wie im  Speicher.', 'From memory.')}</body></tmx>", "utf-8")
    done("translate", source, "--model", bundles() / "toy-de-en", "-o", out, "--memory", memory, *PLACE)
    assert out.read_text("utf-8").endswith("\n\nFrom memory.\n")
    assert "1 of 2 texts come from the translation memory" in capsys.readouterr().err
    broken = folder / "n.tmx"
    broken.write_text("<tmx>", "utf-8")
    code, message = failure(
        capsys, "translate", source, "--model", bundles() / "toy-de-en", "-o", out, "--memory", broken
    )
    assert code == 2
    assert "n.tmx: the file can't be read as a translation memory" in message


def test_chosen_columns_of_a_table_are_translated_here(folder, capsys):
    table, out = folder / "in/t.csv", folder / "o.csv"
    table.write_text("a;b\nDas ist gut.;Das ist gut.\n", "utf-8")
    done("translate", table, "--model", bundles() / "toy-de-en", "-o", out, "--columns", "b", *PLACE)
    assert out.read_text("utf-8").startswith("a;b\nDas ist gut.;")
    assert out.read_text("utf-8") != table.read_text("utf-8")


def found(arguments, output, *, lines=False):
    return {str(f.output.relative_to(output)): f.path.name for f in files_of(arguments, output, lines=lines)}


def test_folder_pattern_and_file_keep_their_places_in_the_output_folder(folder, capsys):
    out = folder / "out"
    everything = {"a.html": "a.html", "sub/b.md": "b.md", "t.txt": "t.txt"}
    assert found([str(folder / "in")], out) == everything
    assert "x.zip: not translated" in capsys.readouterr().err
    assert found([str(folder / "in/**/*.md"), str(folder / "in/a.html")], out) == {
        "sub/b.md": "b.md",
        "a.html": "a.html",
    }
    assert found([str(folder / "strings.xyz")], out, lines=True) == {"strings.xyz": "strings.xyz"}


@pytest.mark.parametrize(
    ("arguments", "output", "wanted"),
    [
        (["strings.xyz"], "out", "--lines"),
        (["in/*.none"], "out", "no such file"),
        (["in/a.html"], "in", "would replace it"),
        (["in/t.txt", "out/t.txt"], "out2", "both be written"),
        ([], "out", "no file"),
    ],
)
def test_files_without_a_clear_translation_are_refused(folder, monkeypatch, arguments, output, wanted):
    monkeypatch.chdir(folder)
    (folder / "out").mkdir()
    (folder / "out/t.txt").write_text("x", "utf-8")
    with pytest.raises(InvalidRequest, match=wanted):
        files_of(arguments, folder / output, lines=False)


def test_only_texts_are_lines_by_their_ending(tmp_path):
    for name, wanted in {"a.txt": False, "a": False, "a.docx": True, "A.HTML": True}.items():
        assert is_document(tmp_path / name, lines=False) is wanted
    assert not is_document(tmp_path / "a.docx", lines=True)


def test_file_of_unknown_ending_is_refused_and_not_spoiled(folder, capsys):
    model = ("--model", bundles() / "toy-de-en", *PLACE)
    code, message = failure(capsys, "translate", folder / "strings.xyz", "-o", folder / "o.xyz", *model)
    assert code == 2
    assert "file format not supported; there are .txt, .md" in message
    assert not (folder / "o.xyz").exists()
    done("translate", folder / "strings.xyz", "--lines", "-o", folder / "o.xyz", *model)
    assert (folder / "o.xyz").read_text("utf-8").count("\n") == 1


def test_several_files_are_translated_into_a_folder(folder, capsys):
    model = ("--model", bundles() / "toy-de-en", *PLACE)
    done("translate", folder / "in", "--output-dir", folder / "out", *model)
    assert (folder / "out/a.html").read_text("utf-8").startswith("<p>")
    assert (folder / "out/sub/b.md").read_text("utf-8").startswith("# ")
    done("translate", folder / "in/t.txt", "-o", folder / "t.txt", *model)
    assert (folder / "out/t.txt").read_bytes() == (folder / "t.txt").read_bytes()
    copied = shutil.copy(folder / "in/t.txt", folder / "t.text")
    done("translate", copied, "--output-dir", folder / "out", *model)
    assert (folder / "out/t.text").read_bytes() == (folder / "t.txt").read_bytes()
    capsys.readouterr()
    assert "--output-dir" in failure(capsys, "translate", "a.md", "b.md", *model)[1]
    both = ("-o", folder / "x.md", "--output-dir", folder / "out", *model)
    assert "--output-dir" in failure(capsys, "translate", folder / "in/sub/b.md", *both)[1]
