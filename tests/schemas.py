"""Write the JSON Schemas of stored records: ``python -m tests.schemas DIRECTORY``.

A schema comes from the model that reads the record, its descriptions from the docstrings of the model and its fields.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from eoslog.log.checkpoint import CheckpointRoot
from eoslog.log.slots import CheckpointEntry, SlotRecord
from eoslog.session.description import StoreDescription
from eoslog.state.entries import Entry

_TAIL = 'The second line, if there is one, repeats the first lines of the slots before: `{"tail": [...]}`.'


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of all stored records by file name."""
    # The log knows nothing of the rules, so its own model holds entries as values; here the two meet.
    entry = Annotated[Entry | CheckpointEntry, Field(discriminator="type")]
    slot_record = create_model("SlotRecord", __base__=SlotRecord, entries=(tuple[entry, ...], ()))
    slot_record.__doc__ = f"{SlotRecord.__doc__} {_TAIL}"
    return {
        "slot-record.schema.json": _schema(slot_record),
        "checkpoint-root.schema.json": _schema(CheckpointRoot),
        "eoslog-description.schema.json": _schema(StoreDescription),
    }


def write_schemas(directory: Path) -> list[Path]:
    """Write the schemas into a directory and delete schemas of other records there. Return the paths written."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = {directory / name: encode(schema) for name, schema in schemas().items()}
    for path in directory.glob("*.schema.json"):
        if path not in texts:
            path.unlink()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return sorted(texts)


def encode(schema: Mapping[str, Any]) -> str:
    """Return a schema as the text of its file, the same on each run."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


class _Described(GenerateJsonSchema):
    """Describe fields by their docstrings. Pydantic can do so too, but in every process that imports the models."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for model in reversed(schema["cls"].__mro__):
            for name, text in _docstrings(model).items():
                if name in made["properties"]:
                    made["properties"][name]["description"] = text
        return made


@cache
def _docstrings(model: type) -> Mapping[str, str]:
    """Return the docstrings that follow fields of a class, not of its bases, by field."""
    found = {}
    with suppress(OSError, TypeError):  # it has no source
        body = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]).body
        for field, following in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(following, ast.Expr):
                found[ast.unparse(field.target)] = inspect.cleandoc(ast.literal_eval(following.value))
    return found


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(mode="validation", schema_generator=_Described)
    for definition in schema.get("$defs", {}).values():
        if "const" in definition["properties"].get("type", {}):
            # The type tells which entry this is, so it is always there, although the model has it by default.
            definition["required"] = ["type", *definition.get("required", ())]
    return {"$schema": GenerateJsonSchema.schema_dialect, **cast(dict[str, Any], _plain(schema))}


def _plain(value: object) -> object:
    """Return a schema whose descriptions have one line for each paragraph, where docstrings break their lines."""
    if isinstance(value, dict):
        return {
            name: _unwrapped(each) if name == "description" and isinstance(each, str) else _plain(each)
            for name, each in value.items()
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _unwrapped(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.replace("``", "`").split("\n\n"))


def main() -> None:
    """Write the schemas into the directory of the first argument."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.schemas DIRECTORY")
    for path in write_schemas(Path(sys.argv[1])):
        print(path)


if __name__ == "__main__":
    main()
