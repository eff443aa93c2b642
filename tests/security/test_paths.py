"""Names out of files that would lead out of a folder: checksums, shards, splits, descriptions, archives, links."""

import io
import json
import os
import pickle
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch.distributed.checkpoint as dcp

from errornorm import cli
from errornorm.data.files import written
from errornorm.data.lines import DataError
from errornorm.demo.run import MARK, _begun
from errornorm.evaluation import runs
from errornorm.training import checkpoints, models, prepare
from errornorm.training.config import Source, TrainConfig
from errornorm.training.corpora import records
from errornorm.training.locks import Lock
from errornorm.training.pickles import refuse_code
from errornorm.training.rundir import RunDir
from tests import tiny
from tests.run_directories import write as write_run
from tests.score_tables import write as write_scores
from tests.scoring.models import save
from tests.security.test_pickles import sharded
from tests.security.traps import change, plant, tar

OUT = [
    "../secret",
    "../../secret",
    "a/../../secret",
    "{root}/secret",
    "..",
    "/dev/zero",
    "./../secret",
    "b/../../secret",
]
WHAT = (
    "names in checksums, shards, splits, descriptions, archives, tokenizers and links that lead out of a folder; a "
    "case fails if one is followed"
)


@contextmanager
def refused(*words, kinds=(DataError, ValueError, OSError)):
    with pytest.raises(kinds) as caught:
        yield
    assert all(word in str(caught.value) for word in words), caught.value


def checksums(folder, suite):
    (folder / "secret").write_text("top secret")
    for number, name in enumerate(OUT):
        place = folder / f"checksums-{number}"
        with suite.case(f"checksums {name}"):
            plant(place / "step" / "a", b"x")
            checkpoints._seal(place / "step")
            change(place / "step" / checkpoints.SUMS, **{name.format(root=folder): {"bytes": 10, "sha256": "0" * 64}})
            assert "outside" in checkpoints.verify(place / "step")
    for kind in ("link", "pipe"):
        place = folder / f"checksums-{kind}"
        with suite.case(f"checksums {kind}"):
            plant(place / "a", b"x")
            checkpoints._seal(place)
            (place / "a").unlink()
            (place / "a").symlink_to(folder / "secret") if kind == "link" else os.mkfifo(place / "a")
            assert checkpoints.verify(place)


def splits(folder, suite):
    for number, name in enumerate([*OUT, 5, {"a": 1}]):
        with suite.case(f"split {name}"):
            place = write_run(folder / f"split-{number}", split=name)
            with refused("split is"):
                _ = runs.find([place])[0][0].texts


def descriptions(folder, suite):
    """The page of a data set says which files belong to it."""
    remote = [
        "https://x.test/a.jsonl",
        "hf://datasets/a/b",
        "s3://a/b",
        "zip://a::https://x.test/a.zip",
        "file:///etc/passwd",
    ]
    for number, name in enumerate([*OUT, *remote]):
        place = folder / f"set-{number}"
        with suite.case(f"data set {name}"):
            name = name.format(root=folder)
            files = [{"split": "train", "path": [name]}] if number % 2 else name
            page = json.dumps({"configs": [{"config_name": "default", "data_files": files}]})
            plant(place / "README.md", f"---\n{page}\n---\nA page.\n".encode())
            plant(place / "data.jsonl", b'{"text": "a"}\n')
            with refused("which is not in the folder"):
                list(records(Source(dataset=str(place)), ("text",)))
    # However the description is laid out, `datasets` reads it.
    page = json.dumps({"configs": [{"config_name": "default", "data_files": "../secret"}]})
    layouts = {"README.md": (f"\n \n---\n{page}\n---\n", f"---\r{page}\r---\n", f"---\r\n{page}\r\n---  \r\n"),
               ".huggingface.yaml": (page, f"# first\n{page}")}  # fmt: skip
    for number, (file, text) in enumerate((file, text) for file, texts in layouts.items() for text in texts):
        with suite.case(f"data set {text!r}"):
            plant(folder / f"layout-{number}" / file, text.encode())
            plant(folder / f"layout-{number}" / "data.jsonl", b'{"text": "a"}\n')
            with refused("which is not in the folder"):
                list(records(Source(dataset=str(folder / f"layout-{number}")), ("text",)))


def shards(folder, suite):
    folder = folder / ("a long way " * 20)  # a message is whole for all that
    for number, name in enumerate(OUT[:4]):
        name = name.format(root=folder)
        with suite.case(f"shard {name}"):
            place = save(folder / f"model-{number}", "gpt2") if number == 0 else folder / f"model-{number}"
            plant(place / "model.safetensors.index.json", json.dumps({"weight_map": {"a": name}}).encode())
            with refused("which is not beside it"):
                models.load(str(place), "causal")
        with suite.case(f"sharded checkpoint {name}"):
            place = folder / f"sharded-{number}"
            sharded(place)
            about = dcp.FileSystemReader(place).read_metadata()
            for info in about.storage_data.values():
                info.relative_path = name
            (place / ".metadata").write_bytes(pickle.dumps(about))
            with refused("which is not beside it"):
                refuse_code(place)


def archives(folder, suite):
    """What is unpacked stays in the cache."""
    members = ["../../../evil.jsonl", str(folder / "evil.jsonl")]
    line = b'{"text": "a dog"}\n'
    for number, name in enumerate(members):
        for kind, pack in (("zip", zipped), ("tar", tar)):
            for split in ("train", "train[:1]"):
                place = folder / f"archive-{number}-{kind}"
                with suite.case(f"{kind} with {name}, {split}"):
                    plant(place / f"data.{kind}", pack({name: line, "good.jsonl": line}))
                    with suppress(DataError):
                        list(records(Source(dataset=str(place), split=split), ("text",)))
                    assert not [path for path in folder.parent.rglob("evil.jsonl") if "cache" not in path.parts]


