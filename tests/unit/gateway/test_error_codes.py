"""The codes with which the gateway answers errors of the store."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from eoslog import errors
from eoslog.gateway.error_codes import coordinator_code, error_code, fetch_code


@pytest.mark.parametrize(
    ("error", "code", "of_a_coordinator"),
    [
        (errors.IllegalGeneration("x"), ErrorCode.illegal_generation, None),
        (errors.UnknownMember("x"), ErrorCode.unknown_member_id, None),
        (errors.InconsistentGroupProtocol("x"), ErrorCode.inconsistent_group_protocol, None),
        # Clients look for the coordinator after both codes. This one alone says that it is elsewhere.
        (errors.NotCoordinator("x"), ErrorCode.not_coordinator, None),
        (errors.StoreUnavailable("x"), ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (errors.CommitStateUnknown("x"), ErrorCode.request_timed_out, ErrorCode.coordinator_not_available),
        (errors.StorageFull("x"), ErrorCode.kafka_storage_error, ErrorCode.coordinator_not_available),
        (errors.IllegalState("x"), ErrorCode.unknown_server_error, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, errors.EosLogError) else "",
)
def test_errors_of_the_store_have_kafkas_codes(
    error: errors.EosLogError, code: ErrorCode, of_a_coordinator: ErrorCode | None
) -> None:
    assert error_code(error) is code
    assert coordinator_code(error) is (of_a_coordinator or code)


def test_consumers_repeat_a_fetch_after_an_error_of_the_store() -> None:
    # Java's consumer raises an exception after the codes that producers get.
    assert fetch_code(errors.StoreUnavailable("x")) is ErrorCode.kafka_storage_error
    assert fetch_code(errors.CommitStateUnknown("x")) is ErrorCode.kafka_storage_error
    assert fetch_code(errors.CorruptRecord("x")) is ErrorCode.kafka_storage_error
    assert fetch_code(errors.IllegalState("x")) is ErrorCode.unknown_server_error
