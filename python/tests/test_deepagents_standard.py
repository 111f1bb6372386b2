"""deepagents: langchain-tests' standard tests of a sandbox, sync and async."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import foldspace.sync
import pytest
from conftest import BACKENDS, stop
from deepagents.backends.protocol import SandboxBackendProtocol
from foldspace.deepagents import FoldspaceSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

# What deepagents' own base class does, which the adapter leaves as it is.
KNOWN = {
    "test_write_existing_file_fails": "deepagents' write replaces a file; the test wants an error",
    "test_glob": "deepagents' glob returns absolute paths; the test wants paths below the directory",
    "test_glob_basic_pattern": "deepagents' glob returns absolute paths; the test wants paths below the directory",
    "test_glob_with_directories": "deepagents' glob returns absolute paths; the test wants paths below the directory",
    "test_glob_hidden_files_explicitly": "deepagents' glob returns absolute paths; the test wants paths below the directory",
    "test_glob_with_character_class": "deepagents' glob returns absolute paths; the test wants paths below the directory",
    "test_glob_with_question_mark": "deepagents' glob returns absolute paths; the test wants paths below the directory",
}
# Some tests run `python`; the image of the tests has `python3` alone.
PATH = "/workspace/programs:/usr/local/bin:/usr/bin:/bin"


class TestFoldspaceSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class", params=BACKENDS)
    @classmethod
    def sandbox(cls, request: pytest.FixtureRequest) -> Iterator[SandboxBackendProtocol]:
        env = {"PATH": PATH} if request.param == "podman" else None
        with tempfile.TemporaryDirectory(prefix="foldspace") as directory:
            data = Path(directory) / "data"
            with foldspace.sync.session(backend=request.param, data=data, env=env, auto_confirm=True) as session:
                session.run("mkdir programs; ln -s $(command -v python3) programs/python", check=True)
                yield FoldspaceSandbox(session)
            stop(data)

    @pytest.fixture(autouse=True)
    def known(self, request: pytest.FixtureRequest) -> None:
        if why := KNOWN.get(request.node.originalname):
            request.node.add_marker(pytest.mark.xfail(reason=why, strict=True))
