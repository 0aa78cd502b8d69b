"""Traces for OpenTelemetry: one span for a request, with inner spans for queue, encode and decode.

The engine measures each sentence anyway, so the inner spans are written when the request has ended.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from starlette.types import Scope

from engine.api import ConfigError
from server.observing.context import FAILED, ModelWork, RequestContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

logger = logging.getLogger(__name__)

NANOSECONDS: Final = 1_000_000_000
SERVICE_NAME: Final = "service.name"
# standard variables that name a collector, the one with precedence first
ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"


class Tracing:
    """Writes the spans of requests to a provider of OpenTelemetry."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("convoy")

    @classmethod
    def configured(cls, endpoint: str) -> Tracing | None:
        """Return the Tracing of the setting `traces`, or of OpenTelemetry's own variables; None without both.

        endpoint: value of the setting.

        Raises ConfigError when the setting is there and the extra `otel` is not; for variables that is a
        warning, because they may be meant for other programs of the same machine.
        """
        if endpoint:
            return cls.to(endpoint)
        off = _variable("OTEL_SDK_DISABLED").lower() == "true" or _variable("OTEL_TRACES_EXPORTER") == "none"
        if off or not any(map(_variable, ENDPOINT_VARIABLES)):
            return None
        protocol = next(filter(None, map(_variable, PROTOCOL_VARIABLES)), PROTOCOL)
        if protocol != PROTOCOL:
            logger.warning("no traces: the protocol %s is not supported, only %s", protocol, PROTOCOL)
            return None
        try:
            return cls.to()
        except ConfigError as error:
            logger.warning("no traces, although %s is set: %s", " or ".join(ENDPOINT_VARIABLES), error)
            return None

    @classmethod
    def to(cls, endpoint: str = "") -> Tracing:
        """Return a Tracing that sends spans by OTLP over HTTP to a collector in the background.

        endpoint: address of the collector, such as http://localhost:4318; "": by OpenTelemetry's variables.

        The SDK reads its other standard variables: headers, certificates, time limits, sampler, batches.

        Raises ConfigError without the extra `otel`.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"traces need OpenTelemetry ({error}); run: pip install 'convoy-server[otel]'"
            ) from None
        # attributes that are passed to `create` have precedence over the variables
        named = OTELResourceDetector().detect().attributes.get(SERVICE_NAME)
        resource = Resource.create(None if named else {SERVICE_NAME: "convoy"})
        provider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    def begin(self, scope: Scope, context: RequestContext) -> Span:
        """Begin the span of a request, within the trace of its `traceparent`; note its ids in the context.

        scope: scope of the request.
        context: context of the request.
        """
        from opentelemetry.trace import SpanKind, format_span_id, format_trace_id
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # the headers traceparent and tracestate
        carrier = {
            k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k.startswith(b"trace")
        }
        span = self._tracer.start_span(
            scope["method"],
            TraceContextTextMapPropagator().extract(carrier),
            SpanKind.SERVER,
            {"http.request.method": scope["method"], "convoy.request_id": context.id},
            start_time=context.began,
        )
        ids = span.get_span_context()
        context.trace_id, context.span_id = format_trace_id(ids.trace_id), format_span_id(ids.span_id)
        return span

    def end(self, span: Span, scope: Scope, context: RequestContext, route: str, status: int) -> None:
        """End the span of a request, and write its inner spans.

        span: span from `begin`.
        scope: scope of the request.
        context: context of the request.
        route: pattern of the path.
        status: status of the answer, 0 without an answer.
        """
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        if span.is_recording():  # sampled
            outcome = context.outcome_of(status)
            span.update_name(f"{scope['method']} {route}")
            span.set_attributes(
                {"http.route": route, "http.response.status_code": status, "convoy.outcome": outcome}
            )
            if outcome == FAILED:
                span.set_status(Status(StatusCode.ERROR))
            for work in context.work:
                _write_stages(self._tracer, set_span_in_context(span), work)
        span.end()

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def _variable(name: str) -> str:
    """Return an environment variable without spaces; "" if it is not set."""
    return os.environ.get(name, "").strip()


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
                "convoy.languages": work.languages,
                "convoy.sentences": work.sentences,
                "convoy.steps": work.timings.steps,
            },
            start_time=boundary,
        )
        boundary += round(seconds * NANOSECONDS)
        span.end(boundary)
