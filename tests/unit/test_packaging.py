"""The wheel, the locks and the project's declaration agree with each other."""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
CONSOLE = ROOT / "eoslog" / "ui"
LOCKS = [ROOT / "requirements.lock", ROOT / "requirements-build.lock"]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned_requirements(lock: Path) -> Iterator[tuple[Requirement, str]]:
    """Each pinned requirement of a lock, with the lines that belong to it."""
    for block in re.split(r"^(?=[A-Za-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]:
        yield Requirement(block.splitlines()[0].removesuffix("\\").strip()), block


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_requirement_has_one_version_and_a_hash(lock: Path) -> None:
    requirements = list(pinned_requirements(lock))

    assert len(requirements) > 5
    assert [str(each) for each, _ in requirements if not re.fullmatch(r"==[^*,]+", str(each.specifier))] == []
    assert [each.name for each, block in requirements if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_locks_name_no_index_and_no_path(lock: Path) -> None:
    assert re.findall(r".*(?:://|--index|--extra-index|--find-links| /).*", lock.read_text()) == []


def test_the_lock_satisfies_every_declared_dependency() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["spark"], *extras["ui"]]
    declared += PROJECT["dependency-groups"]["dev"] + PROJECT["dependency-groups"]["build"]
    locked: dict[str, list[str]] = {}
    for requirement, _ in pinned_requirements(LOCKS[0]):
        locked.setdefault(requirement.name, []).append(str(requirement.specifier).removeprefix("=="))

    unsatisfied = [
        text
        for text in declared
        if not (versions := locked.get((requirement := Requirement(text)).name))
        or not all(requirement.specifier.contains(version) for version in versions)
    ]

    assert unsatisfied == []


def test_the_project_is_built_by_what_the_build_lock_installs() -> None:
    locked = {str(requirement) for requirement, _ in pinned_requirements(LOCKS[1])}

    assert set(PROJECT["build-system"]["requires"]) <= locked
    assert locked <= {str(requirement) for requirement, _ in pinned_requirements(LOCKS[0])}


def test_the_wheel_holds_the_library_and_the_spark_extension_at_top_level(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))

    names = zipfile.ZipFile(wheel).namelist()

    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"eoslog", "pyspark_eoslog"}
    assert {"eoslog/py.typed", "eoslog/errors.py", "pyspark_eoslog/__init__.py", "pyspark_eoslog/py.typed"} <= set(
        names
    )
    assert any(name.endswith("licenses/LICENSE") for name in names)
    console = {f"eoslog/ui/{path.relative_to(CONSOLE)}" for path in CONSOLE.rglob("*.*") if path.suffix != ".pyc"}
    assert {"eoslog/ui/assets/htmx.min.js", "eoslog/ui/assets/htmx.LICENSE", "eoslog/ui/templates/base.html"} <= console
    assert console <= set(names)
