"""Images and compose files, run by a Docker engine (make test-containers).

Without an engine, root on Debian may have tests/containers/engine.sh start one. There is no image registry
then: the base image is made of Debian packages, Prometheus is a Debian package, and Grafana is not started.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.server.test_server_process import free_port
from tests.support.served import until
from tests.support.thorough import THOROUGH

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests" / "containers" / "engine.sh"
GERMAN = {"q": "Wo ist der Bahnhof?", "source": "de", "target": "en"}
MAX_IMAGE_BYTES = 300_000_000  # of the image that serves; its base here has 145 before it is trimmed


def docker(*arguments, check=True, **variables):
    command = ["docker", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True)
    assert not check or done.returncode == 0, (
        f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    )
    return done.stdout.strip()


def has_compose(**variables):
    if shutil.which("docker") is None:
        return False
    found = subprocess.run(["docker", "compose", "version"], env=os.environ | variables, capture_output=True)
    return found.returncode == 0


@pytest.mark.parametrize("profile", ["", "gpu", "load"])
def test_compose_reads_its_file(profile):
    if not has_compose():
        pytest.skip("needs docker with its compose plugin")
    docker("compose", "config", "-q", COMPOSE_PROFILES=profile)
    services = set(docker("compose", "config", "--services", COMPOSE_PROFILES=profile).split())
    extra = {"gpu": {"gpu"}, "load": {"locust"}}.get(profile, set())
    assert services == {"server", "prometheus", "grafana"} | extra


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Return the environment of a Docker engine with compose, buildx and the base image."""
    if has_compose() and subprocess.run(["docker", "info"], capture_output=True).returncode == 0:
        yield {}
        return
    missing = [name for name in ("dockerd", "debootstrap", "prometheus") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"no Docker engine; root on Debian may run: {ENGINE.relative_to(ROOT)} packages")
    # a cache between runs, if it is named: the base takes two minutes
    folder = Path(os.environ.get("CONVOY_ENGINE_FOLDER") or tmp_path_factory.mktemp("engine"))
    started = subprocess.run([ENGINE, "start", folder], capture_output=True, text=True)
    try:
        if started.returncode:
            pytest.skip(f"no Docker engine can run here: {started.stderr[-1000:]}")
        variables = {"DOCKER_HOST": f"unix://{folder}/docker.sock", "DOCKER_CONFIG": f"{folder}/cfg"}
        images = {"PROMETHEUS_IMAGE": _debians_prometheus(folder, variables)}
        yield variables | images | {"LOCUST_IMAGE": _locust_of_pip(folder, variables)}
    finally:
        subprocess.run([ENGINE, "stop", folder], check=True)


def _debians_prometheus(folder, variables):
    build = folder / "prometheus"
    build.mkdir(exist_ok=True)
    for name in ("prometheus", "promtool"):
        shutil.copy(shutil.which(name), build / name)
    (build / "Dockerfile").write_text(
        "FROM python:3.11-slim-bookworm\nCOPY prometheus promtool /usr/bin/\n"
        "RUN mkdir /prometheus && chown 65534 /prometheus\nUSER 65534\nENTRYPOINT ['prometheus']\n".replace(
            "'", '"'
        )
    )
    docker("build", "-q", "-t", "convoy-test-prometheus", build, **variables)
    return "convoy-test-prometheus"


def _locust_of_pip(folder, variables):
    """Make an image with the version of locust that compose names."""
    build = folder / "locust"
    build.mkdir(exist_ok=True)
    version = re.search(r"locustio/locust:([\d.]+)", (ROOT / "docker-compose.yml").read_text("utf-8"))[1]
    (build / "Dockerfile").write_text(
        "FROM python:3.11-slim-bookworm\n"
        f"RUN python -m pip install --no-compile --only-binary :all: locust=={version}\n"
        'USER 65534\nENTRYPOINT ["/usr/local/bin/locust"]\n'
    )
    docker("build", "-q", "-t", "convoy-test-locust", build, **variables)
    return "convoy-test-locust"


