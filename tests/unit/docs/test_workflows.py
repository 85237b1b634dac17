"""The workflows run targets that the Makefile has, on the versions of Python that the project declares."""

from __future__ import annotations

import re
import tomllib

from tests.pages import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def test_the_targets_that_workflows_run_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    named = {name for path in WORKFLOWS for name in re.findall(r"run: make ([a-z0-9-]+)", path.read_text())}

    assert {"lint", "test", "test-all"} <= named <= targets


def test_tests_run_on_each_declared_version_of_python() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]

    (matrix,) = re.findall(r"python-version: \[(.*)\]", (REPOSITORY / ".github/workflows/ci.yml").read_text())

    assert re.findall(r'"(.*?)"', matrix) == declared


def test_only_the_publishing_job_gets_more_than_read_access() -> None:
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")

        assert re.findall(r"^permissions:\n((?:  .*\n)+)", text, re.MULTILINE) == ["  contents: read\n"], path.name
        assert re.findall(r": write$", text, re.MULTILINE) == ([": write"] if path.name == "release.yml" else [])
