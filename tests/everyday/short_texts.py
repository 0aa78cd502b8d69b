"""Language detection for texts of one to four words.

    python -m tests.everyday.short_texts

`short.tsv` has a kind, a language and a text on each line. "list": greetings and buttons that are among the
first words of `engine.text.languages`; "new": similar texts that were written before and not added to them;
"name": names, brands and abbreviations without a language.
"""

from collections import Counter
from pathlib import Path

from engine.api import Placement, Service, ServiceSettings

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "models"
NAMES = ("tatoeba-de-en", "tatoeba-en-de", "tatoeba-fr-en", "tatoeba-en-fr")
KINDS = ("list", "new", "name")


def open_service(budget: int | None = None) -> Service:
    """Open the shipped models of German, English and French; with a budget they are loaded only when used."""
    settings = ServiceSettings(Placement(lanes=((5, 2),)), verify=False, budget=budget)
    return Service.open([MODELS / name for name in NAMES], settings)


def outcomes(service: Service) -> dict[str, Counter[str]]:
    """Count the outcomes of detection for each kind of text.

    A text in a served language is "right" or "wrong". Another text is "named" if its language is detected,
    "refused" if another language that is not served is, and "taken" if a served language is. Names are
    "refused" or "taken".
    """
    served = {language.code for language in service.languages()}
    counts = {kind: Counter[str]() for kind in KINDS}
    for row in (HERE / "short.tsv").read_text("utf-8").splitlines():
        kind, language, text = row.split("\t")
        found = service.detect(text)
        if language in served:
            right = found.other is None and found.ranked[0][0] == language
            counts[kind]["right" if right else "wrong"] += 1
        elif found.other is None:
            counts[kind]["taken"] += 1
        else:
            counts[kind]["named" if found.other == language else "refused"] += 1
    return counts


if __name__ == "__main__":
    for kind, count in outcomes(open_service()).items():
        print(kind, *(f"{number} {outcome}" for outcome, number in sorted(count.items())), sep="\t")
