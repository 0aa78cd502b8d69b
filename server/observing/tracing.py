"""Traces for OpenTelemetry: one span for a request, with inner spans for queue, encode and decode.

The engine measures each sentence anyway, so the spans are written when the request has ended.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.types import Scope

from engine.api import ConfigError
from server.observing.context import FAILED, ModelWork, RequestContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)

NANOSECONDS = 1_000_000_000


class Tracing:
    """Writes the spans of requests to a provider of OpenTelemetry."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("convoy")

    @classmethod
    def to(cls, endpoint: str) -> Tracing:
        """Return a Tracing that sends spans by OTLP over HTTP to a collector in the background.

        endpoint: address of the collector, such as http://localhost:4318.

        Raises ConfigError without the extra `otel`.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"traces need OpenTelemetry ({error}); run: pip install 'convoy-server[otel]'"
            ) from None
        provider = TracerProvider(resource=Resource.create({"service.name": "convoy"}))
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    def write(self, scope: Scope, context: RequestContext, route: str, status: int) -> None:
        """Write the spans of a request that has just ended, within the trace of its `traceparent`.

        scope: scope of the request.
        context: context of the request.
        route: pattern of the path.
        status: status of the answer, 0 without an answer.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # the headers traceparent and tracestate
        carrier = {
            k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k.startswith(b"trace")
        }
        span = self._tracer.start_span(
            f"{scope['method']} {route}",
            TraceContextTextMapPropagator().extract(carrier),
            SpanKind.SERVER,
            {
                "http.request.method": scope["method"],
                "http.route": route,
                "http.response.status_code": status,
                "convoy.request_id": context.id,
                "convoy.outcome": (outcome := context.outcome_of(status)),
            },
            start_time=context.began,
        )
        if outcome == FAILED:
            span.set_status(Status(StatusCode.ERROR))
        for work in context.work:
            _write_stages(self._tracer, set_span_in_context(span), work)
        span.end()

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def _write_stages(tracer: Tracer, context: object, work: ModelWork) -> None:
    """Write spans for the stages of a request's slowest sentence, one after the other, up to its answer."""
    stages = {"queue": work.timings.queue, "encode": work.timings.encode, "decode": work.timings.decode}
    boundary = work.ended - round(sum(stages.values()) * NANOSECONDS)
    for name, seconds in stages.items():
        span = tracer.start_span(
            name,
            context,  # type: ignore[arg-type]
            attributes={
                "convoy.model": work.model,
                "convoy.sentences": work.sentences,
                "convoy.steps": work.timings.steps,
            },
            start_time=boundary,
        )
        boundary += round(seconds * NANOSECONDS)
        span.end(boundary)
