"""Run fairseq's DynamicConv and beam search for `peer.py`, with JSON lines as input and output.

A stand-alone script for another Python with older packages; imports only torch and fairseq, releases 0.6.1 to
0.12, by their public interface.

    echo '{...}' | python peer_process.py CHECKOUT
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import os
import random
import sys
import time
from typing import Any, Final, TextIO

_dataclass: Final = dataclasses.dataclass


def build(setup: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Build the model with random weights. Returns it, its dictionary, and facts about both."""
    import fairseq
    import torch
    from fairseq.data import Dictionary
    from fairseq.models.lightconv import LightConvModel, base_architecture

    words = Dictionary()
    while len(words) < setup["vocabulary"]:
        words.add_symbol(f"t{len(words)}")
    values: dict[str, Any] = {"share_all_embeddings": True, "weight_softmax": True}
    values |= {"max_source_positions": 1024, "max_target_positions": 1024}
    values |= dict.fromkeys(("dropout", "attention_dropout", "relu_dropout", "input_dropout"), 0.0)
    values |= {"weight_dropout": 0.0, "encoder_embed_path": None, "decoder_embed_path": None}
    for side in ("encoder", "decoder"):
        stack = setup[side]
        values |= {
            f"{side}_embed_dim": stack["embed_dim"],
            f"{side}_conv_dim": stack["conv_dim"],
            f"{side}_ffn_embed_dim": stack["ffn_dim"],
            f"{side}_attention_heads": stack["heads"],
            f"{side}_layers": len(stack["kernel_sizes"]),
            f"{side}_kernel_size_list": stack["kernel_sizes"],
            f"{side}_glu": stack["glu"],
            f"{side}_conv_type": "dynamic",
        }
    args = argparse.Namespace(**values)
    base_architecture(args)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    model = LightConvModel.build_model(args, task).to(setup["device"]).eval()
    if setup["precision"] == "fp16":
        model = model.half()
    model.make_generation_fast_()
    about = {
        "version": getattr(fairseq, "__version__", "unknown"),
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "convolution": type(model.decoder.layers[0].conv).__name__,
    }
    return model, words, about


def translate(model: Any, words: Any, batch: tuple[list[int], int], beam: int) -> None:
    """Translate one batch. Raises ValueError if an answer has another length than the given one.

    model: fairseq's model.
    words: dictionary of the model.
    batch: lengths of the sources, and the length of all answers.
    beam: number of beams of each source.
    """
    import torch
    from fairseq.sequence_generator import SequenceGenerator

    lengths, target = batch
    longest, chance = max(lengths), random.Random(len(lengths))
    rows = []
    for length in lengths:
        tokens = [chance.randrange(words.nspecial, len(words)) for _ in range(length - 1)]
        rows.append([words.pad()] * (longest - length) + [*tokens, words.eos()])
    device = next(model.parameters()).device
    inputs = {"src_tokens": torch.tensor(rows, device=device)}
    inputs["src_lengths"] = torch.tensor(lengths, device=device)
    limits = {"beam_size": beam, "max_len_a": 0, "max_len_b": target, "min_len": target}
    takes_models = "models" in inspect.signature(SequenceGenerator.__init__).parameters
    first = ([model], words) if takes_models else (words,)
    answers = SequenceGenerator(*first, **limits).generate([model], {"net_input": inputs})
    if any(len(hypotheses[0]["tokens"]) != target + 1 for hypotheses in answers):
        raise ValueError("fairseq's answer does not have the requested length")


def serve(lines: TextIO, out: TextIO) -> None:
    """Build the model of the first line, then answer each further line with the seconds it took."""
    import torch

    def wait() -> None:
        if setup["device"].startswith("cuda"):
            torch.cuda.synchronize()

    setup = json.loads(next(lines))
    with torch.no_grad():
        model, words, about = build(setup)
        _send_line(out, about)
        for line in lines:
            request = json.loads(line)
            try:
                wait()
                began = time.perf_counter()
                for batch in request["batches"]:
                    translate(model, words, batch, request["beam"])
                wait()
                _send_line(out, {"seconds": time.perf_counter() - began})
            except Exception as error:  # noqa: BLE001 - sent to the other process
                _send_line(out, {"error": f"{type(error).__name__}: {error}"})


def _send_line(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


def _lenient(cls: type | None = None, /, **options: Any) -> Any:
    """Decorate a dataclass whose instances may be defaults of other dataclasses' fields, as in Python 3.10:
    fairseq 0.12 and its hydra need that."""

    def decorate(cls: type) -> type:
        try:
            return _dataclass(cls, **{"unsafe_hash": True} | options)
        except TypeError:  # the class defines __hash__
            return _dataclass(cls, **options)

    return decorate if cls is None else decorate(cls)


def main() -> None:
    """Serve on the standard streams, with what fairseq needs of older Python and numpy."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # fairseq's own output must not mix with the answers
    try:
        import numpy as np
        import torch  # noqa: F401 - before the changes below

        dataclasses.dataclass = _lenient
        for name, kind in {"float": float, "int": int, "bool": bool, "object": object}.items():
            if name not in vars(np):  # names that numpy has removed
                setattr(np, name, kind)
        sys.path[0] = sys.argv[1]  # replaces this script's folder, whose names are no packages
        serve(sys.stdin, out)
    except Exception as error:  # noqa: BLE001
        _send_line(out, {"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
