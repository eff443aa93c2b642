"""The axolotl plug-in, driven the way axolotl does it, without axolotl: it pins versions that are not ours."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from transformers import Trainer, TrainingArguments

import errornorm
from tests.architectures import batch, build

EXAMPLE = Path(__file__).parents[2] / "examples" / "axolotl.yaml"
PLUGIN = "errornorm.integrations.axolotl.ErrorNormPlugin"
METHODS = (
    "register", "get_input_args", "get_training_args_mixin", "load_datasets", "pre_model_load", "post_model_build",
    "pre_lora_load", "post_lora_load", "post_model_load", "get_trainer_cls", "post_trainer_create", "get_training_args",
    "get_collator_cls_and_kwargs", "create_optimizer", "create_lr_scheduler", "add_callbacks_pre_trainer",
    "add_callbacks_post_trainer", "post_train", "post_train_unload",
)  # fmt: skip


class Settings(dict):
    """Like axolotl's: None where nothing is set."""

    def __getattr__(self, name):
        return self.get(name)


class Base(BaseModel):
    """Some of axolotl's own settings."""

    model_config = ConfigDict(populate_by_name=True)

    plugins: list[str]
    learning_rate: float = 1e-3
    rl: str | None = None
    cut_cross_entropy: bool | None = None
    use_eaft: bool | None = None


def load(path):
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


@pytest.fixture
def plugin(monkeypatch):
    base = ModuleType("axolotl.integrations.base")
    base.BasePlugin = type("BasePlugin", (), {name: lambda self, *args, **options: None for name in METHODS})
    for name, module in {
        "axolotl": ModuleType("axolotl"),
        "axolotl.integrations": ModuleType("axolotl.integrations"),
        "axolotl.integrations.base": base,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "errornorm.integrations.axolotl", raising=False)
    yield load(PLUGIN)()
    sys.modules.pop("errornorm.integrations.axolotl", None)


def validated(plugin, **settings):
    """Axolotl makes one model of its settings and those of all plug-ins, and passes on what is not None."""
    merged = type("Merged", (Base, load(plugin.get_input_args())), {})
    return Settings(merged(plugins=[PLUGIN], **settings).model_dump(exclude_none=True))


def trainer(tmp_path, name="gpt2", **options):
    rows = batch(name, rows=16)
    data = [{key: value[i] for key, value in rows.items()} for i in range(16)]
    args = TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        learning_rate=1e-2, logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
        dataloader_pin_memory=False,
    )  # fmt: skip
    return Trainer(model=build(name), args=args, train_dataset=data, **options)


def test_it_trains(plugin, tmp_path):
    cfg = validated(plugin, errornorm="ent_fraction(0.25)", errornorm_options={"label_smoothing": 0.1})
    run = trainer(tmp_path)
    before = [p.detach().clone() for p in run.model.parameters()]
    plugin.register({"plugins": [PLUGIN]})
    plugin.post_trainer_create(cfg, run)
    run.train()
    logs = [row for row in run.state.log_history if "loss" in row]
    assert plugin.handle.loss.objective.spec == errornorm.ent_fraction(0.25).spec
    assert plugin.handle.loss.label_smoothing == 0.1
    assert plugin.handle.loss.steps_taken == len(logs) == 2
    assert all(row["errornorm/kept"] == pytest.approx(0.75, abs=0.05) for row in logs)
    assert any(not torch.equal(a, b) for a, b in zip(before, run.model.parameters(), strict=True))


def test_the_example_is_a_configuration(plugin, tmp_path):
    settings = yaml.safe_load(EXAMPLE.read_text())
    assert settings.pop("plugins") == [PLUGIN]
    cfg = validated(plugin, **{name: value for name, value in settings.items() if name.startswith("errornorm")})
    plugin.post_trainer_create(cfg, trainer(tmp_path))
    assert plugin.handle.loss.objective.spec == errornorm.ent_fraction(0.1, scope="running", start=200).spec
    assert plugin.handle.on_nan == "skip"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Field required"),
        ({"errornorm": "ent_fractoin(0.1)"}, "did you mean ent_fraction"),
        ({"errornorm": "ent_fraction(1.5)"}, "fraction=1.5"),
        ({"errornorm": "mle()", "use_eaft": True}, "use_eaft would bypass the objective"),
        ({"errornorm": "mle()", "cut_cross_entropy": True}, "cut_cross_entropy would bypass the objective"),
        ({"errornorm": "mle()", "rl": "dpo"}, "rl would bypass the objective"),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_is_loaded(plugin, settings, message):
    with pytest.raises(ValidationError, match=message):
        validated(plugin, **settings)


def test_a_loss_function_of_the_trainer_is_refused(plugin, tmp_path):
    run = trainer(tmp_path, compute_loss_func=lambda outputs, labels, num_items_in_batch=None: outputs.logits.sum())
    with pytest.raises(ValueError, match="compute_loss_func"):
        plugin.post_trainer_create(validated(plugin, errornorm="mle()"), run)


def test_without_axolotl(monkeypatch):
    monkeypatch.setitem(sys.modules, "axolotl", None)
    monkeypatch.delitem(sys.modules, "errornorm.integrations.axolotl", raising=False)
    with pytest.raises(ImportError, match="pip install axolotl"):
        importlib.import_module("errornorm.integrations.axolotl")
