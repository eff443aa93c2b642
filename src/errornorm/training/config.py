"""What a run is: one strict, typed tree of settings, from a YAML file or from Python.

Descriptions here are the documentation of the settings: the JSON schema and docs/config.md are made from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

try:
    from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
except ImportError as error:
    raise ImportError("training needs more packages: pip install errornorm[train]") from error

from .. import specs
from ..near import near
from . import alike
from .alike import WEIGHT
from .presets import PRESETS, Kind, kind_of
from .settings import MOST, Count, File, Share, or_one, refused

Preset = Annotated[str, Field(json_schema_extra={"enum": list(PRESETS)})]
Metric = Literal["likelihood", "bleu", "chrf", "rouge", "copies"]
Measure = Literal["nll", "perplexity", "bleu", "chrf", "rouge1", "rouge2", "rougeLsum", "copies"]
_PARTS = {"likelihood": ("nll", "perplexity"), "rouge": ("rouge1", "rouge2", "rougeLsum")}


class Settings(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", validate_default=False, use_attribute_docstrings=True, allow_inf_nan=False
    )


class Source(Settings):
    """A corpus: a file, two aligned text files, or a data set."""

    path: File | None = None
    """JSONL, TSV, text or Parquet; .gz and .zst of these. Relative to where the command runs."""
    pair: File | None = None
    """Target side of aligned text, when `path` is the source side."""
    dataset: str | None = None
    """Instead of `path`: a name or a folder for `datasets.load_dataset`."""
    subset: str | None = None
    """Of the data set."""
    split: str = "train"
    """Of the data set."""
    download: bool = False
    """Fetch the data set from the Hub; without this, it is a folder."""
    format: Literal["jsonl", "tsv", "text", "pairs", "parquet"] | None = None
    """By the file's name if not given."""
    columns: list[str] | None = None
    """Names of the columns of a TSV whose first line does not have them."""
    source_field: str = "source"
    """Field of the text that is read; a dot goes inside, as in `translation.en`."""
    target_field: str = "target"
    """Field of the text to be written. For language modelling see `text_field`."""
    text_field: str = "text"
    """Field of the text, for language modelling."""
    weights_field: str | None = None
    """Field of the tokens' weights, for the objective weighted: spans [start, end, weight] in characters of the target
    or text, as `errornorm prune --unit token` writes them; what no span covers has weight 1."""
    languages: str | None = None
    """Such as `en-fr`: several pairs in one model; each source text then begins with a tag such as `<2fr>`."""
    name: str | None = None
    """In reports; the file's name if not given."""
    limit: Count | None = None
    """Use this many records from the beginning."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path is not None and self.dataset is not None:
            raise refused("dataset", "there is a path too; give one of path and dataset")
        if self.path is None and self.dataset is None:
            raise refused("path", "is missing; give a path or a dataset")
        if self.pair is not None and self.path is None:
            raise refused("pair", "is the target side of path, which is missing; give path too")
        if self.subset is not None and self.dataset is None:
            raise refused("subset", "is for a dataset, and this is a path; remove it")
        if self.format == "pairs" and self.pair is None:
            raise refused("format", "pairs are two files; give the target side as pair")
        return self

    @field_validator("languages")
    @classmethod
    def _pair_of_languages(cls, text: str | None) -> str | None:
        if text is not None and ("".join(text.split()) != text or [*map(bool, text.split("-"))] != [True, True]):
            raise ValueError(f"{text!r} is not of the form en-fr")
        return text

    @property
    def label(self) -> str:
        return self.name or self.languages or (self.path.name if self.path else str(self.dataset))

    @property
    def tag(self) -> str | None:
        return None if self.languages is None else f"<2{self.languages.split('-')[1]}>"


class Data(Settings):
    """What is read."""

    train: Annotated[list[Source], Field(min_length=1, json_schema_extra=or_one)]
    """One corpus or a list of them."""
    valid: Annotated[list[Source], Field(json_schema_extra=or_one)] = []
    """One corpus or a list of them, for evaluation during training and the choice of the best checkpoint."""
    test: Annotated[list[Source], Field(json_schema_extra=or_one)] = []
    """One corpus or a list of them, for evaluation at the end; of several, the mean is reported too."""
    prefix: str = ""
    """Put before each source text, such as the "summarize: " of T5."""
    max_length: Annotated[int, Field(ge=2, le=MOST)] = 256
    """Longest source and target in tokens: longer pairs are left out and counted; summarization cuts long sources.
    Language modelling: length of the rows that text is packed into."""
    temperature: Annotated[float, Field(ge=1)] = 1.0
    """Over corpora: 1 draws in proportion to size, 5 flattens, 100 is nearly uniform."""

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _listed(cls, found: Any) -> Any:
        return [found] if isinstance(found, Source | dict) else found


class Model(Settings):
    """Which model: one of preset, config and pretrained; the preset tiny if none is given."""

    preset: Preset | None = None
    """Made from scratch, by the name of its size."""
    config: dict[str, Any] | None = None
    """Made from scratch: any transformers configuration, with its model_type."""
    pretrained: str | None = None
    """A folder or a name for `from_pretrained`; its tokenizer is used too."""
    download: bool = False
    """Fetch it from the Hub if it is not on this machine; without this, the network is not used."""
    overrides: dict[str, Any] = {}
    """Entries of the transformers configuration to change, such as dropout."""

    @field_validator("preset")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None and name not in PRESETS:
            raise ValueError(f"{name!r} is not one of {', '.join(PRESETS)}{near(name, PRESETS)}")
        return name

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [key for key in ("preset", "config", "pretrained") if getattr(self, key) is not None]
        if len(given) > 1:
            raise refused(given[-1], f"there is a {given[0]} too; give one of preset, config and pretrained")
        if self.config is not None and not isinstance(self.config.get("model_type"), str):
            raise refused("config.model_type", "must be given, as a text such as marian or llama")
        return self


class Tokenizer(Settings):
    """How text becomes tokens. A BPE is trained on the corpus unless there is one."""

    pretrained: str | None = None
    """A folder or a name for `AutoTokenizer.from_pretrained`."""
    download: bool = False
    """Fetch it from the Hub if it is not on this machine."""
    vocab: Annotated[int, Field(ge=300, le=2**24)] = 8000
    """Size of the BPE that is trained; one for both languages."""
    sample: Count = 1_000_000
    """Train it on this many records of each corpus."""


class Training(Settings):
    """How the model learns."""

    steps: Count = 1000
    """Optimizer steps."""
    tokens_per_step: Annotated[int, Field(ge=16, le=MOST)] = 4000
    """Tokens of a step, padding included, over all ranks and micro-batches; of a pair, the longer side counts."""
    micro_batches: Count = 1
    """Cut each step's batch on each rank into so many pieces: less memory, same result."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """At its highest."""
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """How the learning rate falls after the warm-up."""
    warmup: Annotated[int, Field(ge=0, le=MOST)] = 100
    """Steps in which it rises."""
    label_smoothing: Share = 0.0
    """Inside the objective, exactly once."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Of AdamW."""
    betas: Annotated[list[Share], Field(min_length=2, max_length=2)] = [0.9, 0.98]
    """Of AdamW."""
    clip: Annotated[float, Field(ge=0)] = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the model's products (autocast); weights and the objective stay in float32."""
    on_nan: Literal["raise", "skip"] = "raise"
    """A batch or gradient that is not finite: stop, or leave the step out."""
    freeze: list[str] = []
    """Parameters whose name begins so do not learn."""
    gradient_checkpointing: bool = False
    """Less memory, more time."""


