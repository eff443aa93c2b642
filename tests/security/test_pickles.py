"""Malicious pickles and code, everywhere that something is loaded: none of it runs."""

import json
import shutil
import sys

import pyarrow
import pyarrow.parquet
import pytest
import torch
import torch.distributed.checkpoint as dcp

import errornorm
from errornorm import cli
from errornorm.data.lines import DataError
from errornorm.training import configfile, run
from errornorm.training.pickles import refuse_code
from tests.score_tables import write as write_scores
from tests.scoring.models import save
from tests.security.traps import Trap, array, change, code, copy, plant, raw, reseal, saved, tar
from tests.training.runs import write

BUG = 1  # the exit code of an error that nobody has thought of


def index(folder, name, shard):
    plant(folder / name, json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": shard}}).encode())


def no_weights(folder):
    for path in folder.glob("model*.safetensors*"):
        path.unlink()


# Where the trap goes in a folder with a model, and as what.
def bin_zip(folder, trap, mark):
    no_weights(folder)
    plant(folder / "pytorch_model.bin", saved(trap))


def bin_legacy(folder, trap, mark):
    no_weights(folder)
    plant(folder / "pytorch_model.bin", saved(trap, modern=False))


def bin_raw(folder, trap, mark):
    no_weights(folder)
    plant(folder / "pytorch_model.bin", raw(trap, 0))


def bin_shards(folder, trap, mark):
    no_weights(folder)
    index(folder, "pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin")
    plant(folder / "pytorch_model-00001-of-00001.bin", saved(trap))


def safetensors(folder, trap, mark):
    plant(folder / "model.safetensors", raw(trap))


def arguments(folder, trap, mark):
    plant(folder / "training_args.bin", saved(trap))


def model_code(folder, trap, mark):
    change(folder / "config.json", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
           model_type="evil")  # fmt: skip
    plant(folder / "evil.py", code(mark).encode())


def model_code_of_a_known_type(folder, trap, mark):
    change(folder / "config.json", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})
    plant(folder / "evil.py", code(mark).encode())


def tokenizer_code(folder, trap, mark):
    change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Slow", "evil.Fast"]},
           tokenizer_class="Evil")  # fmt: skip
    plant(folder / "evil.py", code(mark).encode())


def generate_code(folder, trap, mark):
    plant(folder / "custom_generate" / "generate.py", code(mark).encode())


def tokenizer(folder, trap, mark):
    plant(folder / "tokenizer.json", raw(trap))


def generation(folder, trap, mark):
    plant(folder / "generation_config.json", raw(trap))


def ours(folder, trap, mark):
    plant(folder / "errornorm.json", raw(trap, 0))


def adapter(folder, trap, mark):
    about = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "target_modules": ["lm_head"], "r": 2}
    plant(folder / "adapter_config.json", json.dumps(about).encode())
    plant(folder / "adapter_model.bin", saved(trap))


def attention(folder, trap, mark):
    change(folder / "config.json", attn_implementation="evil/kernel", _attn_implementation="evil/kernel")
    plant(folder / "evil" / "kernel.py", code(mark).encode())


MODEL = [bin_zip, bin_legacy, bin_raw, bin_shards, safetensors, arguments, model_code, model_code_of_a_known_type,
         tokenizer_code, generate_code, tokenizer, generation, ours, adapter, attention]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "model", "gpt2")


def loaded(folder, plant_it, number, place):
    """Plant one trap, let a verb load the folder, and see that it was refused or ignored."""
    mark, text = place / f"ran-{number}", place / "text.txt"
    plant_it(folder, Trap(mark, number), mark)
    text.write_text("un chien\n", encoding="utf-8")
    verbs = [
        ["generate", str(folder), str(text), "--beams", "1", "--max-new-tokens", "2"],
        ["evaluate", str(folder), str(text), "--limit", "1"],
        ["score", str(text), "--model", str(folder), "-o", str(place / f"scores-{number}")],
    ]
    result = cli.main(verbs[number % len(verbs)])
    assert not mark.exists(), "it ran"
    assert result != BUG
    assert "evil" not in sys.modules


@pytest.mark.parametrize("number", [0, 4, 6])
def test_a_folder_with_a_model(model, tmp_path, number, capsys):
    loaded(copy(model, tmp_path / "model"), MODEL[number], number, tmp_path)


@pytest.mark.slow
def test_folders_with_models(model, tmp_path, tally, capsys):
    with tally("pickles-models", "security", "pickles and code in a model's folder, which is evaluated, scored or "
               "writes; a case fails if any of it runs") as suite:  # fmt: skip
        for number, plant_it in enumerate(MODEL):
            with suite.case(plant_it.__name__):
                loaded(copy(model, tmp_path / "model"), plant_it, number, tmp_path)


