"""fairseq as a contender of the GPU benchmark, with a stand-in for its package."""

import random
from dataclasses import replace

import pytest

from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.peer import Peer, PeerError
from loadtest.engine.gpu_bench.sentences import SizedSentence
from loadtest.engine.gpu_bench.throughput import in_batches


def test_fairseqs_batches_are_of_like_lengths_and_hold_as_many_tokens():
    chance = random.Random(1)
    work = [SizedSentence((4,) * chance.randint(2, 40), chance.randint(1, 40)) for _ in range(50)]
    batches = in_batches(work, 8)
    assert sorted(n for sources, _ in batches for n in sources) == sorted(len(s.source) for s in work)
    assert max(len(sources) for sources, _ in batches) == 8
    tokens = sum(len(sources) * target for sources, target in batches)
    assert tokens == pytest.approx(sum(s.target for s in work), rel=0.05)


# the part of fairseq's interface that the peer uses: arguments are checked, nothing is
# decoded
STAND_IN = {
    "__init__.py": """
from dataclasses import dataclass
@dataclass
class Inner:
    a: int = 1
@dataclass
class Outer:
    inner: Inner = Inner()
""",
    "data.py": """
class Dictionary:
    nspecial = 4
    def __init__(self): self.words = ["<s>", "<pad>", "</s>", "<unk>"]
    def add_symbol(self, word): self.words.append(word)
    def __len__(self): return len(self.words)
    def pad(self): return 1
    def eos(self): return 2
""",
    "models/__init__.py": "",
    "models/lightconv.py": """
import torch
def base_architecture(args): assert args.decoder_kernel_size_list == [3, 7, 15, 31, 31, 31]
class LightConvModel(torch.nn.Module):
    @classmethod
    def build_model(cls, args, task):
        model = cls()
        assert len(task.source_dictionary) == 97 and not args.encoder_glu
        model.decoder = torch.nn.Module()
        model.decoder.layers = torch.nn.ModuleList([torch.nn.Module()])
        model.decoder.layers[0].conv = torch.nn.Linear(2, 2)
        return model
    def make_generation_fast_(self): pass
""",
    "sequence_generator.py": """
class SequenceGenerator:
    def __init__(self, MODELS tgt_dict, beam_size=1, max_len_a=0, max_len_b=200, min_len=1):
        self.target, self.beam = max_len_b, beam_size
        assert min_len == max_len_b and len(tgt_dict) == 97
    def generate(self, models, sample):
        tokens = sample["net_input"]["src_tokens"]
        assert (tokens[:, -1] == 2).all() and (tokens != 1).sum(1).tolist() == [3, 5]
        return [[{"tokens": [4] * (self.target + 1)}] * self.beam for _ in tokens]
""",
}


@pytest.mark.parametrize("models_first", ["", "models,"], ids=["0.6", "0.12"])
def test_fairseq_is_asked_in_a_process_of_its_own(setting, tmp_path, models_first):
    for name, text in STAND_IN.items():
        path = tmp_path / "fairseq" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("MODELS", models_first), "utf-8")
    peer = Peer(replace(setting, fairseq=tmp_path), models.config_of(models.SIX, tiny=True), "fp32")
    assert peer.about["convolution"] == "Linear"
    assert peer.seconds([([3, 5], 4)], 2) > 0
    with pytest.raises(PeerError, match="AssertionError"):
        peer.seconds([([3, 6], 4)], 2)
    peer.close()


def test_record_without_fairseq_has_a_reason(setting, tmp_path):
    with pytest.raises(PeerError, match="No module named 'fairseq'"):
        Peer(replace(setting, fairseq=tmp_path), models.config_of(models.SIX, tiny=True), "fp32")