class Evaluation(Settings):
    """What is measured."""

    every: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Steps between evaluations on `valid`; 0: at the end only."""
    metrics: list[Metric] | None = None
    """By the task if not given: likelihood; for translation bleu, chrf and copies; for summarization rouge, copies."""
    during: list[Metric] = ["likelihood"]
    """The same, for evaluations during training."""
    best: Measure | None = None
    """Keep the model of the best evaluation by this measure, which `during` must have; the last one if not given."""
    beams: Annotated[int, Field(ge=1, le=1000)] = 5
    """Of the search; 1 is greedy."""
    max_new_tokens: Count = 128
    """Longest output."""
    limit: Count | None = None
    """Evaluate on this many records."""
    tokenize: Literal["13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none", "flores200"] = "13a"
    """Of BLEU. `flores200` needs `flores_model`."""
    flores_model: File | None = None
    """The SentencePiece model of flores200; its checksum is verified."""

    @model_validator(mode="after")
    def _best_is_measured(self) -> Self:
        if self.best is not None and not any(self.best in _PARTS.get(name, (name,)) for name in self.during):
            add = next((name for name, parts in _PARTS.items() if self.best in parts), self.best)
            raise refused("best", f"{self.best} is not measured during training; add {add} to evaluation.during")
        return self


class Checkpoints(Settings):
    """What is kept to go on from."""

    every: Count = 500
    """Steps."""
    keep: Count = 2
    """The newest so many, and the best."""


class Logging(Settings):
    """What is told."""

    every: Count = 10
    """Steps from line to line of metrics.jsonl."""
    report_to: list[Literal["tensorboard", "wandb", "mlflow", "trackio"]] = []
    """Loggers of the trainer, beside metrics.jsonl."""


class TrainConfig(Settings):
    """A run."""

    task: Literal["translation", "summarization", "language-modeling"]
    """What the model learns to do."""
    output: File
    """The run directory; with several seeds, the folder of theirs."""
    data: Data
    objective: str | None = None
    """A method with its parameters, such as mle or ent_threshold(1.2); see `errornorm methods`. If not given, mle; for
    translation ent_auto(), which is likelihood where it finds no noise."""
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)] = [0]
    """A run for each."""
    model: Model = Model(preset="tiny")
    tokenizer: Tokenizer = Tokenizer()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    logging: Logging = Logging()

    @field_validator("objective")
    @classmethod
    def _objective(cls, text: str | None) -> str | None:
        if text is not None and (columns := specs.objective(text).columns - {WEIGHT}):
            raise ValueError(f"needs {', '.join(sorted(columns))} with each batch, which a corpus does not have")
        return text

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            twice = next(seed for seed in seeds if seeds.count(seed) > 1)
            raise ValueError(f"the seed {twice} is given twice; each seed is a run of its own")
        return seeds

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.model.preset is not None and self.kind not in PRESETS[self.model.preset]:
            able = ", ".join(name for name, kinds in PRESETS.items() if self.kind in kinds)
            raise refused("model.preset", f"{self.model.preset} cannot do {self.task}; choose one of {able}")
        if self.evaluation.best is not None and not (self.data.valid and self.evaluation.every):
            problem = "needs evaluations during training; give data.valid and evaluation.every, or remove it"
            raise refused("evaluation.best", problem)
        if self.evaluation.every and not self.data.valid:
            raise refused("evaluation.every", "has nothing to evaluate on; give data.valid, or remove it")
        for key in ("metrics", "during"):
            if self.kind == "causal" and set(getattr(self.evaluation, key) or ()) - {"likelihood"}:
                problem = "language-modeling has no targets to compare outputs with; give [likelihood]"
                raise refused(f"evaluation.{key}", problem)
        alike.languages(self.data)
        alike.weights(self.data, self.method)
        return self

    @property
    def weighted(self) -> bool:
        """Whether the corpora say how much each token counts."""
        return self.data.train[0].weights_field is not None

    @property
    def kind(self) -> Kind:
        return kind_of(self.task)

    @property
    def method(self) -> str:
        return self.objective or ("ent_auto()" if self.task == "translation" else "mle")
