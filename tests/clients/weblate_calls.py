"""Calls Weblate's services LibreTranslate and DeepL for strings; prints their answers as JSON.

    python tests/clients/weblate_calls.py URL STRINGS      (with the packages of weblate.txt on its path)

STRINGS is JSON: pairs of a string and Weblate's flags. It runs in a process of its own, without a database.
"""

import json
import sys
import types


class AnyName(type):
    """A class with every name as an attribute."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyName(name, (), {"__init__": lambda *_, **__: None})


class Absent(types.ModuleType):
    """A system library for fonts or subtitles that is imported, but not used by any service."""

    def __getattr__(self, name: str) -> type:
        return AnyName.__getattr__(AnyName, name)


for name in ("cairo", "gi", "gi.repository", "aeidon", "aeidon.encodings", "aeidon.files", "aeidon.util"):
    sys.modules[name] = Absent(name)


def settings(folder: str) -> types.ModuleType:
    """Weblate's settings for tests, without a database and without apps that are not installed."""
    import os
    from importlib.util import find_spec

    os.environ |= {"CI_DATABASE": "postgresql", "CI_BASE_DIR": folder}
    from weblate import settings_test

    made = types.ModuleType("settings")
    vars(made).update(vars(settings_test))
    made.INSTALLED_APPS = [app for app in made.INSTALLED_APPS if find_spec(app.partition(".")[0])]
    made.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    return made


class Unit:
    """The fields of a string in the database of Weblate that the services read."""

    def __init__(self, source: str, flags: str) -> None:
        from weblate.checks.flags import Flags

        self.source = self.source_string = source
        self.all_flags, self.sources, self.context, self.note = Flags(flags), [source], "", ""

    def get_source_plurals(self) -> list[str]:
        return self.sources


def main(url: str, folder: str, strings: list[tuple[str, str]]) -> None:
    import os

    import django

    sys.modules["quiet_settings"] = settings(folder)
    os.environ["DJANGO_SETTINGS_MODULE"] = "quiet_settings"
    django.setup()
    from weblate.machinery.deepl import DeepLTranslation
    from weblate.machinery.libretranslate import LibreTranslateTranslation

    class LibreTranslate(LibreTranslateTranslation):
        def get_cached(self, *_):
            return None, None

    class DeepL(DeepLTranslation):
        def get_cached(self, *_):
            return None, None

        def get_glossary_id(self, *_):
            return None

    answers = {}
    for service, path, pair in ((LibreTranslate, "", ("en", "de")), (DeepL, "/v2", ("EN", "DE"))):
        asked = service({"url": url + path, "key": "x"})
        assert asked.is_supported(*pair)
        for text, flags in strings:
            found = asked._translate(*pair, [(text, Unit(text, flags))])
            answers.setdefault(service.__name__, []).append(found[text][0]["text"])
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
