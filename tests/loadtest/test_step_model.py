"""What a captured step is made of, by the number of its nodes."""

from __future__ import annotations

import pytest
import torch

from loadtest.engine.gpu_bench.models import MODELS, config_of
from loadtest.engine.step_model import H200, Node, kinds, nodes, predict

SINGLE, MANY = (1, 1), (4, 64)


def test_a_step_of_the_big_dynamicconv_is_at_most_64_nodes_for_one_sentence():
    """As many as with its real sizes but for one: of a real vocabulary the selection takes a second
    kernel."""
    listed = nodes(config_of("dynamicconv-213M", tiny=True), SINGLE, 32, torch.bfloat16)
    found = kinds(listed)
    assert len(listed) + 1 <= 64
    assert (
        found["product"] == 6 * 7 + 1
    )  # of each layer: inputs, taps, output, query, attention's output, two
    assert found["begin_step"] == found["end_step"] == found["embed"] == 1
    assert sum(not node.own for node in listed) <= 2  # positions, and the clock


@pytest.mark.parametrize("name", sorted(MODELS))
def test_no_step_launches_more_of_torchs_operators_than_it_must(name):
    listed = nodes(config_of(name, tiny=True), MANY, 64, torch.bfloat16)
    assert len(listed) <= 110 if "transformer" not in name else 220


def test_a_node_takes_its_latency_or_what_its_bytes_take():
    small, large = Node("product", 1 << 10), Node("product", 1 << 30)
    assert small.seconds(H200) == pytest.approx(1.6e-6, rel=0.01)
    assert large.seconds(H200) > (1 << 30) / H200.bandwidth
    assert predict([small, large]) == small.seconds(H200) + large.seconds(H200)
