"""One command from public text to a bundle: corpora, back-translation and the command that trains."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from engine.errors import InvalidRequest
from training import collect, reproduce
from training.collect import write_corpus
from training.data import read_pairs
from training.recipe import load
from training.reproduce import PARTS, make_corpora, read_archive, split_pairs, write_back

PAIRS = [(f"Satz {number}.", f"Sentence {number}.") for number in range(40)]


@pytest.fixture(autouse=True)
def few_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one pair of each template: all of them take seconds."""
    monkeypatch.setattr(collect, "TEMPLATE_PAIRS", 1)
    monkeypatch.setattr(collect, "HELD_OUT", 3)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with an archive of manythings.org."""
    folder = tmp_path / "sources"
    folder.mkdir()
    lines = [f"{english}\t{german}\tCC-BY 2.0 (France)" for german, english in [*PAIRS, PAIRS[0]]]
    with zipfile.ZipFile(folder / "deu-eng.zip", "w") as archive:
        archive.writestr("deu.txt", "\n".join(lines))
    return folder


def test_archive_gives_its_distinct_pairs_with_english_last(sources: Path) -> None:
    assert read_archive(sources / "deu-eng.zip", "de") == PAIRS
    for language in ("fr", "de"):
        (sources / "other.zip").write_bytes(b"PK" if language == "de" else b"")
        with pytest.raises(InvalidRequest, match="no archive of manythings.org"):
            read_archive(sources / "other.zip", language)


def test_training_pairs_of_an_archive_share_no_side_with_validation_and_tests() -> None:
    pairs = [*PAIRS, *((german, f"{english} Again.") for german, english in PAIRS)]
    train, valid, test = split_pairs(pairs, 10)
    assert (len(valid), len(test)) == (10, 10) and split_pairs(pairs, 10)[0] == train
    held_out = {side for pair in (*valid, *test) for side in pair}
    assert train and all(held_out.isdisjoint(pair) for pair in train)


def test_corpora_are_made_of_the_sources_that_are_there(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "HELD_OUT", 5)
    write_corpus(sources / "ui-de-en", PAIRS, PAIRS[:2], PAIRS[2:4])
    recipe = load(reproduce.RECIPES / "tatoeba-en-de.toml", "cpu")
    make_corpora(recipe, sources, tmp_path / "corpora", 0.5)
    made = {folder.name for folder in (tmp_path / "corpora").iterdir()}
    assert made == {"tatoeba-de-en", "ui-de-en", "written-de-en", "templates-de-en"}
    sizes = [len(read_pairs(tmp_path / f"corpora/ui-de-en/{part}.tsv.gz", 0, 1)) for part in PARTS]
    assert sizes == [20, 1, 1]
    write_back(recipe, tmp_path / "corpora", tmp_path / "back.txt", 3)
    lines = (tmp_path / "back.txt").read_text("utf-8").splitlines()
    assert len(lines) == 3 and all(line.startswith("Satz ") for line in lines)


def test_missing_sources_are_refused_with_their_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = ["--work", str(tmp_path / "work")]
    assert reproduce.main(["arxiv-title-en", str(tmp_path), *work]) == 2
    assert "arxiv-titles" in capsys.readouterr().err


def test_command_trains_with_back_translation_and_the_flags_after_two_dashes(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(reproduce, "HELD_OUT", 5)
    monkeypatch.setattr(subprocess, "run", run)
    arguments = ["tatoeba-de-en", str(sources), "--work", str(tmp_path / "work"), "--back", "4"]
    assert reproduce.main([*arguments, "--", "--set", "updates=3"]) == 0
    (command,) = commands
    position = command.index("--back")
    assert Path(command[position + 1]).name == "tatoeba-en-de"
    assert len(Path(command[position + 2]).read_text("utf-8").splitlines()) == 4
    assert command[-2:] == ["--set", "updates=3"] and "--available" in command
    assert reproduce.main([*arguments[:-1], "0"]) == 0 and "--back" not in commands[1]
