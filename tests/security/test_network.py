"""Nothing is fetched unless someone asks for it."""

import ast
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import errornorm
import errornorm_reproduce
from errornorm.data.lines import DataError
from errornorm.training import models, tokenizing
from errornorm.training.config import Source
from errornorm.training.corpora import records
from tests.offline import sitecustomize as offline

FOLDERS = [Path(package.__file__).parent for package in (errornorm, errornorm_reproduce)]
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))


def test_the_way_out_is_closed():
    for reach in (
        lambda: socket.create_connection(("203.0.113.1", 80), timeout=1),
        lambda: socket.getaddrinfo("example.invalid", 443),
    ):
        with pytest.raises(OSError, match="tests have no network"):
            reach()
    assert len(offline.refused) == 2
    offline.refused.clear()
    child = "import socket; socket.create_connection(('203.0.113.1', 80), timeout=1)"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    assert "tests have no network" in done.stderr


def test_this_machine_can_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


@pytest.mark.parametrize("name", ["nobody/no-such-model", "no-such-folder"])
def test_names_are_folders_unless_asked(name):
    """If one of these wanted to fetch something, the fixture `no_network` would see it."""
    with pytest.raises(DataError, match=r"no model there: it is no folder here.*download: true"):
        models.load(name, "causal")
    with pytest.raises(DataError, match=r"no tokenizer there: it is no folder here.*download: true"):
        tokenizing.load(name)
    with pytest.raises(DataError, match=r"no folder here.*download: true"):
        list(records(Source(dataset=name), ("text",)))


def test_who_asks_may_fetch():
    assert tokenizing.place("nobody/no-such-model", download=True) == "nobody/no-such-model"


def test_what_was_fetched_before_is_a_folder(tmp_path, monkeypatch):
    fetched = tmp_path / "models--some--body" / "snapshots" / "0123"
    fetched.mkdir(parents=True)
    (tmp_path / "models--some--body" / "refs").mkdir()
    (tmp_path / "models--some--body" / "refs" / "main").write_text("0123")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert tokenizing.place("some/body", download=False) == str(fetched)


CALLS = [
    (path, node)
    for path in SOURCES
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.Call)
]


def test_no_code_from_elsewhere():
    """Every `from_pretrained` says that code is not trusted; nothing is unpickled but what is looked at first."""
    seen = 0
    assert models._careful(download=True)["trust_remote_code"] is False
    for path, node in CALLS:
        call, where = ast.unparse(node.func), f"{path.name}:{node.lineno}"
        names = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if call.endswith(".from_pretrained"):
            seen += 1
            assert names.get("trust_remote_code") == "False" or names.get(None) == "_careful(download)", where
        assert names.get("trust_remote_code", "False") == "False", where
        assert "allow_pickle" not in names, where
        assert call != "torch.load" or names.get("weights_only") == "True", where
        if call in ("pickle.load", "pickle.loads"):
            assert ast.unparse(node.args[0]).startswith("pickle.dumps("), where  # dumped in the same breath
    assert seen >= 3


def test_nothing_is_written_for_spreadsheets():
    """There is no CSV to neutralise formulas in: who adds one has to think of it."""
    for path in SOURCES:
        names = {alias.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
        assert "csv" not in names
        assert ".to_csv(" not in path.read_text(encoding="utf-8")
