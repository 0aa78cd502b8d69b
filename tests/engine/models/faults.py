"""Faults of engine/models, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "bans are applied after the top-k",
        "engine/models/select.py",
        "best, ids = torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)",
        (
            "best, ids = torch.topk(scores, k, dim=-1)\n"
            "    best = torch.where((ids[..., None] == banned[:, :, None]).any(-1), -torch.inf, best)"
        ),
        "tests/engine/executors/test_executors.py -k torch",
    ),
    (
        "bans renormalise",
        "engine/models/select.py",
        "torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)",
        "torch.topk(scores.scatter(2, banned, -torch.inf).log_softmax(-1), k, dim=-1)",
        "tests/engine/executors/test_executors.py -k renormalise",
    ),
    (
        "the encoder's padding is not zeroed before the convolution",
        "engine/models/dynamicconv.py",
        "self.convolve(self.inputs(x) * real[:, :, None], self.conv.width // 2)",
        "self.convolve(self.inputs(x), self.conv.width // 2)",
        "tests/engine/executors/test_executors.py -k schedule",
    ),
    (
        "positions start at the wrong row of the table",
        "engine/models/layers.py",
        "self.first = config.pad + 1 if",
        "self.first = config.pad if",
        "tests/engine/models/test_golden_teacher_forced.py",
    ),
    (
        "attention logits are not scaled",
        "engine/models/layers.py",
        "q = self.q_proj(x) * self.width**-0.5",
        "q = self.q_proj(x)",
        "tests/engine/models/test_golden_teacher_forced.py",
    ),
    (
        "logits of attention with Shaw's positions are not scaled",
        "engine/models/layers.py",
        " * self.width**-0.5)",
        ")",
        "tests/export/importers/test_ctranslate2.py -k Shaw",
    ),
]
