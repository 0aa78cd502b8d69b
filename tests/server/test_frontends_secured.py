"""Several front ends with one certificate, over HTTP and gRPC, and complete traces."""

import shutil
import ssl
from contextlib import ExitStack

import httpx
import pytest

from server.settings import ServerSettings
from tests.server.contracts.test_grpc import grpc, texts, triton
from tests.server.test_server_process import GERMAN, free_port
from tests.server.test_telemetry import PARENT, collector
from tests.server.test_tls import make_certificate
from tests.support.processes import connections, pids, processes
from tests.support.served import bundles, until

pytest.importorskip("opentelemetry.proto", reason="needs the extra otel")

CALLS = 24  # connections, of which neither front end gets none

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(httpx client, the supervisor, gRPC's address, certificate, spans that a collector is sent)."""
    folder = tmp_path_factory.mktemp("secured")
    make_certificate(folder)
    trust, port = ssl.create_default_context(cafile=folder / "cert.pem"), free_port()
    files = {"SSL_CERTFILE": str(folder / "cert.pem"), "SSL_KEYFILE": str(folder / "key.pem")}
    given = {"MODELS": str(bundles() / "toy-de-en"), "GRPC_PORT": str(port)} | files
    with collector() as (address, spans, _), processes(2, 1, trust=trust, TRACES=address, **given) as found:
        yield *found, f"localhost:{port}", folder / "cert.pem", spans


def test_every_front_end_serves_only_https(served):
    client, _, _, certificate, _ = served
    trust = ssl.create_default_context(cafile=certificate)
    for _ in range(CALLS):
        with httpx.Client(base_url=client.base_url, verify=trust, timeout=600) as one:
            assert one.get("/health").status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{client.base_url.netloc.decode()}/health")
    with pytest.raises(httpx.TransportError):  # the client does not trust the certificate
        httpx.get(f"{client.base_url}/health")


def test_every_front_end_answers_grpc_on_one_port_with_the_same_certificate(served):
    client, running, address, certificate, _ = served
    before = connections(running)
    answers = set()
    with ExitStack() as stack:
        for _ in range(CALLS):
            one = triton.InferenceServerClient(
                address,
                ssl=True,
                root_certificates=str(certificate),
                channel_args=[("grpc.use_local_subchannel_pool", 1)],
            )
            stack.callback(one.close)
            answers.add(one.infer("toy-de-en", texts(GERMAN["q"])).as_numpy("text_output")[0].decode())
        shared = connections(running)
        assert all(shared[pid] > before[pid] for pid in pids(running)), shared
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(0.5)
    plain = client.post("/translate", json=GERMAN | {"follow_form": False})
    assert answers == {plain.json()["translatedText"]}


def test_front_ends_that_would_each_take_another_port_of_grpc_are_refused():
    with pytest.raises(ValueError, match="share one gRPC port: set --grpc-port, not to 0"):
        ServerSettings(frontends=2, grpc_port=0)


def test_a_trace_is_one_tree_though_the_model_is_in_another_process(served):
    client, running, _, _, spans = served
    trace, parent = PARENT.split("-")[1:3]
    client.post("/translate", json=GERMAN, headers={"traceparent": PARENT}).raise_for_status()
    until(lambda: any(span.trace_id.hex() == trace for span in list(spans)))
    tree = [span for span in spans if span.trace_id.hex() == trace]
    (root,) = [span for span in tree if span.parent_span_id.hex() == parent]
    stages = [span for span in tree if span is not root]
    assert [span.name for span in stages] == ["queue", "encode", "decode"]
    assert {span.parent_span_id for span in stages} == {root.span_id}
    moments = [root.start_time_unix_nano]
    for span in stages:
        moments += [span.start_time_unix_nano, span.end_time_unix_nano]
    moments.append(root.end_time_unix_nano)
    assert moments == sorted(moments)  # by the clock of the front end alone
    (steps,) = {e.value.int_value for span in stages for e in span.attributes if e.key == "convoy.steps"}
    assert steps > 0
