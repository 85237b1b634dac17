"""The spans that a program records that has configured OpenTelemetry."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


class Recorded:
    """The spans that have ended so far, in the order of their ends."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def the(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def path(self, span: ReadableSpan) -> list[str]:
        """The names of a span and of the spans around it, the innermost first."""
        by_id = {each.context.span_id: each for each in self.spans if each.context}
        names = [span.name]
        while span.parent is not None:
            span = by_id[span.parent.span_id]
            names.append(span.name)
        return names

    def paths(self, name: str) -> list[list[str]]:
        return [self.path(span) for span in self.named(name)]

    def clear(self) -> None:
        self._exporter.clear()
