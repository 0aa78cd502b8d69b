"""Faults that the tests must catch: each is put into a copy of the code, and some test must fail.

Run by `make test-mutants`. `python tests/mutants.py NAME...` runs some. A fault whose text is no longer found
exactly once is an error, so this list follows the code (`test_mutants.py` checks that on every run).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

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
        "engine/search.py",
        "counts = (ends & (self._ranks < room[:, None]) & ~state.done[:n, None])",
        "counts = (ends & ~state.done[:n, None])",
        "tests/test_search.py",
    ),
    Mutant(
        "bans are applied after the top-k",
        "engine/models/select.py",
        "best, ids = torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)",
        "best, ids = torch.topk(scores, k, dim=-1)\n"
        "    best = torch.where((ids[..., None] == banned[:, :, None]).any(-1), -torch.inf, best)",
        "tests/test_executors.py -k torch",
    ),
    Mutant(
        "bans renormalise",
        "engine/models/select.py",
        "torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)",
        "torch.topk(scores.scatter(2, banned, -torch.inf).log_softmax(-1), k, dim=-1)",
        "tests/test_executors.py -k renormalise",
    ),
    Mutant(
        "ancestors are not moved with their slot",
        "engine/executors/history.py",
        "        self.ancestors[target] = self.ancestors[source]\n",
        "",
        "tests/test_executors.py -k ancestors",
    ),
    Mutant(
        "state is not moved with its slot",
        "engine/executors/history.py",
        "ring[target] = ring[source]",
        "pass",
        "tests/test_executors.py -k schedule",
    ),
    Mutant(
        "a reused slot keeps stale state",
        "engine/executors/history.py",
        "ring[slot] = 0.0",
        "pass",
        "tests/test_executors.py -k schedule",
    ),
    Mutant(
        "a moved slot keeps stale memory",
        "engine/executors/memory.py",
        "block[target] = block[source]",
        "pass",
        "tests/test_executors.py -k schedule",
    ),
    Mutant(
        "the window is read newest first",
        "engine/executors/history.py",
        "(age[:, None] + age) % w * beams",
        "(age[:, None] - age) % w * beams",
        "tests/test_executors.py -k full_forward",
    ),
    Mutant(
        "the score is divided by the length without end-of-sentence",
        "engine/ended.py",
        "penalties.score(total + price, step + 1, options",
        "penalties.score(total + price, max(1, step), options",
        "tests/test_search.py",
    ),
    Mutant(
        "attention that was received is not followed when beams change places",
        "engine/search.py",
        "followed = take(self._slots[:n, None], attended, state.parents[:n, :])",
        "followed = attended",
        "tests/test_search.py -k oracle",
    ),
    Mutant(
        "end-of-sentence earns the reward of a word",
        "engine/penalties.py",
        "words = length if options.beam_rule == MARIAN else length - 1",
        "words = length",
        "tests/test_search.py -k oracle",
    ),
    Mutant(
        "a cached column is read whoever wrote it",
        "engine/executors/history.py",
        "own = (writers[:, :, :, None] == self._beam) & past",
        "own = (writers[:, :, :, None] >= 0) & past",
        "tests/test_executors.py -k transformer",
    ),
    Mutant(
        "a cache forgets what it held when it grows",
        "engine/executors/history.py",
        "block[:, :, :shared] = blocks[name][:, :, :shared]",
        "pass",
        "tests/test_executors.py -k longer_than_a_block",
    ),
    Mutant(
        "the decoder's padding mask is dropped",
        "engine/executors/memory.py",
        "self.mask[slot] = -self.xp.inf",
        "self.mask[slot] = 0.0",
        "tests/test_executors.py -k schedule",
    ),
    Mutant(
        "the encoder's padding is not zeroed before the convolution",
        "engine/models/dynamicconv.py",
        "self.convolve(self.inputs(x) * real[:, :, None], self.conv.width // 2)",
        "self.convolve(self.inputs(x), self.conv.width // 2)",
        "tests/test_executors.py -k schedule",
    ),
    Mutant(
        "activations are quantised with one scale for the whole batch",
        "export/ops.py",
        'g.emit("ReduceMax", g.emit("Abs", x.name), g.ints(-1), keepdims=1)',
        'g.emit("ReduceMax", g.emit("Abs", x.name), keepdims=1)',
        "tests/test_executors.py -k neighbours",
    ),
    Mutant(
        "kernels are cut to the source before their softmax",
        "engine/kernels/reference.py",
        "    heads_of_x = x.unflatten",
        "    band = band / band.sum(-1, keepdim=True)\n    heads_of_x = x.unflatten",
        "tests/test_golden_teacher_forced.py",
    ),
    Mutant(
        "positions start at the wrong row of the table",
        "engine/models/layers.py",
        "self.first = config.pad + 1 if",
        "self.first = config.pad if",
        "tests/test_golden_teacher_forced.py",
    ),
    Mutant(
        "attention logits are not scaled",
        "engine/models/layers.py",
        " * self.width**-0.5)",
        ")",
        "tests/test_golden_teacher_forced.py",
    ),
    Mutant(
        "a cancellation is lost",
        "engine/engine.py",
        "                if request.cancelled:\n                    lane.drop(slot)\n                elif",
        "                if",
        "tests/test_engine.py tests/test_engine_faults.py tests/test_aio.py",
    ),
    Mutant(
        "idle slots of a captured step go on where their last tenants were",
        "engine/executors/cuda_graph.py",
        "        search.rest(self._count, n)\n",
        "",
        "tests/test_cuda_graph.py",
    ),
    Mutant(
        "blocks that have moved are looked for where they were",
        "engine/executors/cuda_graph.py",
        "        if self._generation != self.executor.generation:",
        "        if False:",
        "tests/test_cuda_graph.py",
    ),
    Mutant(
        "late flags are taken for those of whoever is there now",
        "engine/lane.py",
        "            if flight.slot < 0:\n                continue\n",
        "",
        "tests/test_lane.py tests/test_cuda_graph.py",
    ),
    Mutant(
        "deadlines are ignored during decoding",
        "engine/engine.py",
        "elif request.deadline <= now:",
        "elif False:",
        "tests/test_engine.py tests/test_engine_faults.py tests/test_aio.py",
    ),
    Mutant(
        "deadlines are ignored in the queue",
        "engine/queue.py",
        "while self._deadlines and self._deadlines[0][0] <= now:",
        "while False:",
        "tests/test_queue.py tests/test_engine.py tests/test_engine_faults.py",
    ),
    Mutant(
        "a group is admitted in part",
        "engine/engine.py",
        "            if missing > 0 and not again:\n                wait",
        "            while missing > 0 and len(group) > 1:\n"
        "                missing -= len(group[-1].source)\n"
        "                group, lanes = group[:-1], lanes[:-1]\n"
        "            if missing > 0 and not again:\n                wait",
        "tests/test_engine.py tests/test_engine_faults.py",
    ),
    Mutant(
        "the time of a request's own decoding does not count",
        "engine/pace.py",
        "own = max(self._steps(r, lane, 2.0) for r in mine)",
        "own = 0.0",
        "tests/test_pace.py",
    ),
    Mutant(
        "newcomers make groups late that let them pass",
        "engine/pace.py",
        "            self._keep(lane, mine, turn, reserve, now)\n",
        "",
        "tests/test_pace.py",
    ),
    Mutant(
        "a lost device is an error like others",
        "engine/engine.py",
        "        if lost(error):\n",
        "        if False:\n",
        "tests/test_engine_faults.py",
    ),
    Mutant(
        "groups wait for those before them to finish",
        "engine/queue.py",
        "groups.move_to_end(ticket)",
        "pass",
        "tests/test_queue.py tests/test_engine.py",
    ),
    Mutant(
        "queue space is not given back",
        "engine/queue.py",
        "        self.tokens -= len(request.source)\n        return True",
        "        return True",
        "tests/test_queue.py tests/test_engine.py",
    ),
    Mutant(
        "positions are wrong after a move",
        "engine/slots.py",
        "            array[target, ...] = array[source, ...]",
        '            if field.name != "step":\n                array[target, ...] = array[source, ...]',
        "tests/test_search.py tests/test_lane.py",
    ),
    Mutant(
        "a sample's noise depends on its slot",
        "engine/search.py",
        "filters.uniform(xp, state.seed[:n, None], beam,",
        "filters.uniform(xp, state.seed[:n, None] + self._range(n)[:, None], beam,",
        "tests/test_search.py tests/test_lane.py",
    ),
    Mutant(
        "the minimum length is one short",
        "engine/search.py",
        "xp.where(step < state.shortest[:n],",
        "xp.where(step + 1 < state.shortest[:n],",
        "tests/test_search.py",
    ),
    Mutant(
        "the end is not forced at the longest target",
        "engine/search.py",
        "state.plan[slot, longest] = self.eos",
        "state.plan[slot, longest] = -1",
        "tests/test_search.py",
    ),
    Mutant(
        "what is too long is cut silently",
        "engine/plan.py",
        "if truncated and not options.truncate:",
        "if False:",
        "tests/test_api.py",
    ),
    Mutant(
        "a full queue answers as an internal error",
        "server/errors.py",
        "    Overloaded: 429,\n",
        "",
        "tests/test_server.py",
    ),
    Mutant(
        "damaged files of a bundle are accepted",
        "engine/bundle.py",
        "_check_file(path / name, entry, verify)",
        "_check_file(path / name, entry, False)",
        "tests/test_bundle.py",
    ),
]


def applied(mutant: Mutant, text: str) -> str:
    """Raises ValueError unless the fault fits the code exactly once."""
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name!r}: its text occurs {text.count(mutant.old)} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def fails(tests: str, tree: Path) -> bool:
    """Whether some test fails; one that hangs does. Raises RuntimeError when pytest could not run them."""
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
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
    path.write_text(applied(mutant, sound), encoding="utf-8")
    try:
        return fails(mutant.tests, tree)
    finally:
        path.write_text(sound, encoding="utf-8")


def main(names: list[str]) -> int:
    chosen = [m for m in MUTANTS if not names or m.name in names]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="convoy-mutants-") as folder:
        tree = Path(folder) / "project" / "convoy"  # ../shared must not be found: the clone tests itself
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "runs")
        shutil.copytree(ROOT, tree, ignore=ignored)
        for tests in sorted({m.tests for m in chosen}):  # a fault proves nothing to tests that fail anyway
            if fails(tests, tree):
                print(f"{tests}: fails without any fault; mend that first")
                return 1
        for mutant in chosen:
            began, found = time.monotonic(), caught(mutant, tree)
            survived += not found
            seconds = time.monotonic() - began
            print(f"{'caught  ' if found else 'SURVIVED'} {seconds:6.1f} s  {mutant.name}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} faults caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
