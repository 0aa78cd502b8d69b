"""Faults of engine/bundle, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "damaged files of a bundle are accepted",
        "engine/bundle/bundle.py",
        "check_file(path / name, entry, verify)",
        "check_file(path / name, entry, False)",
        "tests/engine/bundle/test_bundle.py",
    ),
    (
        "a pipe in a bundle is read",
        "engine/bundle/bundle.py",
        "if not p.is_dir() and not p.is_file()",
        "if False",
        "tests/engine/bundle/test_bundle.py -k 'pipe and more'",
    ),
    (
        "a bundle may name files outside of its folder",
        "engine/bundle/manifest.py",
        'or not {"", ".", ".."}.isdisjoint(parts)',
        'or not {"", "."}.isdisjoint(parts)',
        "tests/engine/bundle/test_bundle.py -k a_manifest_that_leaves_the_folder_is_refused",
    ),
    (
        "a folder that could not be put in its place takes the old one with it",
        "engine/bundle/folder.py",
        ("        if replaced:\n            aside.rename(path)\n        raise"),
        "        raise",
        "tests/engine/bundle/test_bundle.py -k a_failing_write_leaves_the_old_bundle",
    ),
    (
        "a bundle does not write where it cuts",
        "engine/bundle/bundle.py",
        "if value != DEFAULTS[name]}",
        "if value is True}",
        "tests/engine/bundle/test_bundle.py -k max_sentence_tokens",
    ),
    (
        "a JSON file of a huge size is read",
        "engine/bundle/json_file.py",
        "if len(data) > MAX_JSON_BYTES:",
        "if False:",
        "tests/engine/bundle/test_json_file.py",
    ),
    (
        "true is a number in strict files",
        "engine/bundle/strict.py",
        "return type(value) is int or (",
        "return isinstance(value, int) or (",
        "tests/engine/bundle/test_strict.py",
    ),
    (
        "a list of another length is read",
        "engine/bundle/strict.py",
        "if len(kinds) != len(value):",
        "if len(kinds) > len(value):",
        "tests/engine/bundle/test_strict.py",
    ),
    (
        "a shortlist is rounded down",
        "engine/bundle/shortlist.py",
        "lacking = -count % self.multiple",
        "lacking = 0",
        "tests/engine/bundle/test_shortlist.py -k rounded_up",
    ),
    (
        "a shortlist may lack the end",
        "engine/bundle/shortlist.py",
        "        and eos in always\n",
        "",
        "tests/engine/bundle/test_shortlist.py",
    ),
]
