"""Faults that the tests must catch: each is put into a copy of the code, and some test must fail.

Run by `make test-mutants`. `python -m tests.mutants NAME...` runs some. A fault whose text is no longer found
exactly once is an error, so this list follows the code (`test_mutants.py` checks that on every run).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests import (
    document_mutants,
    limit_mutants,
    more_mutants,
    option_mutants,
    survivor_mutants,
    wider_mutants,
)

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """`old` becomes `new` in `file`; `tests` are pytest arguments of which some test must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = [
    Mutant(
        "end of sentence counts beyond the first B candidates",
        "engine/search/beam.py",
        "counts = (ends & (self._ranks < room[:, None]) & ~state.done[:n, None])",
        "counts = (ends & ~state.done[:n, None])",
        "tests/engine/search/test_beam.py",
    ),
    Mutant(
        "bans are applied after the top-k",
        "engine/models/select.py",
        "best, ids = torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)",
        "best, ids = torch.topk(scores, k, dim=-1)\n"
        "    best = torch.where((ids[..., None] == banned[:, :, None]).any(-1), -torch.inf, best)",
        "tests/engine/executors/test_executors.py -k torch",
    ),
    Mutant(
        "bans renormalise",
        "engine/models/select.py",
        "torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)",
        "torch.topk(scores.scatter(2, banned, -torch.inf).log_softmax(-1), k, dim=-1)",
        "tests/engine/executors/test_executors.py -k renormalise",
    ),
    Mutant(
        "a limited token comes once more than it may",
        "engine/search/filters.py",
        "count < most[:, None, :]",
        "count <= most[:, None, :]",
        "tests/engine/search/test_beam.py -k exhausted",
    ),
    Mutant(
        "histories are not kept up for limited tokens",
        "engine/search/kind.py",
        "return self.ngram > 0 or self.quotas > 0",
        "return self.ngram > 0",
        "tests/engine/search/test_beam.py -k more_often",
    ),
    Mutant(
        "ancestors are not moved with their slot",
        "engine/executors/history.py",
        "        self.ancestors[target] = self.ancestors[source]\n",
        "",
        "tests/engine/executors/test_executors.py -k ancestors",
    ),
    Mutant(
        "state is not moved with its slot",
        "engine/executors/history.py",
        "ring[target] = ring[source]",
        "pass",
        "tests/engine/executors/test_executors.py -k schedule",
    ),
    Mutant(
        "a reused slot keeps stale state",
        "engine/executors/history.py",
        "ring[slot] = 0.0",
        "pass",
        "tests/engine/executors/test_executors.py -k schedule",
    ),
    Mutant(
        "a moved slot keeps stale memory",
        "engine/executors/memory.py",
        "block[target] = block[source]",
        "pass",
        "tests/engine/executors/test_executors.py -k schedule",
    ),
    Mutant(
        "the window is read newest first",
        "engine/executors/history.py",
        "(age[:, None] + age) % w * beams",
        "(age[:, None] - age) % w * beams",
        "tests/engine/executors/test_executors.py -k full_forward",
    ),
    Mutant(
        "the score is divided by the length without end-of-sentence",
        "engine/search/penalties.py",
        "length = step + (step != cut)",
        "length = max(1, step)",
        "tests/engine/search/test_beam.py",
    ),
    Mutant(
        "attention that was received is not followed when beams change places",
        "engine/search/beam.py",
        "followed = take(self._slots[:n, None], attended, state.parents[:n, :])",
        "followed = attended",
        "tests/engine/search/test_beam.py -k oracle",
    ),
    Mutant(
        "end-of-sentence earns the reward of a word",
        "engine/search/penalties.py",
        "self._unworded = 0 if options.beam_rule == MARIAN else 1",
        "self._unworded = 0",
        "tests/engine/search/test_beam.py -k oracle",
    ),
    Mutant(
        "a cached column is read whoever wrote it",
        "engine/executors/history.py",
        "own = (writers[:, :, :, None] == self._beam) & past",
        "own = (writers[:, :, :, None] >= 0) & past",
        "tests/engine/executors/test_executors.py -k transformer",
    ),
    Mutant(
        "a cache forgets what it held when it grows",
        "engine/executors/history.py",
        "block[:slots, :, :shared] = blocks[name][:slots, :, :shared]",
        "pass",
        "tests/engine/executors/test_executors.py -k longer_than_a_block",
    ),
    Mutant(
        "the decoder's padding mask is dropped",
        "engine/executors/memory.py",
        "self.mask[slot] = -self.xp.inf",
        "self.mask[slot] = 0.0",
        "tests/engine/executors/test_executors.py -k schedule",
    ),
    Mutant(
        "the encoder's padding is not zeroed before the convolution",
        "engine/models/dynamicconv.py",
        "self.convolve(self.inputs(x) * real[:, :, None], self.conv.width // 2)",
        "self.convolve(self.inputs(x), self.conv.width // 2)",
        "tests/engine/executors/test_executors.py -k schedule",
    ),
    Mutant(
        "activations are quantised with one scale for the whole batch",
        "export/graphs/ops.py",
        'g.emit("ReduceMax", g.emit("Abs", x.name), g.ints(-1), keepdims=1)',
        'g.emit("ReduceMax", g.emit("Abs", x.name), keepdims=1)',
        "tests/engine/executors/test_executors.py -k neighbours",
    ),
    Mutant(
        "kernels are cut to the source before their softmax",
        "engine/kernels/reference.py",
        "    heads_of_x = x.unflatten",
        "    band = band / band.sum(-1, keepdim=True)\n    heads_of_x = x.unflatten",
        "tests/engine/models/test_golden_teacher_forced.py",
    ),
    Mutant(
        "positions start at the wrong row of the table",
        "engine/models/layers.py",
        "self.first = config.pad + 1 if",
        "self.first = config.pad if",
        "tests/engine/models/test_golden_teacher_forced.py",
    ),
    Mutant(
        "attention logits are not scaled",
        "engine/models/layers.py",
        "q = self.q_proj(x) * self.width**-0.5",
        "q = self.q_proj(x)",
        "tests/engine/models/test_golden_teacher_forced.py",
    ),
    Mutant(
        "logits of attention with Shaw's positions are not scaled",
        "engine/models/layers.py",
        " * self.width**-0.5)",
        ")",
        "tests/export/importers/test_ctranslate2.py -k Shaw",
    ),
    Mutant(
        "a cancellation is lost",
        "engine/schedule/lane.py",
        "f.request.cancelled or f.request.deadline <= now",
        "f.request.deadline <= now",
        "tests/engine/schedule/test_engine.py tests/engine/schedule/test_engine_faults.py"
        " tests/engine/schedule/test_aio.py",
    ),
    Mutant(
        "idle slots of a captured step go on where their last tenants were",
        "engine/executors/cuda/stepper.py",
        "        search.rest(self._count, n)\n",
        "",
        "tests/engine/executors/test_cuda_graph.py",
    ),
    Mutant(
        "blocks that have moved are looked for where they were",
        "engine/executors/cuda/stepper.py",
        "        if self._generation != self.executor.generation:",
        "        if False:",
        "tests/engine/executors/test_cuda_graph.py",
    ),
    Mutant(
        "a launch takes no fewer steps where the device is at work",
        "engine/executors/cuda/stepper.py",
        "self._together + 1 if idle else self._together - 1",
        "self._together + 1 if idle else self._together",
        "tests/engine/executors/test_cuda_graph.py -k a_step_fewer",
    ),
    Mutant(
        "what a kernel follows back goes wrong behind the columns that it follows at a time",
        "engine/kernels/hypotheses.cu",
        "if (column == low) now[one] = row;",
        "if (column == first) now[one] = row;",
        "tests/engine/executors/test_search_kernels.py -k follows",
    ),
    Mutant(
        "what is told next is written over what is not read yet",
        "engine/executors/cuda/changes.py",
        "self._turn = (self._turn + 1) % BUFFERS_TOLD",
        "self._turn = 0",
        "tests/engine/executors/test_placing.py",
    ),
    Mutant(
        "a packed source is convolved with the one beside it",
        "engine/kernels/dynamic_conv.cu",
        "if (t - s.left + k < own.begin || t - s.left + k >= own.end) continue;",
        "if (t - s.left + k < 0 || t - s.left + k >= s.time) continue;",
        "tests/engine/kernels/test_cuda_kernels.py -k packed_sequences",
    ),
    Mutant(
        "packed sources count their positions from the first one's",
        "engine/executors/cuda/packed.py",
        "(column - bounds[:, :1]).clamp(",
        "column.clamp(",
        "tests/engine/executors/test_placing.py -k packed",
    ),
    Mutant(
        "a packed source is copied into its slot from where the first one lies",
        "engine/executors/cuda/copies.py",
        "of.length[i, BYTES] = of.width[i, SOURCE_PITCH] = of.begin[i, SOURCE] = size",
        "of.length[i, BYTES] = of.width[i, SOURCE_PITCH] = size",
        "tests/engine/executors/test_placing.py -k placed",
    ),
    Mutant(
        "a tile of positions forgets the ones before it",
        "engine/kernels/attend_tiled.cu",
        "for (int j = 0; j < 2; j++) sums[i][j] *= factor;",
        "for (int j = 0; j < 2; j++) sums[i][j] *= 1.0f;",
        "tests/engine/kernels/test_cuda_kernels.py -k tensor_cores",
    ),
    Mutant(
        "all channels of a chunk are convolved with its first head's kernel",
        "engine/kernels/dynamic_conv_step.cu",
        "weights_of_beam + (head - lowest) * w.width;",
        "weights_of_beam;",
        "tests/engine/kernels/test_cuda_kernels.py -k step_of_the_convolution",
    ),
    Mutant(
        "slots whose taps are not shared follow the index of the tap before",
        "engine/kernels/dynamic_conv_step.cu",
        "w.ring + static_cast<Index>(rows[k]) * w.channels",
        "w.ring + static_cast<Index>(rows[max(k - 1, 0)]) * w.channels",
        "tests/engine/kernels/test_cuda_kernels.py -k fewer_threads",
    ),
    Mutant(
        "a product that looks its rows up takes the first slot's position for all",
        "engine/kernels/tiled.cuh",
        "in.positions[row / in.beams]",
        "in.positions[0]",
        "tests/engine/kernels/test_cuda_kernels.py -k looks_its_rows_up",
    ),
    Mutant(
        "a part of the vocabulary gives its best token twice",
        "engine/kernels/ranked.cuh",
        "head = --left > 0 ? *++list",
        "head = --left > 0 ? *list",
        "tests/engine/kernels/test_cuda_kernels.py -k selection_equals",
    ),
    Mutant(
        "keys are asked for ahead as if no room were left behind them",
        "engine/kernels/add_norm.cu",
        "static_cast<Index>(at / across) * memory.pitch * EACH",
        "static_cast<Index>(at / across) * memory.source * EACH",
        "tests/engine/kernels/test_cuda_kernels.py -k asks_for_all",
    ),
    Mutant(
        "a hypothesis takes its own window for that of the beam before, and does not ask for it",
        "engine/kernels/add_norm.cu",
        "*(at - static_cast<Index>(i + 1) * of.older)",
        "*(at - static_cast<Index>(i) * of.older)",
        "tests/engine/kernels/test_cuda_kernels.py -k asks_for_the_windows",
    ),
    Mutant(
        "values of a GLU of many rows gate themselves",
        "engine/kernels/glu.cu",
        "load(row + dim + at, gate);",
        "load(row + at, gate);",
        "tests/engine/kernels/test_cuda_kernels.py -k glu_of_many_rows",
    ),
    Mutant(
        "queries whose product has lost its factor are not scaled by attention",
        "engine/kernels/deferred.py",
        "return DeferredTensor(plain, tuple(x.shape), x), what.finish.factor",
        "return DeferredTensor(plain, tuple(x.shape), x), 1.0",
        "tests/engine/kernels/test_cuda_kernels.py -k norm_in_front_of_attention",
    ),
    Mutant(
        "late flags are taken for those of whoever is there now",
        "engine/schedule/lane.py",
        "for row in done if (flight := step.flights[row]).slot >= 0]",
        "for row in done if (flight := step.flights[row])]",
        "tests/engine/schedule/test_lane.py tests/engine/executors/test_cuda_graph.py",
    ),
    Mutant(
        "deadlines are ignored during decoding",
        "engine/schedule/lane.py",
        "f.request.cancelled or f.request.deadline <= now",
        "f.request.cancelled",
        "tests/engine/schedule/test_engine.py tests/engine/schedule/test_engine_faults.py"
        " tests/engine/schedule/test_aio.py",
    ),
    Mutant(
        "deadlines are ignored in the queue",
        "engine/schedule/queue.py",
        "while self._deadlines and self._deadlines[0][0] <= now:",
        "while False:",
        "tests/engine/schedule/test_queue.py tests/engine/schedule/test_engine.py"
        " tests/engine/schedule/test_engine_faults.py",
    ),
    Mutant(
        "a group is admitted in part",
        "engine/schedule/engine.py",
        "            if missing > 0 and not again:\n                wait",
        "            while missing > 0 and len(group) > 1:\n"
        "                missing -= len(group[-1].source)\n"
        "                group, lanes = group[:-1], lanes[:-1]\n"
        "            if missing > 0 and not again:\n                wait",
        "tests/engine/schedule/test_engine.py tests/engine/schedule/test_engine_faults.py",
    ),
    Mutant(
        "the time of a request's own decoding does not count",
        "engine/schedule/forecast.py",
        "own = max(self._steps(r, lane, 2.0) for r in mine)",
        "own = 0.0",
        "tests/engine/schedule/test_forecast.py",
    ),
    Mutant(
        "newcomers make groups late that let them pass",
        "engine/schedule/forecast.py",
        "        self._check_promises(lane, mine, turn, reserve, now)\n",
        "",
        "tests/engine/schedule/test_forecast.py",
    ),
    Mutant(
        "a lost device is an error like others",
        "engine/schedule/engine.py",
        "        if is_device_lost(error):\n",
        "        if False:\n",
        "tests/engine/schedule/test_engine_faults.py",
    ),
    Mutant(
        "groups wait for those before them to finish",
        "engine/schedule/queue.py",
        "            if len(group.requests) > 1:\n                groups.move_to_end(ticket)",
        "            if False:\n                groups.move_to_end(ticket)",
        "tests/engine/schedule/test_queue.py tests/engine/schedule/test_engine.py",
    ),
    Mutant(
        "queue space is not given back",
        "engine/schedule/queue.py",
        "request), request)\n        self.tokens -= len(request.source)\n",
        "request), request)\n",
        "tests/engine/schedule/test_queue.py tests/engine/schedule/test_engine.py",
    ),
    Mutant(
        "positions are wrong after a move",
        "engine/search/state.py",
        "            array[target, ...] = array[source, ...]",
        '            if field.name != "step":\n                array[target, ...] = array[source, ...]',
        "tests/engine/search/test_beam.py tests/engine/schedule/test_lane.py",
    ),
    Mutant(
        "a sample's noise depends on its slot",
        "engine/search/beam.py",
        "filters.uniform(xp, state.seed[:n, None], beam,",
        "filters.uniform(xp, state.seed[:n, None] + self._range(n)[:, None], beam,",
        "tests/engine/search/test_beam.py tests/engine/schedule/test_lane.py",
    ),
    Mutant(
        "the minimum length is one short",
        "engine/search/beam.py",
        "xp.where(step < state.shortest[:n],",
        "xp.where(step + 1 < state.shortest[:n],",
        "tests/engine/search/test_beam.py",
    ),
    Mutant(
        "the end is not forced at the longest target",
        "engine/search/beam.py",
        "state.plan[slot, longest], state.free[slot] = self.eos,",
        "state.plan[slot, longest], state.free[slot] = -1,",
        "tests/engine/search/test_beam.py",
    ),
    Mutant(
        "what is too long is cut silently",
        "engine/answers/plan.py",
        'if truncated and not (options.truncate or options.strategy == "truncate" or model.truncates):',
        "if False:",
        "tests/engine/answers/test_api.py",
    ),
    Mutant(
        "a full queue answers as an internal error",
        "server/errors.py",
        '    "overloaded": 429,\n',
        '    "overloaded": 500,\n',
        "tests/server/test_server.py",
    ),
    Mutant(
        "damaged files of a bundle are accepted",
        "engine/bundle/bundle.py",
        "check_file(path / name, entry, verify)",
        "check_file(path / name, entry, False)",
        "tests/engine/bundle/test_bundle.py",
    ),
    Mutant(
        "the shortest phrase goes first",
        "engine/text/placeables/phrases.py",
        "sorted(sizes, reverse=True)",
        "sorted(sizes)",
        "tests/engine/text/test_grammar.py -k longest",
    ),
    Mutant(
        "a phrase is found within a word",
        "engine/text/placeables/phrases.py",
        "return self._spaced and end < len(text) and",
        "return False and end < len(text) and",
        "tests/engine/text/test_grammar.py -k longest",
    ),
    Mutant(
        "a number that the answer repeats is not noticed",
        "engine/text/placeables/masking.py",
        "else present[phrase.source] != count",
        "else present[phrase.source] < count",
        "tests/engine/text/test_grammar.py -k repeats",
    ),
    Mutant(
        "of a word with an unread character only that is kept",
        "engine/text/placeables/masking.py",
        "solid = [i for i, c in enumerate(word) if c.isalnum() or c in lacking]",
        "solid = [i for i, c in enumerate(word) if c in lacking]",
        "tests/engine/text/test_grammar.py -k lacks",
    ),
    Mutant(
        "a number loses its unit",
        "engine/text/placeables/amounts.py",
        "(?:{PRODUCT}|{MIXED}|{THOUSANDS}|{GROUPS}|{PLAIN}){UNIT}(?!",
        "(?:{PRODUCT}|{MIXED}|{THOUSANDS}|{GROUPS}|{PLAIN})(?!",
        "tests/engine/text/test_grammar.py -k belongs",
    ),
    Mutant(
        "a title stays in the language of the text",
        "engine/text/placeables/names.py",
        "yield first, end, title + text[begin:end]",
        "yield first, end, text[first:end]",
        "tests/engine/text/test_counterparts.py -k crumbs",
    ),
    Mutant(
        "a date has another month in the answer",
        "engine/text/placeables/counterparts.py",
        "if name in written)",
        "if name not in written)",
        "tests/engine/text/test_counterparts.py -k dates",
    ),
    Mutant(
        "clauses are cut within quotation marks",
        "engine/text/split.py",
        "if ACROSS_CLAUSES.search(text, begin, stop):",
        "if False:",
        "tests/engine/text/test_text.py -k clauses",
    ),
    Mutant(
        "an emphasis takes the article too",
        "documents/projection.py",
        "isdisjoint(words) else np.where(self.small,",
        "isdisjoint(words) else np.where(self.small & False,",
        "tests/documents/test_spans.py -k article",
    ),
    Mutant(
        "a word of the answer touches a phrase that it did not touch",
        "engine/answers/choices.py",
        "if not any(map(GLUED_WORD.match, rest)):",
        "if True:",
        "tests/engine/text/test_masking.py -k touches",
    ),
    Mutant(
        "two spaces always part columns",
        "engine/text/split.py",
        "or (before and after):",
        "or True:",
        "tests/engine/text/test_grammar.py -k columns",
    ),
    Mutant(
        "a picture at the end is read by the model",
        "engine/text/split.py",
        "yield marks[-1].start(), end, True",
        "yield marks[-1].start(), end, False",
        "tests/engine/text/test_grammar.py -k columns",
    ),
    Mutant(
        "what streams has the marks that the end may change",
        "engine/text/form.py",
        "body = settled.rstrip().rstrip(CLOSING).rstrip()",
        "body = settled.rstrip()",
        "tests/engine/text/test_form.py -k grows",
    ),
    Mutant(
        "nouns of German are lowered",
        "engine/text/form.py",
        "and primary(languages[1]) not in CAPITAL_NOUNS\n",
        "\n",
        "tests/engine/text/test_form.py -k form",
    ),
    Mutant(
        "a language that nobody asked for is never believed",
        "engine/text/detect.py",
        "fits = best in labels or",
        "fits = True or",
        "tests/engine/text/test_detect.py",
    ),
    Mutant(
        "detection is as sure of a word as of a page",
        "engine/text/detect.py",
        "TEMPERATURE: Final = 3.0",
        "TEMPERATURE: Final = 0.01",
        "tests/engine/text/test_detect.py",
    ),
    Mutant(
        "a placeholder word is asked for without white space where it is no token",
        "engine/text/tokenizers/placeholder_words.py",
        'for around in ("", " "):',
        'for around in ("",):',
        "tests/engine/text/test_placeholder_words.py -k symbols",
    ),
    Mutant(
        "a point loses the white space on its sides",
        "documents/projection.py",
        'self._append(" " if self.glue or not self.last.isspace() else "")',
        "pass",
        "tests/documents/test_spans.py -k without_text",
    ),
    Mutant(
        "markup is put together again and again",
        "documents/formats/html.py",
        "self.markup[-1].append(raw)\n        self._fresh()",
        'self.markup[-1] = ["".join([*self.markup[-1], raw])]\n        self._fresh()',
        "tests/documents/test_spans.py tests/documents/test_hostile.py -k 'markup or read'",
    ),
    Mutant(
        "nodes are not counted",
        "documents/archive.py",
        "self.nodes += 1 + len(attributes)",
        "self.nodes += 0 * len(attributes)",
        "tests/documents/test_hostile.py -k elements",
    ),
    Mutant(
        "an archive may grow without end",
        "documents/archive.py",
        "if size > max(MIN_RATIO_BYTES, MAX_RATIO * packed):",
        "if False:",
        "tests/documents/test_hostile.py -k elements",
    ),
    Mutant(
        "a page chooses any codec",
        "documents/formats/plain.py",
        "if name not in ENCODINGS:",
        "if False:",
        "tests/documents/test_hostile.py -k codec",
    ),
    Mutant(
        "a cue keeps the line ends of another system",
        "documents/formats/subtitles.py",
        "ends = [*self.breaks[: len(lines) - 1]",
        'ends = [*["\\n"] * (len(lines) - 1)',
        "tests/documents/test_documents.py -k subtitles",
    ),
    Mutant(
        "a paragraph goes on beyond its formats",
        "documents/inline.py",
        "elif len(state.marks) >= MAX_SPANS + len(state.around):",
        "elif False:",
        "tests/documents/test_hostile.py -k more_formats",
    ),
    Mutant(
        "code in a document is translated",
        "documents/formats/docx.py",
        "if child.tag == TEXT and stays and child.text:",
        "if False:",
        "tests/documents/test_documents.py -k code",
    ),
    Mutant(
        "a task's box is prose",
        "documents/formats/markdown.py",
        'if before == ("list_item_open", "paragraph_open") else None',
        "if False else None",
        "tests/documents/test_documents.py -k boxes",
    ),
]
MORE = (more_mutants, option_mutants, limit_mutants, document_mutants, wider_mutants, survivor_mutants)
MUTANTS += [Mutant(*one) for module in MORE for one in module.MUTANTS]


