"""fairseq as a contender, in its own process with older packages.

Its checkout is not part of this repository; `--fairseq` and `--fairseq-python` name it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.errors import ConvoyError
from loadtest.engine.gpu_bench.clock import reason
from loadtest.engine.gpu_bench.setting import SKIPPED, PartRun, Setting

SCRIPT: Final = Path(__file__).parent / "peer_process.py"
NAME: Final = "fairseq"
Batch = tuple[list[int], int]  # number of source tokens of each sentence, and of target tokens of all


class PeerError(ConvoyError):
    """The error of fairseq's process."""


class Peer:
    """fairseq with one model of random weights on the device."""

    def __init__(self, setting: Setting, config: ModelConfig, precision: str) -> None:
        """Start the process. Raises PeerError if fairseq can't be imported or built."""
        command = [setting.fairseq_python, str(SCRIPT), str(setting.fairseq)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        sides = {"encoder": _side(config.encoder), "decoder": _side(config.decoder)}
        request = {"vocabulary": config.target_vocab, "device": setting.device, "precision": precision}
        try:
            self.about = self._ask(request | sides)
        except PeerError:
            self.close()
            raise

    def seconds(self, batches: Sequence[Batch], beam: int) -> float:
        """Return the seconds of translating all batches one after another."""
        return float(self._ask({"batches": batches, "beam": beam})["seconds"])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of fairseq's process to a request. Raises PeerError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            reply: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"error": "it ended"}')
        except (OSError, ValueError) as error:
            raise PeerError(f"fairseq's process: {error}") from error
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply


def peers(stack: ExitStack, run: PartRun, bundle: Bundle, not_run: dict[str, str]) -> dict[str, Peer]:
    """Start fairseq in fp32, and on a GPU in fp16 too; return its processes by "model, contender".

    stack: ends the processes on exit.
    run: the part that measures them.
    bundle: Convoy's model, whose sizes fairseq's model gets.
    not_run: reasons of contenders that do not start, added here.
    """
    setting, key = run.setting, f"{bundle.name}, {NAME}"
    if setting.fairseq is None:
        not_run[key] = "no checkout of fairseq was named (--fairseq PATH)"
        return {}
    by_name = {}
    for precision in ("fp32", "fp16") if setting.device.startswith("cuda") else ("fp32",):
        if f"{NAME} {precision}" in setting.skip:
            not_run[f"{key} {precision}"] = SKIPPED
            continue
        run.measuring(f"{NAME} {precision}")
        try:
            by_name[f"{key} {precision}"] = peer = Peer(setting, bundle.config, precision)
        except (PeerError, OSError) as error:
            not_run[f"{key} {precision}"] = reason(error)
            continue
        stack.callback(peer.close)
    return by_name


def _side(stack: Any) -> dict[str, Any]:
    """Return the dimensions of encoder or decoder for fairseq's process."""
    assert isinstance(stack, StackConfig)
    names = ("embed_dim", "conv_dim", "ffn_dim", "heads", "glu")
    return {name: getattr(stack, name) for name in names} | {"kernel_sizes": list(stack.kernel_sizes)}