# A file of a run that goes on, and what it holds instead.
RUN = {
    "checkpoints/{step}/optimizer.pt": [saved, lambda trap: saved(trap, modern=False), raw],
    "checkpoints/{step}/scheduler.pt": [saved, lambda trap: raw(trap, 0)],
    "checkpoints/{step}/rng_state.pth": [saved, raw],
    "checkpoints/{step}/model.safetensors": [raw],
    "checkpoints/{step}/pytorch_model.bin": [saved, raw],  # in place of model.safetensors
    "checkpoints/{step}/training_args.bin": [saved, raw],
    "checkpoints/{step}/trainer_state.json": [raw],
    "checkpoints/{step}/scaler.pt": [saved],
    "checkpoints/{step}/optimizer.bin": [saved],
    "checkpoints/{step}/custom_checkpoint_0.pkl": [raw],
    "checkpoints/{step}/adapter_model.bin": [saved],
    "checkpoints/{step}/pytorch_model_fsdp_0/.metadata": [raw],
    "data/groups.npy": [array, raw],
    "data/source.tokens": [raw],
    "data/counts.json": [raw],
    "data/tokenizer/tokenizer.json": [raw],
    "config.yaml": [lambda trap: f"task: !!python/object/apply:builtins.open ['{trap.mark}', w]\n".encode()],
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A configuration, and its run that stopped at step 9."""
    config = write(tmp_path_factory.mktemp("run"), records=60)
    run.train(configfile.load(config))
    folder = config.parent / "run"
    for name in ("model", "checkpoints/step-00000012"):
        shutil.rmtree(folder / name)
    (folder / "evaluation.json").unlink()
    return config


def resumed(config, folder, name, content):
    """Plant a file, and go on with the run."""
    step = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))[-1]
    path = folder / name.format(step=step)
    if path.name == "pytorch_model.bin":
        no_weights(path.parent)
    plant(path, content)
    for sealed in (folder / "data", folder / "checkpoints" / step):
        reseal(sealed)
    return cli.main(["train", str(config), "--set", f"output={folder}", "--resume"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_runs_that_go_on(stopped, tmp_path, tally, capsys):
    cases = [(name, form) for name, forms in RUN.items() for form in forms]
    with tally("pickles-checkpoints", "security", "pickles in a run that goes on, with right checksums; a case fails "
               "if one runs") as suite:  # fmt: skip
        for number, (name, form) in enumerate(cases):
            mark = tmp_path / f"ran-{number}"
            with suite.case(name):
                folder = copy(stopped.parent / "run", tmp_path / "run")
                code = resumed(stopped, folder, name, form(Trap(mark, number)))
                told = capsys.readouterr().err
                assert not mark.exists(), "it ran"
                assert "Traceback" not in told
                assert code in (0, 2, 3), told


# What a sharded checkpoint says about itself.
def sharded(folder):
    weights = {"model": torch.nn.Linear(2, 2).to(torch.bfloat16).state_dict(), "steps": 3}
    dcp.save(weights, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_the_description_of_shards(tmp_path):
    sharded(tmp_path / "good" / "model")
    refuse_code(tmp_path / "good")
    for number in range(5):
        mark = tmp_path / f"ran-{number}"
        plant(tmp_path / "bad" / "model" / ".metadata", raw(Trap(mark, number), (0, 2, 4)[number % 3]))
        with pytest.raises(DataError, match="not the description of a checkpoint"):
            refuse_code(tmp_path / "bad")
        assert not mark.exists()


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_entries_of_shards_that_are_no_tensors(tmp_path):
    mark = tmp_path / "ran"
    weights = {"model": {"weight": torch.zeros(2, 2)}, "steps": Trap(mark)}
    dcp.save(weights, storage_writer=dcp.FileSystemWriter(tmp_path / "bad"), no_dist=True)
    with pytest.raises(DataError, match="more than numbers and texts in it"):
        refuse_code(tmp_path / "bad")
    assert not mark.exists()
    (tmp_path / "bad" / ".metadata").rename(tmp_path / "bad" / "__0.metadata")
    with pytest.raises(DataError, match="more than numbers and texts in it"):
        refuse_code(tmp_path / "bad")


def test_the_state_of_an_accelerate_loop(tmp_path):
    from tests.integrations.test_accelerate import Run

    loop = Run(errornorm.ent_fraction(0.2, scope="running"), 2)
    loop.accelerator.save_state(str(tmp_path / "state"))
    plant(tmp_path / "state" / "custom_checkpoint_0.pkl", raw(Trap(tmp_path / "ran")))
    with pytest.raises(RuntimeError, match="does not match the number of registered objects"):
        loop.accelerator.load_state(str(tmp_path / "state"))
    (tmp_path / "state" / "custom_checkpoint_0.pkl").unlink()
    loop.accelerator.load_state(str(tmp_path / "state"))
    plant(tmp_path / "state" / "errornorm_state.json", raw(Trap(tmp_path / "ran")))
    with pytest.raises(ValueError, match="utf-8"):
        loop.accelerator.load_state(str(tmp_path / "state"))
    (tmp_path / "state" / "errornorm_state.json").unlink()
    with pytest.raises(ValueError, match="holds no state of the objective"):
        loop.accelerator.load_state(str(tmp_path / "state"))
    assert not (tmp_path / "ran").exists()


# Corpora.
class Pickled(pyarrow.ExtensionType):
    """As Ray Data registers one: a value is unpickled when somebody looks at it."""

    def __init__(self):
        super().__init__(pyarrow.binary(), "tests.pickled")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()

    def __arrow_ext_scalar_class__(self):
        return PickledScalar


class PickledScalar(pyarrow.ExtensionScalar):
    def as_py(self, **options):
        import pickle

        return pickle.loads(self.value.as_py())


@pytest.fixture
def registered():
    pyarrow.register_extension_type(Pickled())
    yield Pickled()
    pyarrow.unregister_extension_type("tests.pickled")


def test_columns_that_unpickle(registered, tmp_path, capsys):
    mark, path = tmp_path / "ran", tmp_path / "corpus.parquet"
    column = pyarrow.ExtensionArray.from_storage(registered, pyarrow.array([raw(Trap(mark))], pyarrow.binary()))
    text = pyarrow.array(["a dog"])
    nested = pyarrow.StructArray.from_arrays([column, text], ["inner", "other"])
    for kind in (column, nested):
        pyarrow.parquet.write_table(pyarrow.table({"source": text, "target": text, "extra": kind}), path)
        command = ["corrupt", str(path), "--noise", "untranslated=1", "-o", str(tmp_path / "noisy.jsonl")]
        assert cli.main(command) == 3
        assert "has the type 'tests.pickled'" in capsys.readouterr().err
    scores = write_scores(tmp_path / "scores", [{"text": "un chien", "fields": {"site": "a"}}])
    part = scores.parts[0]
    table = pyarrow.parquet.read_table(part)
    fake = table.set_column(table.column_names.index("fields"), "fields", column)
    pyarrow.parquet.write_table(fake, part)
    assert cli.main(["summary", str(scores.folder), "--group-by", "site"]) == 3
    assert "has another type" in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.slow
def test_columns_of_ray(tmp_path, tally, capsys):
    pytest.importorskip("ray.data")
    from ray.data._internal.object_extensions.arrow import ArrowPythonObjectType

    with tally("pickles-corpora", "security", "pickles and code in corpora, tables of scores and data sets; a case "
               "fails if any runs") as suite:  # fmt: skip
        mark, path = tmp_path / "ran", tmp_path / "corpus.parquet"
        kind = ArrowPythonObjectType()
        for number in range(5):
            column = pyarrow.ExtensionArray.from_storage(
                kind, pyarrow.array([raw(Trap(mark, number))], kind.storage_type)
            )
            with suite.case(f"Ray's pickled objects {number}"):
                text = pyarrow.array(["a dog"])
                pyarrow.parquet.write_table(pyarrow.table({"text": text, "extra": column}), path)
                assert cli.main(["corrupt", str(path), "--target-field", "text", "--noise", "typos=1",
                                 "-o", str(tmp_path / "noisy.jsonl")]) == 3  # fmt: skip
                assert not mark.exists()


def data_set(folder, number, mark):
    trap = Trap(mark, number)
    archive = {f"0.{ending}": raw(trap) for ending in ("pyd", "pickle", "pkl")}
    archive |= {"0.npy": array(trap), "0.pth": saved(trap), "0.txt": b"a dog"}
    files = [
        {"data.pkl": raw(trap)},
        {f"{folder.name}.py": code(mark).encode(), "data.pkl": raw(trap)},
        {"data.tar": tar(archive)},
        {
            "data.pickle": raw(trap, 0),
            "README.md": b"---\nconfigs:\n- config_name: default\n  data_files: data.pickle\n---\n",
        },
        {"data.npy": array(trap)},
        {"data.pth": saved(trap)},
        {"data.arrow": raw(trap)},
        {"data.parquet": raw(trap)},
        {"dataset_info.json": raw(trap), "state.json": raw(trap), "data.jsonl": b'{"text": "a dog"}\n'},
    ]
    for name, content in files[number].items():
        plant(folder / name, content)


@pytest.mark.slow
def test_data_sets(tmp_path, tally, monkeypatch):
    from errornorm.training.config import Source
    from errornorm.training.corpora import records

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    with tally("pickles-corpora", "security", "pickles and code in corpora, tables of scores and data sets; a case "
               "fails if any runs") as suite:  # fmt: skip
        for number in range(9):
            for split in ("train", "train[:1]"):
                mark, folder = tmp_path / f"ran-{number}", tmp_path / f"set-{number}"
                with suite.case(f"data set {number} {split}"):
                    data_set(folder, number, mark)
                    try:
                        list(records(Source(dataset=str(folder), split=split), ("text",)))
                    except DataError:
                        pass
                    finally:
                        assert not mark.exists(), "it ran"
