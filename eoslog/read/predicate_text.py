"""The text of a predicate, as in SQL's WHERE: parsing by sqlglot in Spark's dialect, and checks against a topic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pyarrow as pa
from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from eoslog.errors import InvalidOption
from eoslog.read.columns import available_columns
from eoslog.read.predicate import AllOf, AnyOf, Condition, Constant, IsNull, Not, OneOf, Predicate, StartsWith
from eoslog.read.predicate_literals import CannotCompare, Literal, LiteralKind, below, one_of
from eoslog.state.store_state import Topic
from eoslog.wording import quoted

SUPPORTED = (
    "comparisons of a column with a literal (=, <>, <=>, <, <=, >, >=, IN, BETWEEN, IS NULL, IS TRUE, LIKE 'prefix%') "
    "with AND, OR, NOT and brackets"
)
_LONGEST_TEXT = 1 << 20
_NUMBERS = (LiteralKind.NUMBER, LiteralKind.DOUBLE)
_ESCAPES = re.compile(r"""\\(?:[\\'"nrtb]|u[0-9a-fA-F]{4})|[^\\]""", re.DOTALL)
"""The escapes that Spark and sqlglot read in the same way."""


def compile_predicate(text: str, topic: Topic) -> Predicate:
    """Compile a predicate for the rows of a topic.

    Raises:
        InvalidOption: the text is not a predicate, or does not fit the topic's columns. The message names the part.
    """
    return _Compiler(text, topic).compile()


class _Compiler:
    def __init__(self, text: str, topic: Topic) -> None:
        self._text = text
        self._topic = topic
        self._available = available_columns(topic)
        self._by_lower_name = {name.lower(): name for name in reversed(self._available.names)}
        self._used: dict[str, pa.Field[Any]] = {}
        self._collated = _collated_columns(topic)

    def compile(self) -> Predicate:
        try:
            condition = self._condition(self._parsed())
        except RecursionError:
            raise InvalidOption("the predicate is nested too deeply: write lists of values with IN") from None
        # Control rows have nulls in every column.
        columns = pa.schema([field.with_nullable(True) for field in self._used.values()])
        return Predicate(self._text, condition, columns, self._topic.topic_schema.kind == "records")

    def _parsed(self) -> Any:
        text = self._text
        if not isinstance(text, str) or not text.strip():
            raise InvalidOption("a predicate is a text, for example \"miles > 1000 AND carrier IN ('UA', 'B6')\"")
        if len(text) > _LONGEST_TEXT:
            raise InvalidOption(f"a predicate has at most {_LONGEST_TEXT} characters, not {len(text)}")
        if _ESCAPES.sub("", text):
            raise InvalidOption(
                f"predicate {quoted(text)}: only the escapes \\\\, \\', \\\", \\n, \\r, \\t, \\b and \\uXXXX are "
                "supported"
            )
        try:
            # The parentheses keep the parser from reading a statement if a column has the name of an SQL keyword.
            statements = parse(f"({text}\n)", read="spark")
        except SqlglotError as error:
            first = (getattr(error, "errors", None) or [{}])[0]
            near = f" near {quoted(first['highlight'])}" if first.get("highlight") else ""
            raise InvalidOption(f"predicate {quoted(text)} cannot be parsed{near}. Supported are {SUPPORTED}") from None
        found = statements[0] if len(statements) == 1 else None
        if not isinstance(found, exp.Paren):
            raise InvalidOption(f"predicate {quoted(text)} is not one condition. Supported are {SUPPORTED}")
        return found

    def _condition(self, node: Any) -> Condition:
        if isinstance(node, exp.Paren):
            return self._condition(self._only(node, "this").this)
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self._condition(part) for part in self._flat(node))
            return AllOf(parts) if isinstance(node, exp.And) else AnyOf(parts)
        if isinstance(node, exp.Not):
            return Not(self._condition(self._only(node, "this").this))
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this))
        if isinstance(node, exp.Null):
            return Constant(None)
        if isinstance(node, exp.Column):
            return self._is_true(self._column(node))
        compare: Callable[[Any], Condition] | None = {
            exp.EQ: self._equal,
            exp.NEQ: lambda each: Not(self._equal(each)),
            exp.NullSafeEQ: self._null_safe_equal,
            exp.LT: self._ordered,
            exp.LTE: self._ordered,
            exp.GT: self._ordered,
            exp.GTE: self._ordered,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Is: self._is,
            exp.Like: self._like,
        }.get(type(node))
        if compare is None:
            self._refuse(node)
        return compare(node)

    def _flat(self, node: Any) -> Iterator[Any]:
        """Yield the parts of a chain of ANDs or ORs. It uses no recursion, because a long chain is a deep tree."""
        stack = [node]
        while stack:
            each = stack.pop()
            if type(each) is type(node):
                self._only(each, "this", "expression")
                stack += [each.expression, each.this]
            else:
                yield each

    def _equal(self, node: Any) -> Condition:
        column, literal, _ = self._sides(node)
        if literal is None:
            return Constant(None)
        return self._compared(column, node, lambda: one_of(column, [literal]))

    def _null_safe_equal(self, node: Any) -> Condition:
        column, literal, _ = self._sides(node)
        if literal is None:
            return IsNull(column.name)
        equal = self._compared(column, node, lambda: one_of(column, [literal]))
        return AllOf((Not(IsNull(column.name)), equal))

    def _ordered(self, node: Any) -> Condition:
        column, literal, is_turned = self._sides(node)
        if literal is None:
            return Constant(None)
        is_less = isinstance(node, exp.LT | exp.LTE) != is_turned
        or_equal = isinstance(node, exp.LTE | exp.GTE)
        found = self._compared(column, node, lambda: below(column, literal, inclusive=or_equal == is_less))
        return found if is_less else Not(found)

    def _in(self, node: Any) -> Condition:
        self._only(node, "this", "expressions")
        column = self._column(node.this)
        literals = [self._literal(each) for each in node.expressions]
        known = [literal for literal in literals if literal is not None]
        found = self._compared(column, node, lambda: one_of(column, known))
        return found if len(known) == len(literals) else AnyOf((found, Constant(None)))

    def _between(self, node: Any) -> Condition:
        self._only(node, "this", "low", "high")
        column = self._column(node.this)
        low, high = self._literal(node.args["low"]), self._literal(node.args["high"])
        at_least: Condition = Constant(None)
        at_most: Condition = Constant(None)
        if low is not None:
            at_least = Not(self._compared(column, node, lambda: below(column, low, inclusive=False)))
        if high is not None:
            at_most = self._compared(column, node, lambda: below(column, high, inclusive=True))
        return AllOf((at_least, at_most))

    def _is(self, node: Any) -> Condition:
        self._only(node, "this", "expression")
        column = self._column(node.this)
        if isinstance(node.expression, exp.Null):
            return IsNull(column.name)
        if not isinstance(node.expression, exp.Boolean):
            self._refuse(node)
        literal = Literal(LiteralKind.BOOLEAN, str(bool(node.expression.this)).lower())
        equal = self._compared(column, node, lambda: one_of(column, [literal]))
        return AllOf((Not(IsNull(column.name)), equal))

    def _like(self, node: Any) -> Condition:
        self._only(node, "this", "expression", "negate")
        column, literal = self._column(node.this), self._literal(node.expression)
        found: Condition = Constant(None)
        if literal is not None:
            prefix, percent, _ = literal.text.partition("%")
            is_prefix = percent and literal.text == f"{prefix}%"
            if literal.kind is not LiteralKind.TEXT or not pa.types.is_string(column.type):
                self._refuse(node, "LIKE compares text with a text")
            if column.name in self._collated:
                self._refuse(node, f"the text of column {column.name!r} has a collation")
            if "_" in prefix or "\\" in prefix or (percent and not is_prefix):
                self._refuse(node, "only a prefix pattern such as 'abc%' is supported, without '_' and '\\'")
            found = StartsWith(column.name, prefix) if percent else OneOf(column.name, (prefix,))
        return Not(found) if node.args.get("negate") else found

    def _is_true(self, column: pa.Field[Any]) -> Condition:
        if not pa.types.is_boolean(column.type):
            raise InvalidOption(
                f"predicate {quoted(self._text)}: column {column.name!r} is {column.type}. Only a boolean column is a "
                "condition"
            )
        return OneOf(column.name, (True,))

    def _sides(self, node: Any) -> tuple[pa.Field[Any], Literal | None, bool]:
        """Return the column, the literal, and True if the literal is on the left."""
        self._only(node, "this", "expression")
        left, right = self._bare(node.this), self._bare(node.expression)
        is_turned = isinstance(right, exp.Column)
        if is_turned and isinstance(left, exp.Column):
            self._refuse(node, "a column is compared with a literal, not with another column")
        column, literal = (right, left) if is_turned else (left, right)
        return self._column(column), self._literal(literal), is_turned

    def _bare(self, node: Any) -> Any:
        """Return the node without parentheses around it."""
        while isinstance(node, exp.Paren):
            node = self._only(node, "this").this
        return node

    def _column(self, node: Any) -> pa.Field[Any]:
        node = self._bare(node)
        if not isinstance(node, exp.Column):
            self._refuse(node, "a column is compared with a literal")
        if len([part for part in node.args.values() if part]) > 1 or not isinstance(node.this, exp.Identifier):
            self._refuse(
                node,
                "a column is named alone, and in `backticks` if it has a dot; fields of structs cannot be compared",
            )
        given = str(node.this.this)
        name = given if given in self._available.names else self._by_lower_name.get(given.lower())
        if name is None:
            raise InvalidOption(
                f"predicate {quoted(self._text)}: topic {self._topic.topic} has no column {quoted(given)}. Its "
                f"columns are: {', '.join(self._available.names)}"
            )
        return self._used.setdefault(name, self._available.field(name))

    def _literal(self, node: Any) -> Literal | None:
        """Return the literal; None for NULL."""
        node = self._bare(node)
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return Literal(LiteralKind.BOOLEAN, str(bool(node.this)).lower())
        if isinstance(node, exp.Neg):
            found = self._literal(self._only(node, "this").this)
            if found is None or found.kind not in _NUMBERS or found.text.startswith("-"):
                self._refuse(node)
            return Literal(found.kind, f"-{found.text}")
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Concat):
            self._refuse(node, "adjacent texts. Write a quote within a text as \\'")
        if not isinstance(node, exp.Literal):
            self._refuse(node, "a column is compared with a literal")
        self._only(node, "this", "is_string")
        text = str(node.this)
        if node.is_string:
            return Literal(LiteralKind.TEXT, text)
        return Literal(LiteralKind.DOUBLE if "e" in text.lower() else LiteralKind.NUMBER, text)

    def _cast(self, node: Any) -> Literal:
        """Return the literal of a notation such as ``DATE '2026-01-31'`` or ``1L``, which sqlglot parses as a cast."""
        target = self._only(node, "this", "to").args["to"].this
        literal = self._literal(node.this)
        kind: LiteralKind | None = None
        if literal is not None and literal.kind is LiteralKind.TEXT:
            kind = {
                exp.DType.DATE: LiteralKind.DATE,
                exp.DType.TIMESTAMPTZ: LiteralKind.TIMESTAMP,
                exp.DType.TIMESTAMPLTZ: LiteralKind.TIMESTAMP,
                exp.DType.TIMESTAMPNTZ: LiteralKind.TIMESTAMP_NTZ,
                exp.DType.TIME: LiteralKind.TIME,
                exp.DType.DOUBLE: LiteralKind.DOUBLE,
            }.get(target)
        elif literal is not None and target is exp.DType.DOUBLE and literal.kind in _NUMBERS:
            kind = LiteralKind.DOUBLE
        elif literal is not None and target is exp.DType.BIGINT and literal.text.isdecimal():
            kind = literal.kind
        if literal is None or kind is None:
            self._refuse(node, "this cast is unknown. Write a literal of the column's own type")
        return Literal(kind, literal.text)

    def _compared(self, column: pa.Field[Any], node: Any, compare: Callable[[], Condition]) -> Condition:
        if column.name in self._collated:
            self._refuse(node, f"the text of column {column.name!r} has a collation")
        try:
            return compare()
        except CannotCompare as error:
            given, compared = quoted(self._text), self._sql(node)
            where = given if given == compared else f"{given}: {compared}"
            raise InvalidOption(f"predicate {where}: column {column.name!r}: {error}") from None

    def _only(self, node: Any, *names: str) -> Any:
        """Return the node if it has no other parts than these. Other parts could change its meaning, so refuse them."""
        if any(value not in (None, False, []) and name not in names for name, value in node.args.items()):
            self._refuse(node)
        return node

    def _refuse(self, node: Any, reason: str = "") -> NoReturn:
        why = f": {reason}" if reason else ""
        raise InvalidOption(
            f"predicate {quoted(self._text)}: {self._sql(node)} is not supported{why}. Supported are {SUPPORTED}"
        )

    def _sql(self, node: Any) -> str:
        return quoted(node.sql(dialect="spark"))


def _collated_columns(topic: Topic) -> frozenset[str]:
    """Return the text columns that Spark compares by a collation instead of their bytes."""
    try:
        fields = json.loads(topic.topic_schema.spark or "{}").get("fields", [])
        return frozenset(field["name"] for field in fields if "__COLLATIONS" in field.get("metadata", {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return frozenset()
