"""Faults of server/answering, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "texts that could not be answered are charged",
        "server/answering/partly.py",
        "        await refund_texts(request, (texts[number] for number in good if faults[number]), prefix)\n",
        "",
        "tests/server/contracts/test_partly.py -k partial_answers_good_texts_and_reports_errors_of_others",
    ),
    (
        "a doubtful guess that is the target is given back",
        "server/answering/translation.py",
        'if best["confidence"] < DOUBTFUL_CONFIDENCE and',
        "if False and",
        "tests/server/contracts/test_translators_tools.py -k gives_way",
    ),
    (
        "options of texts that no model reads are not checked",
        "server/answering/translation.py",
        "        state.service.check_options(options)\n",
        "",
        "tests/server/test_openapi.py -k options_are_checked",
    ),
    (
        "the cache keeps an answer that a reload has overtaken",
        "server/answering/results.py",
        "same_bundle = state.service.route(route.name).infos == route.infos",
        "same_bundle = True",
        "tests/server/test_cache.py -k overtaken",
    ),
    (
        "any word is a region",
        "server/languages.py",
        r"(?:-(?P<region>[a-z]{2}|\d{3}))?",
        r"(?:-(?P<region>\w+))?",
        "tests/server/http/test_libretranslate.py -k regions",
    ),
    (
        "a language finds another one",
        "server/languages.py",
        "    if wanted.language != known.language:\n        return (FAR,)\n",
        "",
        "tests/server/test_languages.py -k nearest",
    ),
    (
        "detection does not map LibreTranslate's code of Brazilian Portuguese",
        "engine/text/codes.py",
        "nb:no pb:pt zt:zh",
        "nb:no zt:zh",
        "tests/server/test_languages.py -k detected",
    ),
    (
        "an EventSource that reconnects starts again",
        "server/answering/events.py",
        'if request.headers.get("last-event-id") == LAST_ID:',
        "if False:",
        "tests/server/test_setting_values.py -k event_source",
    ),
    (
        "deltas repeat what was sent",
        "server/answering/events.py",
        "return text[len(sent) :]",
        "return text",
        "tests/server/test_setting_values.py -k deltas",
    ),
]
