"""The pods of the rendered Helm chart (tests/deploy/chart.py): their settings, files, ports and networks."""

import re

import pytest
import yaml

from cli.main import app
from server.settings import ServerSettings
from tests.deploy.chart import CASES, CHART, manifests, notes, of_kind, pods, variables

SERVERS = [case for case in CASES if case != "ray"]


def service_links(service):
    """Return the variables that kubelet sets in a pod for a Service if `enableServiceLinks` is true."""
    name = service["metadata"]["name"].upper().replace("-", "_")
    ports = service["spec"]["ports"]
    found = {f"{name}_SERVICE_HOST": "10.96.0.12", f"{name}_SERVICE_PORT": str(ports[0]["port"])}
    found[f"{name}_PORT"] = f"tcp://10.96.0.12:{ports[0]['port']}"
    for port in ports:
        address = f"{name}_PORT_{port['port']}_TCP"
        found |= {
            f"{name}_SERVICE_PORT_{port['name'].upper()}": str(port["port"]),
            address: f"tcp://10.96.0.12:{port['port']}",
            f"{address}_PROTO": "tcp",
            f"{address}_PORT": str(port["port"]),
            f"{address}_ADDR": "10.96.0.12",
        }
    return found


def started(monkeypatch, capsys, environment):
    """Return the settings with which `convoy serve` starts in an environment, and its messages."""
    found = []
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("server.supervisor.serve", lambda settings: found.append(settings) or 0)
    for check in ("check_address", "check_writable", "served_paths"):
        monkeypatch.setattr(f"cli.serve.{check}", lambda *_: ())
    monkeypatch.setenv("CONVOY_DEVICE", "cpu")
    for fetched in ("CONVOY_FETCH", "CONVOY_LANGUAGES"):  # would start a download
        monkeypatch.delenv(fetched, raising=False)
    with pytest.raises(SystemExit) as stopped:
        app(["serve"])
    messages = capsys.readouterr().err
    assert stopped.value.code == 0, messages
    return found[0], messages


@pytest.mark.parametrize("case", SERVERS)
def test_server_starts_in_the_environment_of_its_pods(monkeypatch, capsys, case):
    (pod,) = pods(case)
    assert pod["spec"]["enableServiceLinks"] is False
    environment = service_links(of_kind(case, "Service")) | variables(pod)
    settings, messages = started(monkeypatch, capsys, environment)
    assert messages == ""
    assert (settings.host, settings.port) == ("0.0.0.0", 8000)
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    assert ports == {"http": settings.port} | ({"grpc": settings.grpc_port} if settings.grpc_port else {})


def test_links_of_a_service_called_convoy_are_no_settings(monkeypatch, capsys):
    """Manifests of others leave service links on and do not set the port."""
    for name in ("convoy", "convoy-grpc"):
        ports = [{"name": "http", "port": 80}]
        links = service_links({"metadata": {"name": name}, "spec": {"ports": ports}})
        settings, messages = started(monkeypatch, capsys, links)
        assert (settings.port, settings.grpc_port) == (8000, None)
        assert messages == ""


def test_all_pods_have_secrets_claims_and_placement():
    """In the mode of Ray too: a server without its Secret answers requests without a key."""
    (server,), (head, worker) = pods("everything"), pods("ray")
    for pod in (head, worker):
        mine, theirs = pod["spec"], server["spec"]
        for name in ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "serviceAccountName"):
            if name != "imagePullSecrets":  # the case has its own image
                assert mine[name] == theirs[name]
        assert mine["containers"][0]["envFrom"] == theirs["containers"][0]["envFrom"]
        assert {"secretRef": {"name": "convoy-keys"}} in mine["containers"][0]["envFrom"]
        volumes = {volume["name"]: volume for volume in mine["volumes"]}
        assert [volumes[volume["name"]] for volume in theirs["volumes"]] == theirs["volumes"]
        given, wanted = variables(pod), variables(server)
        assert {
            name: given[name] for name in ("CONVOY_STORE_FOLDER", "CONVOY_FETCH_OUT", "CONVOY_FETCH")
        } == {name: wanted[name] for name in ("CONVOY_STORE_FOLDER", "CONVOY_FETCH_OUT", "CONVOY_FETCH")}
        assert pod["metadata"]["annotations"]["team"] == "translation"


@pytest.mark.parametrize("case", CASES)
def test_all_pods_satisfy_the_restricted_security_level(case):
    for pod in pods(case):
        (container,) = pod["spec"]["containers"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}
        written = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/tmp", variables(pod)["XDG_CACHE_HOME"]} <= written


@pytest.mark.parametrize("case", SERVERS)
def test_pods_stop_after_the_drain_and_have_a_processor_for_each_thread(case):
    given = {
        name.removeprefix("CONVOY_").lower(): value
        for name, value in variables(pods(case)[0]).items()
        if name.startswith("CONVOY_")
    }
    settings = ServerSettings(**given)
    pod = pods(case)[0]["spec"]
    (container,) = pod["containers"]
    asleep = int(re.search(r"sleep\((\d+)\)", container["lifecycle"]["preStop"]["exec"]["command"][-1])[1])
    assert pod["terminationGracePeriodSeconds"] > asleep + settings.drain_timeout + 5
    assert settings.threads == int(container["resources"]["requests"]["cpu"])


