"""Division of items into groups of limited weight."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eoslog.format.limited_groups import Limit, limited_groups


@given(st.lists(st.integers(1, 1000), max_size=60), st.integers(1, 2000), st.integers(1, 9))
def test_groups_keep_the_order_and_are_as_large_as_the_limits_allow(sizes: list[int], bytes_: int, count: int) -> None:
    groups = list(limited_groups(sizes, Limit(lambda size: size, bytes_), Limit(lambda size: 1, count)))

    assert [size for group in groups for size in group] == sizes
    assert all(len(group) == 1 or (sum(group) <= bytes_ and len(group) <= count) for group in groups)
    assert all(sum(group) + then[0] > bytes_ or len(group) == count for group, then in pairwise(groups))
