"""Faults of corpus: name, file, old text, new text, arguments of pytest (`tests.mutants`)."""

FAULTS = [
    (
        "one damaged file stops a job that goes on",
        "corpus/cutting.py",
        'if file.problem and job.errors == "stop":',
        "if file.problem:",
        "tests/corpus/test_hostile.py -k truncated_compressed_file",
    ),
    (
        "words of an alignment are counted from one",
        "corpus/columns.py",
        "bisect_right(sources, source[0]) - 1",
        "bisect_right(sources, source[0])",
        "tests/server/test_wider_faults.py -k nought",
    ),
    (
        "a line of white space is translated",
        "corpus/line.py",
        "if text is None or not text.strip():",
        "if not text:",
        "tests/corpus/test_formats.py -k text_is_translated_line_by_line",
    ),
    (
        "the shards of a file are not named by their number",
        "corpus/plan.py",
        "    if count == 1:\n",
        "    if count:\n",
        "tests/corpus/test_formats.py -k text_is_translated_line_by_line",
    ),
    (
        "a compressed file of another name is read as text",
        "corpus/streams.py",
        "if begin.startswith(signature) and kind != expected:",
        "if False:",
        "tests/corpus/test_hostile.py -k file_of_another_format",
    ),
    (
        "a row with too many cells is read",
        "corpus/formats/delimited.py",
        "(self._width and len(cells) != self._width)",
        "(self._width and len(cells) < self._width)",
        "tests/server/test_wider_faults.py -k cells",
    ),
    (
        "an empty object gets a comma before its first member",
        "corpus/formats/jsonl.py",
        'b"" if body == b"{" else b", "',
        'b", "',
        "tests/server/test_wider_faults.py -k empty_object",
    ),
    (
        "a report names every bad line",
        "corpus/output.py",
        "if len(tally.examples) < MAX_EXAMPLES:",
        "if True:",
        "tests/corpus/test_hostile.py -k twenty",
    ),
    (
        "who lost a lease removes a later holder's",
        "corpus/leases.py",
        ("        if self.is_held():\n            self.path"),
        ("        if True:\n            self.path"),
        "tests/corpus/test_leases.py -k swept_lease",
    ),
]
