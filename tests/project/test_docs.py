"""Links of the pages and citations of docs/reference.md lead to headings and files that exist."""

from __future__ import annotations

import re

import pytest

from tests.project.rooms import PARTS, ROOT

PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
REFERENCE = ROOT / "docs" / "reference.md"
CITATION = re.compile(
    r"docs/reference\.md (\d+(?:\.\d+)?)((?:(?:,| and|,? and) \d+(?:\.\d+)?)*)(?:, items? (\d+))?"
)


def sections() -> dict[str, str]:
    """Return the text of each section of the reference by number."""
    parts = re.split(r"^#+ (\d+(?:\.\d+)?)\.? .*$", REFERENCE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def citations() -> list[tuple[str, str, str | None]]:
    """Return file, section and item of each citation of the reference."""
    cited = []
    for path in sorted(p for part in (*PARTS, "tests") for p in (ROOT / part).rglob("*.py")):
        if path.name != "test_docs.py":
            for first, more, item in CITATION.findall(re.sub(r"\s+", " ", path.read_text("utf-8"))):
                numbers = [first, *re.findall(r"\d+(?:\.\d+)?", more)]
                cited += [(str(path.relative_to(ROOT)), number, item or None) for number in numbers]
    return cited


def test_cited_sections_of_the_reference_exist():
    there, cited = sections(), citations()
    assert len({file for file, _, _ in cited}) > 20
    wrong = [(file, number) for file, number, _ in cited if number not in there]
    wrong += [
        (file, f"{number}, item {item}")
        for file, number, item in cited
        if item and not re.search(rf"^{item}\. ", there.get(number, ""), re.MULTILINE)
    ]
    assert not wrong


def test_every_mention_of_the_reference_names_a_section():
    for part in (*PARTS, "tests"):
        for path in (ROOT / part).rglob("*.py"):
            text = re.sub(r"\s+", " ", path.read_text("utf-8"))
            if path.name != "test_docs.py":
                assert len(re.findall(r"reference\.md", text)) == len(CITATION.findall(text)), path


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings in the form of GitHub."""
    titles = re.findall(
        r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page):
    text, missing = page.read_text("utf-8"), []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text("utf-8"))):
            missing.append(f"{target}#{anchor}")
    assert not missing


def test_the_nine_nouns_are_classes_in_the_named_files():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text.partition("## The nine nouns")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\| \w[\w ]* \|", table, re.MULTILINE)) == 9 + 1
    named = re.findall(r"`(\w+)` in `([\w/.]+)`", table)
    assert len(named) == 8
    for name, path in named:
        assert re.search(rf"^class {name}\b", (ROOT / "engine" / path).read_text("utf-8"), re.MULTILINE), name
