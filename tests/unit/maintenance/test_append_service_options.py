"""The addresses of an append service, and what its options refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog.errors import InvalidOption
from eoslog.log.append_client import APPEND_KEY_PATH
from eoslog.maintenance.append_service import AppendService
from eoslog.store import Store
from tests.unit.maintenance.append_services import (
    address_of,
    announced,
    listening,
    running,
)


@pytest.mark.parametrize("listen", ["9300", "host:", "host:x", "host:70000", "::1:9300", ""])
def test_an_address_without_host_and_port_is_refused(connected: Callable[[], Store], listen: str) -> None:
    with pytest.raises(InvalidOption, match="host:port"):
        AppendService(connected(), listen)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "0:9300", ":9300", "[::]:9300", "[::0]:9300"])
def test_an_address_that_names_no_host_needs_another_one_to_announce(
    connected: Callable[[], Store], listen: str
) -> None:
    with pytest.raises(InvalidOption, match="advertise"):
        AppendService(connected(), listen)


def test_a_port_in_use_is_an_error_that_names_it(connected: Callable[[], Store]) -> None:
    with (
        listening() as listener,
        pytest.raises(InvalidOption, match="Choose another address"),
        AppendService(connected(), address_of(listener)),
    ):
        pass


def test_the_advertised_address_is_announced(connected: Callable[[], Store]) -> None:
    with running(connected, advertise="writers.example.com:9300"):
        found = announced(connected())

    assert found is not None
    assert found.address == "writers.example.com:9300"


def test_the_key_is_no_unknown_file(connected: Callable[[], Store], service: AppendService) -> None:
    store = connected()

    assert not [each for each in store.admin.verify() if APPEND_KEY_PATH in each.path]