def zipped(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def templates(folder, suite):
    """A tokenizer's templates are saved in files by their names."""
    corpus = folder / "corpus.jsonl"
    plant(corpus, b'{"source": "a dog", "target": "un chien"}\n' * 3)
    for number, name in enumerate(("../../evil", str(folder / "evil"), "a/../../../evil")):
        with suite.case(f"template {name}"):
            place = folder / f"tokenizer-{number}"
            tiny.tokenizer("seq2seq").save_pretrained(place)
            change(place / "tokenizer_config.json", chat_template=[{"name": name, "template": "x"},
                                                                   {"name": "default", "template": "x"}])  # fmt: skip
            config = TrainConfig(task="translation", output=folder / "run", data={"train": {"path": corpus}},
                                 tokenizer={"pretrained": str(place)})  # fmt: skip
            with suppress(ValueError):
                prepare.prepare(config, folder / f"prepared-{number}" / "data")
            assert not list(folder.rglob("evil.jinja"))


def links(folder, suite):
    victim = folder / "victim"
    for name in ("metrics.jsonl", "timing.jsonl"):
        place = folder / f"run-{name}"
        with suite.case(f"a link as {name}"):
            victim.write_text("mine")
            plant(place / "config.yaml", b"")
            plant(place / "manifest.json", b"{}")
            (place / name).symlink_to(victim)
            with refused("is a link"), RunDir(place).begun(resume=True):
                pass
            assert victim.read_text() == "mine"
    with suite.case("a link as the lock"):
        (folder / "locked").mkdir()
        (folder / "locked" / ".lock").symlink_to(victim)
        with refused("is a link"), Lock(folder / "locked").held():
            pass
        assert victim.read_text() == "mine"
    with suite.case("a link as a file that is being written"):
        part = folder / f".new.{os.getpid()}.part"
        part.symlink_to(victim)
        with written(folder / "new") as file:
            file.write("yours")
        assert victim.read_text() == "mine"
        assert not (folder / "new").is_symlink()
    with suite.case("a link in the folder of a demo"):
        plant(folder / "elsewhere" / "mine", b"x")
        plant(folder / "demo" / MARK, b"")
        (folder / "demo" / "runs").symlink_to(folder / "elsewhere")
        with _begun(folder / "demo"):
            assert not os.path.lexists(folder / "demo" / "runs")
        assert (folder / "elsewhere" / "mine").exists()
    with suite.case("a link as a checkpoint"):
        (folder / "checkpoints").mkdir()
        plant(folder / "other" / "a", b"x")
        checkpoints._seal(folder / "other")
        for step in range(3):
            (folder / "checkpoints" / checkpoints.name(step)).symlink_to(folder / "other")
        checkpoints.rotate(folder / "checkpoints", 1)
        assert (folder / "other" / "a").exists()


def tables(folder, suite):
    """A table says which corpus was scored: what has other bytes is not read, and nothing is fetched."""
    secret = folder / "secret"
    secret.write_text("top secret\n")
    rows = [{"text": "top secret"}]
    abouts = [{"path": str(secret), "format": "text", "sha256": None}, {"path": str(secret), "format": "text"},
              {"path": "../secret", "format": "jsonl", "sha256": ""},
              {"path": None, "format": "dataset", "dataset": ["evil/corpus", None, "train"], "sha256": None},
              {"path": None, "format": "dataset", "dataset": ["https://x.test/a", None, "train"]}]  # fmt: skip
    for number, about in enumerate(abouts):
        with suite.case(f"a table of {about}"):
            scores = write_scores(folder / f"scores-{number}", rows, corpus=about)
            ending = "jsonl" if about["format"] != "text" else "txt"
            kept = folder / f"kept-{number}.{ending}"
            code = cli.main(["prune", str(scores.folder), "--fraction", "0.1", "-o", str(kept)])
            assert code in (2, 3)
            assert not kept.exists()


def names(folder, suite):
    """Names of corpora and languages are shown, and are no files."""
    corpus = folder / "corpus.jsonl"
    plant(corpus, b'{"source": "a dog", "target": "un chien"}\n' * 3)
    before = set(folder.parent.rglob("*"))
    for number, (key, name) in enumerate([("name", "../../evil"), ("name", str(folder / "evil")),
                                          ("languages", "en-../../evil"), ("languages", "../evil-fr")]):  # fmt: skip
        with suite.case(f"{key} {name}"):
            source = {"path": corpus, key: name}
            config = TrainConfig(task="translation", output=folder / "run", tokenizer={"vocab": 300},
                                 data={"train": source, "valid": source})  # fmt: skip
            prepare.prepare(config, folder / f"named-{number}")
            new = set(folder.parent.rglob("*")) - before
            assert all(path.relative_to(folder).parts[0].startswith("named-") for path in new)
            assert not [path for path in new if "evil" in path.name]


def everything(folder, suite, parts):
    for part in parts:
        place = folder / part.__name__ / "inner"
        place.mkdir(parents=True)
        part(place, suite)


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", Path(tmp_path_factory.mktemp("cache")))


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_a_few(tmp_path, tally, capsys):
    with tally("paths", "security", WHAT) as suite:
        everything(tmp_path, suite, [checksums, splits, links, tables])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_all(tmp_path, tally, capsys, cache):
    with tally("paths", "security", WHAT) as suite:
        parts = [checksums, splits, descriptions, shards, archives, templates, links, tables, names]
        everything(tmp_path, suite, parts)
        assert suite.tried >= 50
