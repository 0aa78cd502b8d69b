"""The GPU image with a build of torch for CPUs in place of CUDA's: its start with and without a driver.

Without a GPU the packages of CUDA would be gigabytes that nothing uses.
"""

import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256

import pytest

from tests.deploy.test_containers import ROOT, docker, engine  # noqa: F401
from tests.support.served import until
from tests.support.thorough import THOROUGH

pytestmark = [
    pytest.mark.containers,
    pytest.mark.skipif(not THOROUGH, reason="minutes to build an image: CONVOY_TEST_THOROUGH=1"),
]
LOCKED = "docker/requirements-gpu.txt"
OF_CUDA = re.compile(r"nvidia-(?!cuda-nvrtc|ml-py)|cuda-|triton")
BASE = """FROM python:3.11-slim-bookworm
COPY *.whl /wheels/
RUN printf 'find-links = /wheels\\n' >> /etc/pip.conf
"""
# name, compute capability and GiB
CARDS = (
    "Tesla T4,75,15",
    "NVIDIA A10G,86,22",
    "NVIDIA L4,89,22",
    "NVIDIA GeForce RTX 4090,89,24",
    "NVIDIA H100 80GB HBM3,90,80",
    "NVIDIA B200,100,180",
    "NVIDIA GeForce RTX 5060,120,8",
)
CARD = "NVIDIA L4,89,22"
COMPILE = """
from engine.kernels.nvrtc import SHIPPED, Compiler, Unit, default_cache
compiler, unit = Compiler(default_cache()), Unit("glu.cu", (), "sm_103")
found = compiler.cached(unit)
compiler.compile(unit.file, {}, unit.target)
print(found, sum(1 for path in SHIPPED.glob("*.cubin") if path.read_bytes()))
"""


@pytest.fixture(scope="module")
def image(engine, tmp_path_factory):  # noqa: F811
    """Build the image with the locked packages except CUDA's; return its name."""
    folder = tmp_path_factory.mktemp("gpu-image")
    base, context = folder / "base", folder / "context"
    entries = re.split(r"\n(?=[a-zA-Z0-9])", (ROOT / LOCKED).read_text("utf-8"))
    (torch,) = (entry.split(" ")[0] for entry in entries if entry.startswith("torch=="))
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", base, f"{torch}+cpu"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("pip finds no build of torch for CPUs")
    (base / "Dockerfile").write_text(BASE)
    docker("build", "-q", "-t", "convoy-test-torch", base, **engine)
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True).stdout.split(b"\0"):
        if name and (ROOT / os.fsdecode(name)).is_file():
            (context / os.fsdecode(name)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / os.fsdecode(name), context / os.fsdecode(name))
    (wheel,) = base.glob("*.whl")
    hashed = f"{torch} \\\n    --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}"
    kept = [hashed if e.startswith("torch==") else e for e in entries if not OF_CUDA.match(e)]
    (context / LOCKED).write_text("\n".join(kept) + "\n")
    arguments = ("--build-arg", "BASE=convoy-test-torch", "--build-arg", "ARCHITECTURES=75")
    docker(
        "build",
        "-q",
        *arguments,
        "-f",
        context / "docker/Dockerfile.gpu",
        "-t",
        "convoy:gpu-test",
        context,
        **engine,
    )
    size = int(docker("image", "inspect", "-f", "{{.Size}}", "convoy:gpu-test", **engine))
    print(f"convoy:gpu-test has {(size - wheel.stat().st_size) / 1e6:.0f} MB without the packages of CUDA")
    return "convoy:gpu-test"


@pytest.fixture(scope="module")
def driver(image, engine, tmp_path_factory):  # noqa: F811
    """Return options that mount a stand-in for NVIDIA's driver, without and with a torch that claims CUDA."""
    folder = tmp_path_factory.mktemp("driver")
    source = ROOT / "tests" / "containers" / "cuda_driver.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    where = "from importlib.util import find_spec as f; print(f('torch').submodule_search_locations[0])"
    version = docker("run", "--rm", "--entrypoint", "python", image, "-c", where, **engine) + "/version.py"
    text = docker("run", "--rm", "--entrypoint", "cat", image, version, **engine)
    (folder / "version.py").write_text(re.sub(r"(?m)^cuda\b.*", "cuda: Optional[str] = '13.0'", text) + "\n")
    library = ("-v", f"{folder}/libcuda.so.1:/usr/lib/x86_64-linux-gnu/libcuda.so.1:ro")
    return library, (*library, "-v", f"{folder}/version.py:{version}:ro")


def error_of(options, image, variables, *arguments):
    """Return the error lines of a server that ends at its start."""
    command = ["docker", "run", "--rm", *options, image, "serve", *arguments]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stdout + done.stderr
    return [line for line in done.stderr.splitlines() if "error" in line]


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (
            "cuda",
            "no GPU for --device cuda: this machine has no NVIDIA driver; in a container: start it with",
        ),
        ("cuda:0", "no GPU for --device cuda:0: this machine has no NVIDIA driver"),
        ("gpu", "unknown device 'gpu'; take --device cuda "),
    ],
)
def test_image_without_a_driver_ends_with_the_reason(image, engine, device, reason):  # noqa: F811
    (line,) = error_of((), image, engine, "--device", device)
    assert line.startswith(f"convoy: error: {reason}")


def test_image_without_a_driver_serves_on_the_cpu_if_the_device_is_auto(image, engine):  # noqa: F811
    name = docker("run", "-d", "-e", "CONVOY_DEVICE=auto", image, **engine)
    try:
        until(lambda: docker("inspect", "-f", "{{.State.Health.Status}}", name, **engine) == "healthy", 300)
    finally:
        docker("rm", "-f", "-v", name, **engine)


def test_image_ends_where_a_device_is_needed_on_each_card(image, engine, driver):  # noqa: F811
    library, both = driver
    for card in CARDS:
        (line,) = error_of((*both, "-e", f"CARD={card}"), image, engine)
        assert line == "convoy: error: torch finds no CUDA device: check the driver with nvidia-smi"
    (line,) = error_of((*library, "-e", f"CARD={CARD}"), image, engine)
    assert "is a build for CPUs; run: pip install" in line
    (line,) = error_of((*both, "-e", f"CARD={CARD}", "-e", "CUDA=12040"), image, engine)
    assert "install driver 580 or later" in line
    (line,) = error_of((*both, "-e", "CARD=Tesla P100,60,16"), image, engine)
    assert "Tesla P100 has compute capability 6.0, older than 7.5" in line
    (line,) = error_of(both, image, engine)
    assert "NVIDIA's driver finds no GPU" in line


def test_compiled_kernels_outlive_the_container(image, engine):  # noqa: F811
    docker("volume", "create", "convoy-test-cache", **engine)
    try:
        run = (
            "run",
            "--rm",
            "-v",
            "convoy-test-cache:/cache",
            "--entrypoint",
            "python",
            image,
            "-c",
            COMPILE,
        )
        first, second = (docker(*run, **engine).split() for _ in range(2))
    finally:
        docker("volume", "rm", "convoy-test-cache", **engine)
    assert first[0] == "None" and second[0].startswith("/cache/convoy/kernels/")
    assert int(first[1]) > 40  # for a compute capability of 7.5
