"""Mutants of export, as (name, file, old, new, pytest arguments); see `tests.mutants`."""

FAULTS = [
    (
        "activations are quantised with one scale for the whole batch",
        "export/graphs/ops.py",
        'g.emit("ReduceMax", g.emit("Abs", x.name), g.ints(-1), keepdims=1)',
        'g.emit("ReduceMax", g.emit("Abs", x.name), keepdims=1)',
        "tests/engine/executors/test_executors.py -k neighbours",
    ),
    (
        "bytes sent from the beginning are appended to the partial file",
        "export/fetching/download.py",
        "            begin = begin if part.resumed else 0\n",
        "",
        "tests/export/fetching/test_downloads.py -k sent_from_its_beginning",
    ),
    (
        "an index may come from another host",
        "export/fetching/web.py",
        "if index and urlsplit(target)",
        "if False and urlsplit(target)",
        "tests/export/test_mirror.py -k another_host",
    ),
    (
        "-128 stays in the weights of CTranslate2",
        "export/importers/ctranslate2/variables.py",
        "values = array if array.min(initial=0) > -128 else np.maximum(array, np.int8(-127))",
        "values = array",
        "tests/export/importers/test_ctranslate2_files.py -k lowest_integer",
    ),
    (
        "Marian's integers need no room for their multiplier",
        "export/importers/marian/binary.py",
        "count * dtype.itemsize + (MULTIPLIER if integers else 0)",
        "count * dtype.itemsize",
        "tests/export/importers/test_bergamot_hostile.py -k without_room",
    ),
    (
        "an unknown step after the embedding is left out",
        "export/importers/marian/options.py",
        'not in ("", "n"):',
        'not in ("", "n", "a"):',
        "tests/export/importers/test_marian_native_files.py",
    ),
    (
        "the first token of transformers counts as a new one",
        "export/importers/huggingface/generation.py",
        'rules["max_new_tokens"] - 1',
        'rules["max_new_tokens"]',
        "tests/export/importers/test_hf_layouts.py -k lengths_count",
    ),
    (
        "shards of an index may be elsewhere",
        "export/importers/huggingface/files.py",
        "isinstance(name, str) and Path(name).name == name and",
        "isinstance(name, str) and",
        "tests/export/importers/test_hf.py -k weights_in_shards",
    ),
    (
        "null in the generation settings hides the older rule",
        "export/importers/huggingface/files.py",
        "for name, value in own.items() if value is not None}}",
        "for name, value in own.items()}}",
        "tests/export/importers/test_hf_layouts.py -k null_in",
    ),
    (
        "one of two tables of another size passes",
        "export/importers/marian/native.py",
        "if rows != {size}:",
        "if size not in rows:",
        "tests/export/importers/test_marian_native_files.py -k tables_of",
    ),
]
