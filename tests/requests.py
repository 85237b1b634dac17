"""A request made of a function, for what no request of the product does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Applying(Generic[T]):
    """Do what a function does to a draft. The answer is the function's."""

    function: Callable[[Any], T]

    def apply(self, draft: Any) -> T:
        return self.function(draft)
