"""Weblate's LibreTranslate and DeepL services, run by the code of Weblate: every field and tag is unchanged.

`make oracles` installs the package of Weblate in an environment of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api import Placement, Service, ServiceSettings
from tests.everyday.test_marks import MODELS, whole
from tests.support.served import server
from tests.support.thorough import THOROUGH

HERE = Path(__file__).parent
WEBLATE = Path(os.environ.get("CONVOY_WEBLATE", HERE.parents[1] / ".venv" / "oracles" / "weblate"))
# strings with flags of Weblate, and the parts that an answer must contain, in order
STRINGS = [
    ("Error: %s", "c-format", ["%s"]),
    ("Save %s as...", "c-format", ["%s"]),
    ("%d files deleted", "c-format", ["%d"]),
    ("Hello %(name)s, you have %(count)d new messages.", "python-format", ["%(name)s", "%(count)d"]),
    ("<strong>Save & close</strong>", "safe-html", ["<strong>", "</strong>"]),
    ('Click <a href="%s">here</a> to continue.', "c-format,safe-html", ['<a href="%s">', "</a>"]),
    ("Hello {name}!", "python-brace-format", ["{name}"]),
    ("%1$s of %2$s", "c-format", ["%1$s", "%2$s"]),
    ("Open the file {0}.", "python-brace-format", ["{0}"]),
    ("Visit https://example.org/ for help.", "", ["https://example.org/"]),
    ("Click %shere%s.", "c-format", ["%s", "%s"]),
]


@pytest.mark.skipif(not THOROUGH, reason="in the thorough run only: CONVOY_TEST_THOROUGH=1")
@pytest.mark.skipif(not WEBLATE.is_dir(), reason=f"there is no Weblate in {WEBLATE}: make oracles")
def test_both_services_receive_every_string_complete(tmp_path):
    settings = ServiceSettings(Placement(lanes=((5, 16),)), verify=False)
    models = [MODELS / "tatoeba-en-de", MODELS / "tatoeba-de-en"]
    with server(opened=lambda observe: Service.open(models, settings, observe)) as (client, _, _):
        url = str(client.base_url).rstrip("/")
        command = [sys.executable, str(HERE / "weblate_calls.py"), url, str(tmp_path)]
        strings = json.dumps([pair for *pair, _ in STRINGS])
        environment = os.environ | {"PYTHONPATH": str(WEBLATE), "PYTHONWARNINGS": "ignore"}
        done = subprocess.run([*command, strings], env=environment, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    answers = json.loads(done.stdout.splitlines()[-1])
    assert set(answers) == {"LibreTranslate", "DeepL"}
    for service_name, texts in answers.items():
        for (text, _, marks), answer in zip(STRINGS, texts, strict=True):
            assert whole(text, marks, answer), (service_name, text, answer)
