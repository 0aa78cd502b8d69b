"""Fixtures of the tests of kernels."""

from __future__ import annotations

import pytest

from engine.errors import ConfigError
from engine.kernels.calls import Kernels
from engine.kernels.launch import Device
from engine.kernels.nvrtc import Compiler
from tests.support.cuda_kernels import NEEDS_COMPILER, NEEDS_GPU, Place


@pytest.fixture(
    params=[
        pytest.param("ascending", marks=NEEDS_COMPILER),
        pytest.param("descending", marks=NEEDS_COMPILER),
        pytest.param("gpu", marks=[NEEDS_GPU, pytest.mark.gpu]),
    ]
)
def place(request):
    if request.param == "gpu":
        return Place(Device("cuda").kernels(), "cuda")
    host = request.getfixturevalue("host")
    host.descending = request.param == "descending"
    return Place(Kernels(host), "cpu")


@pytest.fixture(scope="module")
def compiler(compiled_kernels):
    try:
        return Compiler(compiled_kernels)
    except ConfigError as error:
        pytest.skip(str(error))
