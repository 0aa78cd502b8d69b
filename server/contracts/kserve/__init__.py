"""The Open Inference Protocol (KServe, Triton): models.py, generate.py, tensors.py (parsing and writing)."""

from typing import Final

from server.contract import Contract
from server.contracts.kserve import generate, models

CONTRACT: Final = Contract(
    routers=(models.router, generate.router),
    paths=("/v2", "/v2/health/*", "/v2/models", "/v2/models/*", "/v2/repository/*"),
    statuses={"overloaded": 503, "slowdown": 503},  # its clients try again later after 503
    open_paths=("/v2", "/v2/health/*", "/v2/models", "/v2/models/*"),
    operator_paths={"/v2/repository/models/[^/]+/(un)?load": "admin_token"},
)