def test_large_numbers_and_lists_reach_the_server_unchanged():
    given = variables(pods("everything")[0])
    assert given["CONVOY_FILE_LIMIT"] == "10485760"
    assert given["CONVOY_WATCH"] == "2.5"
    assert given["CONVOY_FILES"] == "false"
    assert given["CONVOY_FETCH"] == "de-en,en-de"
    assert variables(pods("scaled")[0])["CONVOY_LANGUAGES"] == "de,en,nl"


def open_ports(case):
    """Return the ports that a policy opens to every address, with their protocols."""
    rules = of_kind(case, "NetworkPolicy")["spec"]["egress"]
    return {(port["port"], port["protocol"]) for rule in rules if "to" not in rule for port in rule["ports"]}


def test_network_policy_opens_dns_and_the_ports_of_addresses_in_the_values():
    dns = {(53, "UDP"), (53, "TCP")}
    assert open_ports("default") == set()
    # models by HTTPS, traces by OTLP, Redis at its usual port
    assert open_ports("scaled") == dns | {(443, "TCP"), (4318, "TCP"), (6379, "TCP")}
    assert open_ports("everything") == dns | {(443, "TCP"), (4318, "TCP"), (7000, "TCP"), (7001, "TCP")}
    assert {"ports": [{"port": 5432}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]} in of_kind(
        "everything", "NetworkPolicy"
    )["spec"]["egress"]


def test_only_the_operator_and_ray_reach_the_dashboard_of_ray():
    rules = of_kind("ray", "NetworkPolicy")["spec"]["ingress"]
    for rule in rules:
        ports = {port["port"] for port in rule.get("ports", [])}
        if "serve" not in ports:
            assert rule["from"], "open to the whole cluster"
    (dashboard,) = [rule for rule in rules if {"port": 8265} in rule.get("ports", [])]
    assert dashboard["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "kuberay-operator"
    assert of_kind("ray", "RayService")["spec"]["rayClusterConfig"]["authOptions"] == {"mode": "token"}


def test_pods_without_a_shared_folder_keep_the_clients_apart_and_the_notes_warn():
    for case, affinity in {"default": "ClientIP", "scaled": "None", "everything": "None"}.items():
        assert of_kind(case, "Service")["spec"]["sessionAffinity"] == affinity
        shared = "CONVOY_STORE_FOLDER" in variables(pods(case)[0])
        assert shared == (affinity == "None")
        assert ("exist in one pod only" in notes(case)) == (not shared)
    for claim in ("convoy-state", "convoy-fetched"):
        (made,) = [m for m in manifests("scaled") if m["metadata"]["name"] == claim]
        assert made["spec"]["accessModes"] == ["ReadWriteMany"]
        assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    claims = {
        v["persistentVolumeClaim"]["claimName"]
        for v in pods("scaled")[0]["spec"]["volumes"]
        if len(v) > 1 and "persistentVolumeClaim" in v
    }
    assert claims == {"convoy-state", "convoy-fetched"}


@pytest.mark.parametrize("case", CASES)
def test_notes_and_ingress_name_a_service_that_exists(case):
    services = {m["metadata"]["name"]: m["spec"]["ports"] for m in manifests(case) if m["kind"] == "Service"}
    if case == "ray":  # KubeRay makes it of the port called `serve`
        services = {"convoy-serve-svc": [{"port": 8000}]}
    name, port = re.search(r"service/(\S+) 8000:(\d+)", notes(case)).groups()
    assert int(port) in {each["port"] for each in services[name]}
    for ingress in [m for m in manifests(case) if m["kind"] == "Ingress"]:
        backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend["port"]["number"] in {each["port"] for each in services[backend["name"]]}


def test_release_pushes_the_images_of_the_chart():
    workflow = (CHART.parents[2] / ".github/workflows/release.yml").read_text("utf-8")
    images = yaml.safe_load(workflow)["jobs"]["images"]["strategy"]["matrix"]["include"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["appVersion"]
    wanted = {pods(case)[0]["spec"]["containers"][0]["image"] for case in ("default", "scaled", "ray")}
    assert wanted == {f"convoy:{version}{image['suffix']}" for image in images}
    for image in images:
        text = (CHART.parents[2] / image["file"]).read_text("utf-8")
        assert not image["target"] or f" AS {image['target']}\n" in text
        assert not image["lock"] or (CHART.parents[2] / "docker" / image["lock"]).is_file()


def test_replicas_of_ray_fit_into_the_workers_with_the_fronts():
    spec = of_kind("ray", "RayService")["spec"]
    (application,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    locked = (CHART.parents[2] / "docker" / "requirements-ray.txt").read_text("utf-8")
    assert f"\nray=={spec['rayClusterConfig']['rayVersion']} " in locked
    module, _, name = application["import_path"].partition(":")
    source = (CHART.parents[2] / f"{module.replace('.', '/')}.py").read_text("utf-8")
    assert f'if name == "{name}":' in source
    (group,) = spec["rayClusterConfig"]["workerGroupSpecs"]
    given = variables(group["template"])
    assert group["replicas"] == 3
    assert given["CONVOY_RAY_MIN_REPLICAS"] == given["CONVOY_RAY_MAX_REPLICAS"] == "3"
    assert int(group["rayStartParams"]["num-cpus"]) > int(given["CONVOY_THREADS"])
    head = spec["rayClusterConfig"]["headGroupSpec"]
    assert head["rayStartParams"] == {"num-cpus": "0"}
    ports = {port["name"] for port in head["template"]["spec"]["containers"][0]["ports"]}
    assert ports == {"serve", "gcs-server", "dashboard", "client"}
