"""Faults of cli: name, file, old text, new text, arguments of pytest (`tests.mutants`)."""

FAULTS = [
    (
        "a byte order mark is part of the first line",
        "cli/lines.py",
        "            line = line.removeprefix(codecs.BOM_UTF8)\n",
        "            pass\n",
        "tests/cli/test_cli.py -k byte_order",
    ),
    (
        "words by rule that no flag names are forgotten",
        "cli/words.py",
        "(None, {}) if reset else stored_words(opened)",
        "(None, {})",
        "tests/engine/text/test_words.py -k without_a_flag",
    ),
    (
        "a fault of several settings together prints all of them",
        "cli/serve.py",
        '    if not error["loc"]:',
        "    if False:",
        "tests/cli/test_serve.py -k refused_before_loading",
    ),
    (
        "limits of keys are shown as numbers",
        "cli/keys.py",
        'return "any" if value == -1',
        'return "any" if value == -2',
        "tests/cli/test_tables.py -k limits",
    ),
    (
        "scores of words leave the ends of lines out",
        "cli/score.py",
        "perplexity(self.score, self.words + self.lines)",
        "perplexity(self.score, self.words)",
        "tests/cli/test_tables.py -k perplexity",
    ),
    (
        "a shorter file of sources ends the scores",
        "cli/score.py",
        "if line is None or of is None:",
        "if line is None and of is None:",
        "tests/cli/test_tables.py -k own_source",
    ),
    (
        "a key without a limit has any",
        "cli/keys.py",
        'return "server\'s"',
        'return "any"',
        "tests/cli/test_tables.py -k limits",
    ),
    (
        "the loss is in natural logarithms",
        "cli/score.py",
        "-self.score / math.log(2) / self.tokens",
        "-self.score / self.tokens",
        "tests/cli/test_tables.py -k perplexity",
    ),
    (
        "a rule for names loses any quality",
        "cli/name_rules.py",
        " if rule.bleu >= none.bleu - MAX_BLEU_LOSS)",
        ")",
        "tests/engine/text/test_words.py -k loses_no_score",
    ),
]
