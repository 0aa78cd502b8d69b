"""The choice of backend, device and precision, on stand-ins for NVIDIA's driver and for versions of torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest
import torch

from engine import backends
from engine.api import Service, ServiceSettings
from engine.backends import BY_BUNDLE, Place, Placement, choose_place, gpus, half_precision, usual_lanes
from engine.backends.driver import read_devices
from engine.backends.gpus import find_gpu, find_gpus
from engine.errors import ConfigError
from engine.kernels import launch
from server import settings
from server.settings import ServerSettings

ROOT = Path(__file__).parents[3]
GIB = 2**30
# name, compute capability and memory of cards
T4 = "Tesla T4", (7, 5), 15 * GIB
L4 = "NVIDIA L4", (8, 9), 22 * GIB
P100 = "Tesla P100", (6, 0), 16 * GIB
RTX_5060 = "NVIDIA GeForce RTX 5060", (12, 0), 8 * GIB
CARDS = (T4, L4, ("NVIDIA A10G", (8, 6), 22 * GIB), ("NVIDIA H100", (9, 0), 80 * GIB), RTX_5060)


class Driver:
    """A stand-in for libcuda with cards."""

    def __init__(self, cards, version, code=0):
        self.cards, self.version, self.code = cards, version, code

    def cuInit(self, flags):
        return self.code

    def cuDriverGetVersion(self, out):
        out._obj.value = self.version

    def cuDeviceGetCount(self, out):
        out._obj.value = len(self.cards)

    def cuDeviceGet(self, out, number):
        out._obj.value = number

    def cuDeviceGetName(self, out, size, device):
        out.value = self.cards[device.value][0].encode()

    def cuDeviceTotalMem_v2(self, out, device):
        out._obj.value = self.cards[device.value][2]

    def cuDeviceGetAttribute(self, out, attribute, device):
        out._obj.value = self.cards[device.value][1][{75: 0, 76: 1}[attribute]]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that puts cards, a driver and a torch into this process."""
    monkeypatch.delenv("CONVOY_DEVICE", raising=False)

    def made(*cards, version=13000, code=0, torch=("2.13.0", "13.0")):
        text = f"__version__ = '{torch and torch[0]}'\ncuda: Optional[str] = {torch and torch[1]!r}\n"
        (tmp_path / "version.py").write_text(text)
        spec = torch and type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
        monkeypatch.setattr(gpus, "_has_driver", lambda: True)
        monkeypatch.setattr(gpus, "_ask_driver", lambda: read_devices(Driver(cards, version, code)))
        monkeypatch.setattr(gpus, "find_spec", lambda name: spec)
        monkeypatch.setattr(gpus, "_driver_version", lambda: "550.54.14")
        find_gpus.cache_clear()

    yield made
    find_gpus.cache_clear()


@pytest.fixture
def no_driver(monkeypatch, tmp_path):
    monkeypatch.delenv("CONVOY_DEVICE", raising=False)
    monkeypatch.setattr(gpus, "_has_driver", lambda: False)
    monkeypatch.setattr(gpus, "CONTROL_FILE", tmp_path / "nvidiactl")
    find_gpus.cache_clear()
    yield tmp_path / "nvidiactl"
    find_gpus.cache_clear()


@pytest.mark.parametrize("card", CARDS, ids=[card[0] for card in CARDS])
def test_device_auto_takes_a_gpu_that_is_there(machine, card):
    machine(card)
    place = choose_place("auto", None)
    assert (place.backend, place.device) == ("cuda", "cuda:0")
    assert place.note.startswith(f"the models run on {card[0]} (cuda:0, ")
    slots = 128 if card[2] > 18 * GIB else 64 if card[2] > 10 * GIB else 32
    assert usual_lanes(place, fast=False) == ((5, slots), (16, 8))
    placement = ServerSettings().service().placement
    assert (placement.backend, placement.device, placement.precision) == ("cuda", "cuda:0", BY_BUNDLE)
    assert placement.lanes == ((5, slots), (16, 8))
    placement.check()
    placement.check_gpus()


def test_without_a_driver_device_auto_is_the_cpu_and_nothing_is_logged(no_driver):
    assert choose_place("auto", None) == Place("onnx", "cpu", "")
    placement = ServerSettings().service().placement
    assert placement == Placement(precision=BY_BUNDLE, threads=None)
    with pytest.raises(ConfigError, match=r"no GPU for --device cuda: .*no NVIDIA driver.*--device cpu"):
        find_gpu("cuda")


def test_error_names_the_missing_driver_of_a_container_with_a_gpu(no_driver):
    no_driver.touch()
    assert "libcuda.so.1 is missing: start a container with --gpus all" in choose_place("auto", None).note


def test_looking_for_a_gpu_imports_no_torch():
    code = "import sys; from engine.backends import choose_place; choose_place('auto', None); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def run_with_card(tmp_path):
    """Return a function that runs Python code on a machine with a stand-in for the driver's library."""
    library = tmp_path / "libcuda.so.1"
    source = ROOT / "tests" / "containers" / "cuda_driver.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)

    def run(code, **variables):
        environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)} | variables
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    return run


def test_processes_that_are_forked_after_the_search_can_use_the_driver(run_with_card):
    code = "import ctypes, os; from engine.backends.gpus import find_gpus; print(find_gpus().reason); "
    code += "pid = os.fork(); pid or os._exit(ctypes.CDLL('libcuda.so.1').cuInit(0)); "
    code += "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    reason, forked = run_with_card(code, CARD="NVIDIA L4,89,22").splitlines()
    assert forked == "0"
    assert "is a build for CPUs" in reason or not reason  # of this machine's torch