def applied(mutant: Mutant, text: str) -> str:
    """Raises ValueError unless the fault fits the code exactly once."""
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name!r}: its text occurs {text.count(mutant.old)} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def fails(tests: str, tree: Path) -> bool:
    """Whether some test fails; one that hangs does. Raises RuntimeError when pytest could not run them."""
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(pytest, cwd=tree, env=environment, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run {tests}:\n{done.stdout}{done.stderr}")
    return done.returncode == 1


def caught(mutant: Mutant, tree: Path) -> bool:
    """Whether the tests notice the fault, put into `tree` for as long as they run."""
    path = tree / mutant.file
    sound = path.read_text(encoding="utf-8")
    compiled = path.suffix in (".cpp", ".h")
    path.write_text(applied(mutant, sound), encoding="utf-8")
    try:
        if compiled:
            build(tree)
        return fails(mutant.tests, tree)
    finally:
        path.write_text(sound, encoding="utf-8")
        if compiled:
            build(tree)


def build(tree: Path) -> None:
    """Build the native operators of a copy of the code."""
    subprocess.run([sys.executable, "engine/native/build.py"], cwd=tree, check=True, capture_output=True)


def main(names: list[str]) -> int:
    chosen = [m for m in MUTANTS if not names or m.name in names]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="convoy-mutants-") as folder:
        tree = Path(folder) / "project" / "convoy"  # ../shared must not be found: the clone tests itself
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "runs")
        shutil.copytree(ROOT, tree, ignore=ignored)
        sound = set[str]()
        for mutant in chosen:
            if mutant.tests not in sound and fails(mutant.tests, tree):  # a fault proves nothing to these
                print(f"{mutant.tests}: fails without any fault; mend that first")
                return 1
            sound.add(mutant.tests)
            began, found = time.monotonic(), caught(mutant, tree)
            survived += not found
            seconds = time.monotonic() - began
            print(f"{'caught  ' if found else 'SURVIVED'} {seconds:6.1f} s  {mutant.name}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} faults caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
