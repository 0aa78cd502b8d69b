"""More faults for `tests/mutants.py`: such as had once survived every test.

Each is (name, file, what is there, what the fault puts there, pytest arguments of which a test must fail).
"""

MUTANTS = [
    (
        "an answer is whole where any sentence is",
        "engine/answers/compose.py",
        'finish="length" if any(',
        'finish="length" if all(',
        "tests/engine/answers/test_api.py -k ended_by_its_limit",
    ),
    (
        "a bundle that one look misses is gone",
        "engine/shelf/folders.py",
        "for path in sorted(lacking & self._missing):",
        "for path in sorted(lacking):",
        "tests/server/test_folders.py -k one_look_misses",
    ),
    (
        "a report names every bad line",
        "corpus/output.py",
        "if len(tally.examples) < MAX_EXAMPLES:",
        "if True:",
        "tests/corpus/test_hostile.py -k twenty",
    ),
    (
        "a run's language is a format",
        "documents/formats/pptx.py",
        'NOT_FORMATS: Final = ("lang", "altLang", ',
        "NOT_FORMATS: Final = (",
        "tests/documents/test_formats.py -k language_only",
    ),
    (
        "a translated run says its old language",
        "documents/formats/pptx.py",
        'for name in ("lang", "altLang"):',
        "for name in ():",
        "tests/documents/test_formats.py -k language_only",
    ),
    (
        "OpenAI's clients are told of language models",
        "server/contracts/openai/completions.py",
        'if info.task in ("translate", "summarize")]',
        "]",
        "tests/engine/answers/test_score.py -k openais",
    ),
    (
        "a language that no model reads is a source",
        "server/contracts/deepl/languages.py",
        "if not target and language.targets:",
        "if not target:",
        "tests/server/contracts/test_deepl.py -k no_model_reads",
    ),
    (
        "texts are scored with too many sources",
        "engine/answers/score.py",
        "if sources is not None and len(sources) != len(texts):",
        "if sources is not None and len(sources) < len(texts):",
        "tests/engine/answers/test_score.py -k wrong_request",
    ),
    (
        "a bundle's own cut is not heeded",
        "engine/shelf/loading.py",
        "        max_sentence_tokens=bundle.max_sentence_tokens,\n",
        "",
        "tests/engine/answers/test_api.py -k without_sentence_ends",
    ),
    (
        "a bundle does not write where it cuts",
        "engine/bundle/bundle.py",
        "if value != USUAL[name]}",
        "if value is True}",
        "tests/engine/bundle/test_bundle.py -k says_where",
    ),
    (
        "options of texts that no model reads are not checked",
        "server/answering/translation.py",
        "        state.service.check_options(options)\n",
        "",
        "tests/server/test_openapi.py -k options_are_checked",
    ),
    (
        "of a field that comes twice the last one counts",
        "server/http/parameters.py",
        "values[name] = texts if len(texts) > 1 and name not in FIRST_OF_SEVERAL else texts[0]",
        "values[name] = texts[-1]",
        "tests/server/test_openapi.py -k comes_twice",
    ),
]
