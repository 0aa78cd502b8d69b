"""The recipes of CONTRIBUTING.md as data: files to write, lines to add, and a proof that the result runs."""

from __future__ import annotations

from typing import NamedTuple


class Recipe(NamedTuple):
    """One recipe.

    heading: heading of the recipe in CONTRIBUTING.md.
    files: text of each new file, by path.
    lines: new lines of each existing file, by path and by the text that precedes them.
    proof: code that runs in the copy and fails if the recipe is incomplete.
    """

    heading: str
    files: dict[str, str]
    lines: dict[str, dict[str, str]]
    proof: str


ARCHITECTURE = Recipe(
    "an architecture",
    {
        "engine/models/pooling.py": '''
"""The mean of the last inputs in the place of a convolution."""

from typing import ClassVar

from engine.bundle.specs import StateSpec
from engine.models.cnn import ConvolutionEncoderLayer
from engine.models.layers import neighbours
from engine.models.residual import DecoderLayer
from engine.models.stack import EncoderDecoder


class PoolingDecoderLayer(DecoderLayer):
    def __init__(self, where):
        super().__init__(where)
        self.width = where.width
        self.spec = StateSpec(f"inputs.{where.number}", self.width - 1, where.stack.embed_dim)
        self.states = [self.spec]

    def mix(self, x):
        return neighbours(x, self.width, self.width - 1).unflatten(2, (self.width, -1)).sum(2) / self.width

    def mix_step(self, x, positions, past):
        return (past.window(self.spec).sum(2) + x) / self.width, {self.spec.name: x}


class Pooling(EncoderDecoder):
    ENCODERS: ClassVar = {"pooling": ConvolutionEncoderLayer}
    DECODERS: ClassVar = {"pooling": PoolingDecoderLayer}
'''
    },
    {
        "engine/models/__init__.py": {
            "from engine.models.model import Dropout, Model\n": "from engine.models.pooling import Pooling\n",
            "ARCHITECTURES: Final[dict[str, type[Model]]] = {\n": '    "pooling": Pooling,\n',
            "cnn           full convolutions\n": "pooling       means\n",
        },
        "engine/bundle/config.py": {
            "STACKS: Final[dict[str, type[Stack]]] = {\n": '    "pooling": StackConfig,\n',
            "MIXERS: Final[dict[str, tuple[str, ...]]] = {\n": '    "pooling": ("pooling",),\n',
        },
        "training/package.py": {"FAMILIES = {\n": '    "pooling": "Pooling (nobody, never)",\n'},
    },
    """
import torch
from engine.backends import LaneSize, Placement
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.executors.torch.executor import TorchExecutor
from engine.models import build
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Request
from export.graphs.onnx import graphs
from training.package import FAMILIES

stack = StackConfig(16, 16, 16, 2, (3, 5), mixer="pooling")
config = ModelConfig.from_dict(ModelConfig("pooling", 40, 40, stack, stack).to_dict())
torch.manual_seed(1)
model = build(config)
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.4)
made = graphs(config)
parts = {part: made[f"onnx/{part}.fp32.onnx"] for part in ("encoder", "step")}
weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
answers = []
for executor in (TorchExecutor(model, 3, 2), OnnxExecutor(open_sessions(config, parts, weights, 1), 3, 2)):
    lane = Lane(executor, lambda request, outcome: answers.append(outcome.hypotheses[0].tokens))
    lane.drain([Request([5, 9, 2], DecodeOptions(beam_size=3, max_length=12), print)])
assert answers[0] == answers[1] and answers[0], answers
assert "pooling" in FAMILIES
""",
)
BACKEND = Recipe(
    "a backend",
    {
        "engine/executors/loop.py": '''
"""Plain torch, row by row."""

import torch

from engine.executors.torch.executor import TorchExecutor


class LoopExecutor(TorchExecutor):
    def step(self, n, inputs, *, attention=False):
        return super().step(n, inputs, attention=attention)
'''
    },
    {
        "engine/executors/__init__.py": {
            "torch           plain torch, the readable reference, and its int8 variant\n": (
                "loop            row by row\n"
            ),
            "from engine.search.executor import Executor\n": """

def _open_loop(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    from engine.executors.loop import LoopExecutor
    from engine.models import load

    model = load(bundle.config, bundle.weights())
    return [LoopExecutor(model, beams, slots) for beams, slots in placement.lanes]


""",
            "OPENERS: Final[dict[str, Callable[[Bundle, Placement], Sequence[Executor]]]] = {\n": (
                '    "loop": _open_loop,\n'
            ),
        },
        "engine/backends/__init__.py": {
            "BACKENDS: Final = {\n": '    "loop": Backend("row by row", {"cpu": ("fp32",)}, "torch"),\n'
        },
    },
    """
import asyncio
from pathlib import Path
from engine.api import ConfigError, Placement, Service, ServiceSettings

placement = Placement("loop", lanes=((5, 4),))
service = Service.open([Path("models/tatoeba-de-en")], ServiceSettings(placement, verify=False))
service.start()
(result,) = asyncio.run(service.run("tatoeba-de-en", ["Guten Morgen!"]))
service.stop()
assert result.text == "Good morning!", result.text
try:
    Placement("loop", "cuda").check()
except ConfigError as error:
    assert "loop" in str(error)
""",
)
OPTION = Recipe(
    "a decoding option",
    {},
    {
        "engine/types.py": {
            '    alignment: bool = option(False, "The cross-attention of each hypothesis, in JSON.")\n': (
                '    avoided: int = option(-1, "A token that is never generated.")\n'
            ),
            "    def _choice_faults(self, limits: Limits) -> list[tuple[bool, str]]:\n        return [\n": (
                '            (not -1 <= self.avoided < limits.vocab, "avoided must be a token, or -1"),\n'
            ),
        },
        "engine/search/state.py": {
            "    seed: Any\n": "    avoided: Any\n",
            "        seed=ints(),\n": "        avoided=ints(),\n",
        },
        "engine/search/beam.py": {
            "        state.history[slot, :, 0] = self.first\n": (
                "        state.avoided[slot] = self.pad if options.avoided < 0 else options.avoided\n"
            ),
            "        banned = xp.stack([self._padding[:n, :], zeros + banned[:, None]], axis=2)\n": (
                "        avoided = zeros + state.avoided[:n, None]\n"
                "        banned = xp.concat([banned, avoided[:, :, None]], axis=2)\n"
            ),
        },
    },
    """
import os
from pathlib import Path
from engine.executors.cuda.executor import CapturedExecutor
from engine.kernels.calls import Kernels
from engine.native import library
from engine.types import DecodeOptions, InvalidRequest, Limits
from server.http.schemas import OPTION_NAMES
from tests.support.emulated import Emulation
from tests.support.fake import FakeExecutor, FakeModel
from tests.support.host_kernels import COMPILER, Host
from tests.support.lanes import decode
from tests.support.models import executor as open_executor, model

source = [5, 9, 2]
backends = {"none": FakeExecutor(FakeModel(19, seed=3), 2, 4)}
if library():  # the default on the CPU
    backends["onnx"] = open_executor("onnx-native", "glu", 4, 2)
if COMPILER:  # captured steps of CUDA, with their kernels
    work = Emulation(Host(Path(os.environ["KERNELS"])))
    backends["cuda"] = CapturedExecutor(model("glu"), (4, 2), work, Kernels(work))
for backend, executor in backends.items():
    plain = DecodeOptions(beam_size=4, max_length=10)
    (first,) = decode(executor, [(source, plain)])
    token = first.hypotheses[0].tokens[-1]
    without = DecodeOptions(beam_size=4, max_length=10, avoided=token)
    other, again = decode(executor, [(source, without), (source, plain)])
    assert token not in other.hypotheses[0].tokens, backend
    assert again.hypotheses[0].tokens == first.hypotheses[0].tokens, backend
try:
    DecodeOptions(avoided=99).check(Limits(5, 9, 9, 19))
    raise AssertionError("it was not checked")
except InvalidRequest as error:
    assert "avoided" in str(error)
assert "avoided" in OPTION_NAMES
""",
)
TEXT_OPTION = Recipe(
    "a text option",
    {},
    {
        "engine/answers/options.py": {
            '    numerals: str = ""\n': '    shout: bool = option(False, "Answer in capitals.")\n',
            "    follow_form: bool = False\n": "    shout: bool = False\n",
            "        replace_unk=replaces,\n": "        shout=options.shout,\n",
        },
        "engine/answers/choices.py": {
            "    text = sentence.formed(text, plan.options, model.languages)\n": (
                "    if plan.options.shout:\n        text = text.upper()\n"
            ),
        },
    },
    """
import asyncio
import inspect
from pathlib import Path
from cli.corpus import corpus
from cli.flags import options_of
from cli.summarize import summarize
from engine.api import Placement, Service, ServiceSettings
from server.http.schemas import SummarizeRequest, TranslateRequest, text_options, validate

for command in (corpus, summarize):
    assert "shout" in inspect.signature(command).parameters
for kind in (SummarizeRequest, TranslateRequest):
    assert kind.model_json_schema()["properties"]["shout"]["description"] == "Answer in capitals."
assert text_options(validate(TranslateRequest, {"shout": True}), 0).shout
options = options_of("translate", {"shout": True})
placement = Placement(lanes=((5, 4),))
service = Service.open([Path("models/tatoeba-de-en")], ServiceSettings(placement, verify=False))
service.start()
(loud,) = asyncio.run(service.run("tatoeba-de-en", ["Das Haus ist alt."], options))
(plain,) = asyncio.run(service.run("tatoeba-de-en", ["Das Haus ist alt."]))
service.stop()
assert (loud.text, plain.text) == ("THE HOUSE IS OLD.", "The house is old."), (loud.text, plain.text)
""",
)
CONTRACT = Recipe(
    "a contract",
    {
        "server/contracts/echo/__init__.py": '''
"""What comes in goes out."""

from typing import Final

from fastapi import APIRouter, Request

from engine.api import TooLarge
from server.contract import Contract, under
from server.http.openapi import request_of
from server.http.parameters import parameters

router = APIRouter()


@router.get("/echo/{text}")
async def echo(text: str) -> dict[str, str]:
    if len(text) > 9:
        raise TooLarge("say less")
    return {"text": text}


@router.post("/echo", openapi_extra=request_of({"words": {"type": "string"}}, ["words"], None))
async def post(request: Request) -> dict[str, str]:
    return {"text": (await parameters(request, 999))["words"]}


CONTRACT: Final = Contract(
    (router,),
    ("/echo*",),
    under("complaint"),
    open_paths=("/echo/*",),
    text_fields=frozenset({"words"}),
    single_fields=frozenset({"words"}),
    key_fields=("echo_key",),
    key_schemes=frozenset({"echo"}),
)
'''
    },
    {
        "server/contracts/__init__.py": {
            "from server.contract import Contract, longest_match, under\n": (
                "from server.contracts import echo\n"
            ),
            "CONTRACTS: Final = (": "echo.CONTRACT, ",
        }
    },
    """
from tests.support.served import server

KEY = "a-key-of-somebody"
with server(api_keys=KEY, char_limit=9) as (client, *_):
    assert client.get("/echo/hello").json() == {"text": "hello"}
    answer = client.get("/echo/hello-hello")
    assert (answer.status_code, answer.json()) == (413, {"complaint": "say less"}), answer.text
    assert client.post("/echo", json={"words": "a"}).status_code == 400
    form = {"words": ["a", "b"], "echo_key": KEY}
    assert client.post("/echo", data=form).json() == {"text": "a"}
    by_scheme = client.post("/echo", json={"words": "c"}, headers={"Authorization": f"Echo {KEY}"})
    assert by_scheme.json() == {"text": "c"}
    body = client.get("/openapi.json").json()["paths"]["/echo"]["post"]["requestBody"]["content"]
    assert body["application/json"]["schema"]["properties"]["words"]["maxLength"] == 9
""",
)
LANGUAGE = Recipe(
    "a language",
    {
        "engine/text/languages/es.py": '''
"""Spanish."""

from dataclasses import replace

from engine.text.languages.others import OTHERS
from engine.text.languages.rules import Dates, words

MONTHS = "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
RULES = replace(
    OTHERS["es"],
    conjunction="y",
    small_words=words("el la los las un una de"),
    titles={"mr": ("Sr.", "Señor"), "ms": ("Sra.", "Señora")},
    title_words=words("Sr Sra Señor Señora"),
    dates=Dates(tuple(MONTHS.split()), r"(?<!\\w)\\d{1,2} de (?:{}) de \\d{4}", "{} de {}", " de {}"),
)
'''
    },
    {
        "engine/text/languages/__init__.py": {
            "fr      French\n": "es      Spanish\n",
            "from engine.text.languages import de, en, fr\n": "from engine.text.languages import es\n",
            '    "en": en.RULES,\n': '    "es": es.RULES,\n',
        }
    },
    """
from engine.text.form import follow, small_words
from engine.text.placeables.counterparts import find_counterparts, title_before
from engine.text.placeables.names import NameRule, find_names
from engine.text.numerals import localise

pair = ("es-MX", "de")
assert title_before("El Señor Xyz", 9, pair) == (3, "Herr ")
assert title_before("Mrs. Xyz", 5, ("en", "es")) == (5, "")  # a title that Spanish lacks
(found,) = find_counterparts("el 3 de mayo de 2025, e.g. hoy", pair)
assert found == (3, 20, "3. Mai 2025")
assert [written for *_, written in find_counterparts("on May 3", ("en", "es"))] == ["3 de mayo"]
assert localise("1.234,5", "de", "es") == "1234,5"
assert follow("Sal & mar.", "Salz y Meer", ("de", "es")) == "Salz & Meer."
assert "los" in small_words("es")
names = list(find_names("Hoy el Señor Xyz llega.", NameRule("es", len, 0)))
assert names == [(13, 16)]
""",
)


RECIPES = (ARCHITECTURE, BACKEND, OPTION, TEXT_OPTION, CONTRACT, LANGUAGE)
