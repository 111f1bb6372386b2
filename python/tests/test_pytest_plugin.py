"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.foldspace(ignore=["*.log"])
def test_work(foldspace_session):
    assert foldspace_session.run("echo {text} > made; date +%N > time.log; {command}").exit_code == {code}
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    def run(*options: str, text: str = "one", command: str = "true", code: int = 0) -> pytest.RunResult:
        pytester.makepyfile(SUITE.format(text=text, command=command, code=code))
        # As installed, it is found by its entry point.
        return pytester.runpytest_subprocess("-p", "foldspace.pytest_plugin", "-p", "no:foldspace", *options)

    return run


def test_fixture_gives_a_session(run) -> None:
    run().assert_outcomes(passed=1)


def test_sessions_are_kept_where_asked(run, data: Path) -> None:
    import foldspace.sync

    run(f"--foldspace-data={data}").assert_outcomes(passed=1)
    with foldspace.sync.Client(data) as client:
        session = client.open(client.sessions()[0]["session"])
        assert session.files.read("made") == b"one\n"
        assert "test_work" in (session.annotations()[0]["note"] or "")


def test_expectations_are_written_and_compared(run, pytester: pytest.Pytester) -> None:
    run("--foldspace-expect=want").assert_outcomes(passed=1, errors=1)
    run("--foldspace-expect=want", "--foldspace-update").assert_outcomes(passed=1)
    assert len(list(Path(pytester.path, "want").glob("*test_work.json"))) == 1
    run("--foldspace-expect=want").assert_outcomes(passed=1)
    other = run("--foldspace-expect=want", text="two")
    other.assert_outcomes(passed=1, errors=1)
    other.stdout.fnmatch_lines(["*file made: changed*"])
    failed = run("--foldspace-expect=want", command="exit 3", code=3)
    failed.stdout.fnmatch_lines(["*call 1: expected *"])


def test_update_needs_a_directory(run) -> None:
    assert run("--foldspace-update").ret == pytest.ExitCode.USAGE_ERROR
