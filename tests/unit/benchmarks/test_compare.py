"""The comparison of two commits: numbers, medians, ratios, and benchmarks that one of the commits lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.compare import Numbers, checked_out, risen, rows


def numbers(*answers: str) -> Numbers:
    found = Numbers()
    for answer in answers:
        found.take("commit", answer, "Traceback\nOSError: no space left\n")
    return found


def test_a_line_has_both_medians_and_their_ratio_with_the_range_over_the_rounds() -> None:
    old = numbers('{"CPU": 1}', '{"CPU": 9}', '{"CPU": 2}')
    new = numbers('a line before\n{"CPU": 3}\n', '{"CPU": 9}', '{"CPU": 1}')

    assert list(rows(old, new)) == [("CPU", "2 (1-9)", "3 (1-9)", "1 (0.5-3)")]


def test_without_all_runs_of_both_there_is_no_ratio() -> None:
    assert list(rows(numbers('{"CPU": 2}', ""), numbers('{"CPU": 3}', '{"CPU": 4}'))) == [
        ("CPU", "2", "3.5 (3-4)", "-")
    ]


def test_only_an_exact_count_above_all_of_the_old_commit_has_risen() -> None:
    old = numbers('{"requests: a": 2, "requests: b": 2, "time": 1}', '{"requests: a": 2, "requests: b": 3, "time": 1}')
    new = numbers('{"requests: a": 3, "requests: b": 3, "requests: c": 9, "time": 5}')

    assert risen(old, new) == ["requests: a"]
    assert risen(new, old) == []


def test_a_number_that_one_commit_lacks_is_shown_as_missing() -> None:
    old, new = numbers('{"missing": "ImportError: no scan"}'), numbers('{"CPU": 1234.5}')

    assert list(rows(old, new)) == [("CPU", "missing", "1,234", "-")]
    assert list(rows(new, old)) == [("CPU", "1,234", "missing", "-")]
    assert old.missing == {"commit": "missing: ImportError: no scan"}


def test_a_ratio_to_nothing_is_left_out() -> None:
    assert list(rows(numbers('{"CPU": 0}'), numbers('{"CPU": 1}'))) == [("CPU", "0", "1", "-")]


@pytest.mark.parametrize("answer", ["", "no JSON", "[1]", '{"CPU": "fast"}', '{"CPU": null}'])
def test_a_run_that_gives_no_numbers_has_failed_with_the_last_line_it_wrote(answer: str) -> None:
    found = numbers(answer)

    assert found.names == []
    assert found.missing == {"commit": "failed: OSError: no space left"}


def test_a_worktree_goes_when_the_comparison_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    for arguments in (
        ["init", "--quiet", str(repository)],
        ["-C", str(repository), "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m", "--allow-empty"],
    ):
        subprocess.run(["git", *arguments], check=True)
    monkeypatch.setattr(compare, "REPOSITORY", repository)

    def interrupted() -> None:
        with checked_out("HEAD", tmp_path / "old") as tree:
            assert tree.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert not (tmp_path / "old").exists()
    listed = subprocess.run(["git", "-C", str(repository), "worktree", "list"], capture_output=True, check=True)
    assert listed.stdout.count(b"\n") == 1
