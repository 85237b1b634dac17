"""The checker of Jepsen's ``kafka`` workload: what clients were told, held against what no broker may ever do.

A history is read (``history``) and put in order (``version_order``); each family of rules looks for contradictions.
"""

from tests.checker.check import check
from tests.checker.history import (
    History,
    HistoryWriter,
    InvalidHistory,
    Kind,
    MicroOperation,
    Operation,
    Outcome,
    Poll,
    Send,
    Value,
    read_history,
)
from tests.checker.verdict import Anomaly, Verdict

__all__ = [
    "Anomaly",
    "History",
    "HistoryWriter",
    "InvalidHistory",
    "Kind",
    "MicroOperation",
    "Operation",
    "Outcome",
    "Poll",
    "Send",
    "Value",
    "Verdict",
    "check",
    "read_history",
]
