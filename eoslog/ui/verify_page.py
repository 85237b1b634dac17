"""The verification of a store: its start, its progress and its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.pages import Listing, Moved, Page, Query


def verify(console: ConsoleStore, query: Query) -> Page:
    """Return the page of the last verification of this console."""
    status = console.verification.status
    findings = () if status is None else status.findings
    return Page(
        "verify.html",
        "Verify",
        {
            "status": status,
            "findings": Listing(findings, query),
            "counts": Counter(each.severity.value for each in findings),
        },
    )


def start(console: ConsoleStore, form: Mapping[str, str]) -> Page | Moved:
    """Start a verification. If one is running, the page shows that one."""
    topic = form.get("topic", "").strip() or None
    if topic is not None:
        console.store.admin.describe_topic(topic)
    console.verification.start(topic, data=form.get("data") == "yes")
    return Moved("/verify")