def test_devices_come_from_the_library_of_the_driver(run_with_card):
    code = "from engine.backends.gpus import _ask_driver; print(_ask_driver())"
    devices = literal_eval(run_with_card(code, CARD="NVIDIA L4,89,22", CUDA="12080"))
    assert devices == {"code": 0, "version": 12080, "gpus": [["NVIDIA L4", [8, 9], 22 * GIB]]}
    assert literal_eval(run_with_card(code)) == {"code": 100}


def test_driver_without_an_answer_is_reported(machine, monkeypatch):
    machine(L4)
    monkeypatch.setattr(gpus, "_ask_driver", lambda: json.loads(""))
    assert "driver does not answer: check it with nvidia-smi" in choose_place("auto", None).note


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"code": 100},
            "driver finds no GPU: check it with nvidia-smi; in a container",
        ),
        ({"code": 999}, "driver fails with CUDA error 999: check it with nvidia-smi"),
        ({"torch": None}, "torch is not installed; run: pip install torch --index-url .*/cu130"),
        ({"torch": ("2.13.0+cpu", None)}, r"torch 2.13.0\+cpu is a build for CPUs; run: pip .*/cu130"),
        (
            {"version": 12040},
            "driver 550.54.14 supports CUDA 12.4, and torch 2.13.0 needs CUDA 13.0: install driver 580 or "
            "later, or torch for the driver: pip install .*/cu126",
        ),
        ({"version": 11040}, "driver 550.54.14 supports CUDA 11.4: install driver 525 or later"),
    ],
)
def test_an_unusable_gpu_leaves_the_cpu_with_the_reason_in_one_line(machine, arguments, reason):
    machine(L4, **arguments)
    place = choose_place("auto", None)
    assert (place.backend, place.device) == ("onnx", "cpu")
    with pytest.raises(ConfigError, match=f"no GPU for --device cuda:0: .*{reason}") as refused:
        Placement("torch", "cuda:0").check_gpus()
    assert "\n" not in str(refused.value) + place.note
    assert find_gpus().reason in place.note


def test_gpu_that_torch_does_not_find_is_refused_before_a_bundle_is_opened(machine, monkeypatch, tmp_path):
    machine(L4)
    launch._device.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for backend in ("cuda", "tensorrt"):
        settings = ServiceSettings(Placement(backend, "cuda:0", "fp16"))
        with pytest.raises(ConfigError, match="^torch finds no CUDA device: check the driver"):
            Service.open([tmp_path / "missing"], settings)


def test_torch_that_is_older_than_a_card_is_refused(machine):
    machine(RTX_5060, torch=("2.11.0", "12.6"))
    assert "is older than this GPU; run: pip install" in find_gpus().reason
    machine(RTX_5060, torch=("2.11.0", "12.8"))
    assert find_gpus().gpus


def test_cards_that_are_too_old_are_left_out(machine):
    machine(P100, L4)
    assert choose_place("auto", None).device == "cuda:1"
    with pytest.raises(ConfigError, match="Tesla P100 has compute capability 6.0, older than 7.5"):
        find_gpu("cuda:0")


def test_device_beyond_the_last_is_refused_with_the_devices_that_exist(machine):
    machine(L4)
    with pytest.raises(ConfigError, match=r"--device cuda:3: this machine has cuda:0 \(NVIDIA L4\)"):
        find_gpu("cuda:3")


def test_settings_for_the_cpu_keep_device_auto_on_the_cpu(machine):
    machine(L4)
    for given in ({"precision": "int8"}, {"shortlist": True}, {"backend": "onnx"}, {"device": "cpu"}):
        placement = ServerSettings(**given).service().placement
        assert (placement.backend, placement.device) == ("onnx", "cpu")
        placement.check()
    assert choose_place("auto", "torch").device == "cuda:0"
    assert choose_place("auto", "cuda") == Place("cuda", "cuda")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows supports one process only")
def test_server_with_gpus_has_front_ends_and_an_engine_process_for_each_device(machine, monkeypatch):
    machine(L4, L4)

    def kinds(cores=16, **given):
        monkeypatch.setattr(settings, "processors", lambda: cores)
        made = ServerSettings(**given).with_processes()
        return made.frontends, made.engines

    assert kinds() == (4, 1)
    assert kinds(2) == (1, 1)
    assert kinds(device="cuda:0,cuda:1") == (4, 2)
    assert kinds(grpc_port=0) == (1, 1)
    assert kinds(frontends=0) == (0, 1)
    assert kinds(frontends=1, engines=3) == (1, 3)
    assert kinds(workers=2) == (2, 2)
    assert kinds(device="cpu") == (0, 1)


def test_bundle_that_exceeds_fp16_is_bf16_or_fp32_where_the_gpu_has_no_bf16(machine):
    machine(T4, L4)
    assert half_precision("cuda", exceeds_fp16=False) == "fp16"
    assert half_precision("cuda:0", exceeds_fp16=True) == "fp32"
    assert half_precision("cuda:1", exceeds_fp16=True) == "bf16"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "unknown device 'gpu'; take --device cuda "),
        ("abacus", "unknown device 'abacus'; take --device cpu or cuda "),
        ("cuda:x", "unknown device 'cuda:x'; take --device cuda "),
        ("cuda,cuda:0", "names a device twice"),
    ],
)
def test_devices_with_wrong_names_are_refused(device, message):
    with pytest.raises(ConfigError, match=message):
        backends.check("cuda", device, "fp16")