@pytest.fixture(scope="module")
def stack(engine):
    """The healthy default profile: environment, client of the server, client of Prometheus."""
    ports = {"CONVOY_PUBLISH": free_port(), "PROMETHEUS_PUBLISH": free_port()}
    variables = engine | {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    variables |= {"COMPOSE_PROJECT_NAME": "convoy-test"}
    try:
        docker("compose", "build", "server", **variables)
        docker("compose", "up", "-d", "--wait", "--wait-timeout", 120, "server", "prometheus", **variables)
        with (
            httpx.Client(base_url=f"http://{variables['CONVOY_PUBLISH']}", timeout=600) as server,
            httpx.Client(base_url=f"http://{variables['PROMETHEUS_PUBLISH']}", timeout=600) as prometheus,
        ):
            yield variables, server, prometheus
    finally:
        docker("compose", "logs", "--no-color", check=False, **variables)
        docker("compose", "down", "-v", "-t", 20, **variables)
        assert docker("compose", "ps", "-aq", **variables) == ""


def container_of(variables):
    (found,) = json.loads(
        docker("inspect", docker("compose", "ps", "-q", "server", **variables), **variables)
    )
    return found


@pytest.mark.containers
def test_image_is_small_without_torch_compiler_package_manager_and_root(stack):
    variables, *_ = stack
    (image,) = json.loads(docker("image", "inspect", "convoy:cpu", **variables))
    print(f"convoy:cpu has {image['Size'] / 1e6:.0f} MB")
    assert image["Size"] < MAX_IMAGE_BYTES
    assert image["Config"]["User"] == "10001:10001"
    assert image["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    inside = (
        "import importlib.util as u, os, shutil;"
        "assert os.getuid() == 10001;"
        "assert not any(map(u.find_spec, ('torch',)));"
        "assert not any(map(shutil.which, ('g++', 'apt', 'pip', 'perl')));"
        "from engine.native import library; assert library();"
        "print('fine')"
    )
    assert docker("compose", "exec", "-T", "server", "python", "-c", inside, **variables) == "fine"


@pytest.mark.containers
def test_read_only_volume_of_libretranslate_is_served(stack, tmp_path):
    from tests.support.argos_packages import write

    variables, *_ = stack
    for number, (source, target) in enumerate((("de", "en"), ("en", "fr"), ("en", "es"))):
        write(tmp_path / "share" / "argos-translate" / "packages", source, target, seed=number)
    tmp_path.chmod(0o755)  # as a volume's root is: the server is not its owner
    port = free_port()
    mounted = ("-v", f"{tmp_path}:/models:ro", "--read-only", "--tmpfs", "/tmp")
    name = docker("run", "-d", "-p", f"127.0.0.1:{port}:8000", *mounted, "convoy:cpu", **variables)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as server:

            def ready():
                try:
                    return server.get("/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(lambda: ready() or docker("ps", "-q", "-f", f"id={name}", **variables) == "")
            assert ready(), docker("logs", name, **variables)
            listed = {entry["code"]: set(entry["targets"]) for entry in server.get("/languages").json()}
            assert listed["de"] >= {"en", "fr", "es"}
            asked = {"q": "Guten Tag.", "source": "de", "target": "fr"}
            assert server.post("/translate", json=asked).json()["translatedText"]
    finally:
        docker("rm", "-f", "-v", name, **variables)


@pytest.mark.containers
def test_container_translates_through_the_published_port(stack):
    _, server, _ = stack
    answer = server.post("/translate", json=GERMAN)
    assert answer.status_code == 200
    assert "station" in answer.json()["translatedText"].lower()


@pytest.mark.containers
def test_root_file_system_of_the_container_is_read_only(stack):
    variables, *_ = stack
    for path, writable in (
        ("/models/x", False),
        ("/usr/x", False),
        ("/home/x", False),
        ("/tmp/x", True),
    ):
        code = f"open({path!r}, 'w')"
        done = subprocess.run(
            ["docker", "compose", "exec", "-T", "server", "python", "-c", code],
            cwd=ROOT,
            env=os.environ | variables,
            capture_output=True,
        )
        assert (done.returncode == 0) == writable, path


@pytest.mark.containers
def test_prometheus_scrapes_the_container_and_has_the_rules(stack):
    _, server, prometheus = stack
    server.post("/translate", json=GERMAN)

    def scraped():
        query = {"query": 'convoy_request_duration_seconds_count{route="/translate",outcome="ok"} > 0'}
        return prometheus.get("/api/v1/query", params=query).json()["data"]["result"]

    until(scraped)
    groups = prometheus.get("/api/v1/rules").json()["data"]["groups"]
    assert "ConvoyDown" in {rule["name"] for group in groups for rule in group["rules"]}


@pytest.mark.containers
def test_users_of_locust_are_answered(stack):
    variables, *_ = stack
    address = f"127.0.0.1:{free_port()}"
    variables = variables | {"LOCUST_PUBLISH": address, "COMPOSE_PROFILES": "load"}
    docker("compose", "up", "-d", "locust", **variables)
    with httpx.Client(base_url=f"http://{address}", timeout=600) as locust:

        def asked():
            try:
                wanted = {"user_count": 10, "spawn_rate": 10, "host": "http://convoy:8000"}
                return locust.post("/swarm", data=wanted).status_code == 200
            except httpx.TransportError:
                return False

        until(asked)
        kinds = {"translate", "summarize", "batch of 32", "stream", "first words"}
        until(lambda: kinds <= {each["name"] for each in locust.get("/stats/requests").json()["stats"]})
        found = locust.get("/stats/requests").json()
        assert found["errors"] == []
        assert locust.get("/exceptions").json()["exceptions"] == []
    docker("compose", "rm", "-sf", "locust", **variables)


@pytest.mark.containers
def test_killed_server_is_restarted(stack):
    variables, server, _ = stack
    before = container_of(variables)
    kill = (  # all except the init process, which can't be killed in its namespace, and the killer
        "import os\n"
        "for p in os.listdir('/proc'):\n"
        "  if p.isdigit() and int(p) not in (1, os.getpid(), os.getppid()): os.kill(int(p), 9)"
    )
    docker("compose", "exec", "-T", "server", "python", "-c", kill, check=False, **variables)

    def back():
        found = container_of(variables)
        return (
            found["RestartCount"] == before["RestartCount"] + 1
            and found["State"]["Health"]["Status"] == "healthy"
        )

    until(back)
    assert server.post("/translate", json=GERMAN).status_code == 200


@pytest.mark.containers
def test_stopped_container_drains_and_exits_with_0(stack):
    variables, server, _ = stack
    docker("compose", "stop", "server", **variables)
    found = json.loads(docker("inspect", docker("compose", "ps", "-aq", "server", **variables), **variables))
    assert found[0]["State"]["ExitCode"] == 0
    with pytest.raises(httpx.TransportError):
        server.get("/health")
    docker("compose", "up", "-d", "--wait", "server", **variables)
    assert server.get("/health/ready").status_code == 200


# three commands: install, serve, ask
MINUTE = """
set -e
python -m venv /tmp/venv
/tmp/venv/bin/pip install --quiet /wheel/*.whl
/tmp/venv/bin/convoy serve --models /tmp/models --fetch de-en --fetch-mirror /mirror &
python - <<'PY'
import json, time, urllib.error, urllib.request
body = json.dumps({"q": "Wo ist der Bahnhof?", "source": "de", "target": "en"}).encode()
asked = urllib.request.Request("http://127.0.0.1:8000/translate", body, {"content-type": "application/json"})
while True:
    try:
        print(json.load(urllib.request.urlopen(asked))["translatedText"])
        break
    except urllib.error.URLError:
        time.sleep(0.1)
PY
"""


@pytest.mark.containers
def test_clean_machine_answers_after_pip_install(engine, tmp_path):
    """Takes less than a minute on an idle machine, and prints the seconds. Needs an index of packages."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    shutil.copytree(ROOT / "models" / "tatoeba-de-en", tmp_path / "mirror" / "tatoeba-de-en")
    subprocess.run([sys.executable, "-m", "cli.main", "package", tmp_path / "mirror"], cwd=ROOT, check=True)
    began = time.monotonic()
    mounts = ("-v", f"{tmp_path}/wheel:/wheel:ro", "-v", f"{tmp_path}/mirror:/mirror:ro")
    said = docker(
        "run", "--rm", "--network", "host", *mounts, "python:3.11-slim-bookworm", "sh", "-c", MINUTE, **engine
    )
    print(f"by pip: {time.monotonic() - began:.0f} s from nothing to {said.splitlines()[-1]!r}")
    assert "station" in said


@pytest.mark.containers
def test_image_answers_after_one_command(stack):
    variables, *_ = stack
    answer_by_image("convoy:cpu", 60, variables)


def answer_by_image(image, patience, variables):
    """Print the first answer of a container of an image, and the seconds it took."""
    port, began = free_port(), time.monotonic()
    name = docker(
        "run",
        "-d",
        "--read-only",
        "--tmpfs",
        "/tmp",
        "-p",
        f"127.0.0.1:{port}:8000",
        image,
        **variables,
    )
    try:

        def answered():
            try:
                return httpx.post(f"http://127.0.0.1:{port}/translate", json=GERMAN).status_code == 200
            except httpx.TransportError:
                return False

        until(answered, patience)
        print(f"by image: {time.monotonic() - began:.1f} s")
        inside = (
            "import platform; from engine.native import library; assert library(); print(platform.machine())"
        )
        return docker("exec", name, "python", "-c", inside, **variables)
    finally:
        docker("rm", "-f", "-v", name, **variables)


EMULATED = Path("/proc/sys/fs/binfmt_misc")


@pytest.mark.containers
@pytest.mark.skipif(not THOROUGH, reason="minutes of emulation: CONVOY_TEST_THOROUGH=1")
def test_arm64_image_answers_under_an_emulator(tmp_path_factory):
    """Needs QEMU 8 or later: ONNX Runtime does not start under the version of Debian 12."""
    if not any("aarch64" in file.read_text() for file in EMULATED.glob("qemu*")):
        pytest.skip("binfmt_misc has no emulator of aarch64")
    folder = Path(os.environ.get("CONVOY_ENGINE_FOLDER") or tmp_path_factory.mktemp("engine")) / "arm64"
    variables = {"DOCKER_HOST": f"unix://{folder}/docker.sock", "DOCKER_CONFIG": f"{folder}/cfg"}
    try:
        subprocess.run([ENGINE, "start", folder], env=os.environ | {"ARCH": "arm64"}, check=True)
        docker("buildx", "build", "-f", "docker/Dockerfile", "-t", "convoy:arm64", "--load", ".", **variables)
        size = int(docker("image", "inspect", "-f", "{{.Size}}", "convoy:arm64", **variables))
        assert size < MAX_IMAGE_BYTES
        assert answer_by_image("convoy:arm64", 300, variables) == "aarch64"
    finally:
        subprocess.run([ENGINE, "stop", folder], check=True)
