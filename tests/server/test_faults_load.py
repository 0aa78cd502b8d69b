"""Overload and long runs with mixed traffic, by `make test-faults`.

CONVOY_FAULT_SECONDS (default 10) is the duration of the load: 60 for the figures of docs/reliability.md, 1800
for a soak test.
"""

import asyncio
import json
import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest

from loadtest.http.openloop import arrivals, percentile, run, summarise
from loadtest.texts import sentences
from tests.server.test_server_process import GERMAN, ROOT, process
from tests.support.load import offered
from tests.support.served import until
from tests.support.timing import MachineLag, thrice

pytestmark = pytest.mark.faults


SECONDS = float(os.environ.get("CONVOY_FAULT_SECONDS", "10"))
SHIPPED = ROOT / "models" / "tatoeba-de-en"
MEGABYTE = 1 << 20


def resident(pid):
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counted(client):
    """Return the numbers of answered translations: those within five seconds, and all."""
    text, labels = client.get("/metrics").text, 'model="tatoeba-de-en",outcome="ok",route="/translate"'
    (timely,) = re.findall(rf'convoy_request_duration_seconds_bucket{{le="5.0",{labels}}} (.*)', text)
    (all_of_them,) = re.findall(rf"convoy_request_duration_seconds_count{{{labels}}} (.*)", text)
    return float(timely), float(all_of_them)


def test_tenfold_overload_answers_accepted_requests_in_time():
    """Other requests get 429 or 503 at once, and memory stays flat. One accepted request in a hundred may be
    late (504), because a shared machine may pause for longer than any reserve."""
    deadline = 5.0
    values = {
        "min_length": 60,
        "max_length": 100,
    }  # long answers, so that this test can send ten times the capacity
    with process(MODELS=str(SHIPPED), REQUEST_TIMEOUT=str(deadline), LANES="1x8,5x16") as (client, running):

        def patient(text):
            while client.post("/translate", json=GERMAN | values | {"q": text}).status_code != 200:
                time.sleep(0.2)

        texts = sentences(5)
        with ThreadPoolExecutor(32) as pool:
            for number in (50, 100):  # the first round warms up
                began = time.monotonic()
                list(pool.map(patient, [next(texts) for _ in range(number)]))
        capacity = 100 / (time.monotonic() - began)
        began = time.monotonic()
        refused = [client.post("/translate", json={}).status_code for _ in range(100)]
        usual = (time.monotonic() - began) / len(refused)  # seconds of a refusal without other requests
        offered(client, 5 * capacity, 6.0, values)  # warms up
        before = resident(running.pid)

        def attempt():
            timely, all_of_them = counted(client)
            with MachineLag() as lag:
                answers = offered(client, 10 * capacity, SECONDS, values, seed=2)
            found = summarise(answers, 10 * capacity)
            statuses = {s: sum(a.status == s for a in answers) for s in {a.status for a in answers}}
            timely, all_of_them = (
                new - old for new, old in zip(counted(client), (timely, all_of_them), strict=True)
            )
            record = {"capacity": round(capacity, 1), "statuses": statuses, "lag": round(lag.longest, 3)}
            print(json.dumps(record | {"latency": found.latency}))
            assert set(statuses) <= {200, 429, 503, 504}
            refusal = percentile([a.latency for a in answers if a.status in (429, 503)], 50)
            faults = {
                "few answers": statuses.get(200, 0) <= 0.1 * capacity * SECONDS,  # refusals take time too
                "late answers": statuses.get(504, 0)
                > 0.2 * sum(statuses.get(status, 0) for status in (200, 504)),
                "slow refusals": refusal >= max(1.0, 100 * usual) + lag.longest,
                # measured by the server, from the arrival of a request
                "answers after the deadline": timely < 0.8 * all_of_them,
            }
            return ", ".join(fault for fault, there in faults.items() if there)

        thrice(attempt)
        after = resident(running.pid)
        print("grown MB:", (after - before) >> 20)
        assert after - before < 64 * MEGABYTE
        until(lambda: client.get("/health/ready").status_code == 200)
        assert client.post("/translate", json=GERMAN).status_code == 200


def test_mixed_traffic_keeps_memory_flat():
    """A soak test: run it with CONVOY_FAULT_SECONDS=1800. Prints the memory four times, or once a minute."""
    chance = random.Random(4)
    with process(MODELS=str(ROOT / "models"), LANES="1x8,5x16") as (client, running):
        url = str(client.base_url)

        async def ask(web, text):
            kind = chance.random()
            path, values = "/translate", {"q": text, "source": "de", "target": "en"}
            wanted, patience = 200, None
            if kind < 0.1:
                path, values = "/summarize", {"q": f"{text} {text}"}
            elif kind < 0.2:
                values |= {"stream": True}
            elif kind < 0.3:
                values |= {"source": "auto", "alternatives": 2}
            elif kind < 0.4:
                values, wanted = values | {"target": "zz"}, 400
            elif kind < 0.45:
                patience = aiohttp.ClientTimeout(total=0.02)
            try:
                async with web.post(path, json=values, timeout=patience or web.timeout) as answer:
                    await answer.read()
            except TimeoutError:
                return 200 if patience else 0, None
            return 200 if answer.status == wanted else 0, None

        def drive(seconds, seed):
            return asyncio.run(run(url, ask, sentences(seed), arrivals(8.0, seconds, seed)))

        drive(10.0, 1)
        sizes, statuses, parts = [resident(running.pid)], set[int](), max(4, round(SECONDS / 60))
        for number in range(parts):
            answers = drive(SECONDS / parts, 2 + number)
            sizes.append(resident(running.pid))
            statuses |= {a.status for a in answers}
            p99 = percentile([a.latency for a in answers], 99)
            told = {
                "after s": round((number + 1) * SECONDS / parts),
                "MB": sizes[-1] >> 20,
                "p99 s": round(p99, 2),
            }
            print(json.dumps(told | {"answers": len(answers)}), flush=True)
        print("MB:", [size >> 20 for size in sizes])
        assert statuses == {200}
        assert sizes[-1] - sizes[0] < 48 * MEGABYTE
