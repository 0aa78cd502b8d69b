"""Mutants of training, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "training pairs that copy their source stay",
        "training/cleaning.py",
        "if source == target and len(source.split()) >= MIN_COPIED_WORDS:",
        "if False:",
        "tests/training/test_pairs.py -k harmful_pairs_are_dropped_and_counted",
    ),
]
