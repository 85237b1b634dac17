"""The tests of franz-go's package ``kgo`` that need a server of Kafka's protocol, and what each of them needs.

The parts of a test are listed by themselves if their outcomes differ.
"""

from __future__ import annotations

from collections.abc import Mapping

NEW_GROUPS = "The gateway has no groups of KIP-848. franz-go leaves the test out."
SHARE_GROUPS = "eoslog has no share groups. franz-go leaves the test out."
SECURITY = "The gateway of this run has neither TLS nor SASL."
COMPRESSION = "The gateway answers without compression. The test needs batches as the producer compressed them."

PASSES: tuple[str, ...] = (
    "TestAddRemovePartitions",
    "TestClient_Produce",
    "TestClient_ProduceLargeMessages",
    "TestConsumeTopicRetrieval",
    "TestConsumeTopicRetrieval_Many",
    "TestDirectPartitionPurge",
    "TestGroupETL/cooperative-sticky",
    "TestGroupETL/cooperative-sticky/static",
    "TestGroupETL/range",
    "TestGroupSimple/classic",
    "TestHookPollStart",
    "TestIssue1034",
    "TestIssue325",
    "TestIssue337",
    "TestIssue434",
    "TestIssue523",
    "TestIssue648",
    "TestIssue769",
    "TestIssue810",
    "TestIssue831",
    "TestIssue865",
    "TestIssueFetchLargerThanBrokerMaxReadBytes",
    "TestIssueProduceBrokerTooOldFailsRecords",
    "TestIssueProduceSyncManualPartitionNegativeDoesNotPanic",
    "TestPauseIssue489",
    "TestPauseIssueOct2023",
    "TestPing",
    "TestTxnEtl/cooperative-sticky",
    "TestTxnEtl/cooperative-sticky/static",
    "TestTxnEtl/range",
    "TestUnknownGroupOffsetFetchPinned",
)
"""They pass on each store."""

_PARTS_OF_NEW_GROUPS = """
    TestGroupETL/range/848 TestGroupETL/sticky/848 TestGroupETL/sticky/848/static TestGroupSimple/848
    TestTxnEtl/range/848 TestTxnEtl/sticky/848 TestTxnEtl/sticky/848/static Test848RegexBrokerResolves
"""
_SHARE_GROUP_TESTS = """
    TestConsumeRegexShareSkipsInternal TestShareGroup TestShareGroupAckOnClose TestShareGroupETL
    TestShareGroupOffsetsAdmin
"""

REASONS: Mapping[str, str] = (
    dict.fromkeys(_PARTS_OF_NEW_GROUPS.split(), NEW_GROUPS)
    | dict.fromkeys(_SHARE_GROUP_TESTS.split(), SHARE_GROUPS)
    | dict.fromkeys(["TestOAuthAuth", "TestSCRAMAuth", "TestSCRAMAuthBadCredentials"], SECURITY)
    | {
        "TestConsumeMaxDecompressBatchBytes": COMPRESSION,
        "TestConsumeRegex": "The test reads the internal topic `__consumer_offsets`. A store has none.",
        "TestPooling": COMPRESSION,
    }
)
"""Why each other test, or part of one, does not pass or does not apply."""
