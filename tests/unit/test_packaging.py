"""The wheel, the locks and the project's declaration agree with each other."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from tests.pages import links, python_block

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


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    directory = tmp_path_factory.mktemp("sources")
    archive = next(SdistBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"]))
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / f"eoslog-{PROJECT['project']['version']}"


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built of the source distribution."""
    directory = str(tmp_path_factory.mktemp("wheel"))
    return Path(next(WheelBuilder(str(sources)).build(directory=directory, versions=["standard"])))


def test_the_wheel_of_the_sources_is_that_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    ours = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))

    assert {each.filename: each.CRC for each in zipfile.ZipFile(wheel).infolist()} == {
        each.filename: each.CRC for each in zipfile.ZipFile(ours).infolist()
    }


def test_the_container_file_copies_what_the_wheel_is_built_from(wheel: Path, tmp_path: Path) -> None:
    lines = (ROOT / "conf/deploy/Containerfile").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.startswith("COPY "):
            *copied, target = line.split()[1:]
            for name in copied:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, tmp_path / target)
                else:
                    shutil.copy(ROOT / name, tmp_path / target)
    built = next(WheelBuilder(str(tmp_path)).build(directory=str(tmp_path / "built"), versions=["standard"]))

    assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_each_link_of_the_readme_leads_somewhere_in_the_sources(sources: Path) -> None:
    for link in links(ROOT / "README.md"):
        path = link.partition("#")[0]
        assert "://" in link or (sources / path).exists(), link


def test_the_page_of_the_package_has_no_relative_link(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
    page = email.message_from_bytes(archive.read(name))
    text = str(page.get_payload())

    assert text.startswith("# eoslog\n")
    assert "docs/operations.md" in text
    assert re.findall(r"\]\((?!https?://)", text) == []
    assert "Development Status :: 4 - Beta" in page.get_all("Classifier", [])


def test_an_installed_wheel_runs_the_readme_s_example(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin/python"
    uv = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--quiet", "--python", python, wheel]
    subprocess.run(uv, check=True)
    # What the package needs comes from the environment of the tests. Its own packages stand first.
    own = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    (own / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(python, "-c", "import eoslog; print(eoslog.__file__)").startswith(str(environment))
    assert run(environment / "bin/eoslog", "--version") == f"eoslog {PROJECT['project']['version']}\n"
    assert run(python, "-c", python_block(with_spark=False)) == "payments 1 0 b'card-1' b'12.50'\n"


def test_the_wheel_holds_the_library_and_the_spark_extension_at_top_level(wheel: Path) -> None:
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
