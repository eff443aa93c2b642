"""Three sizes of everything: seconds, minutes, or as in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .cells import Cell, canonical, merged

Settings = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """A size.

    Args:
        name: On the command line.
        about: For the page.
        tasks: By corpus: the recipe of its files, and the sections of a training configuration.
        noise: Shares of noise in the tables about it.
        fractions: Of the sentences that are pruned.
        starts: Steps from which methods act, in the figure about them.
        needs_data: Whether files must be given.
        words: By a setting, what the paper says about it, or why it is not as in the paper.
    """

    name: str
    about: str
    tasks: Mapping[str, Settings]
    noise: tuple[float, ...]
    fractions: tuple[float, ...]
    starts: tuple[int, ...]
    needs_data: bool = False
    words: Mapping[str, str] = field(default_factory=dict)

    def start(self, corpus: str) -> int:
        """The step from which truncation acts, where the paper does not say."""
        return int(self.tasks[corpus]["start"])

    def cell(self, item: str, row: str, column: str, corpus: str, **more: Any) -> Cell:
        changes = more.pop("changes", {})
        settings = merged({k: v for k, v in self.tasks[corpus].items() if k != "start"}, changes)
        return Cell(item=item, row=row, column=column, scale=self.name, corpus=corpus, settings=canonical(settings),
                    **more)  # fmt: skip


def _sized(width: int, layers: int) -> Settings:
    names = ("encoder_layers", "decoder_layers")
    return {"d_model": width, "init_std": width**-0.5, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width,
            "dropout": 0.0, **dict.fromkeys(names, layers)}  # fmt: skip


def _tiny(recipe: Settings, task: str = "translation") -> Settings:
    causal = {"n_embd": 32, "n_layer": 1, "n_head": 2}
    return {
        "task": task,
        "recipe": recipe,
        "start": 12,
        "max_length": 64,
        "model": {"preset": "tiny", "overrides": causal if task == "language-modeling" else _sized(32, 1)},
        "tokenizer": {"vocab": 400},
        "training": {"steps": 24, "tokens_per_step": 500, "learning_rate": 6e-3, "warmup": 5, "schedule": "linear"},
        "evaluation": {"limit": 12, "max_new_tokens": 16},
        "logging": {"every": 2},
    }


TINY = Scale(
    name="tiny",
    about="Captions of the grammar inside the package; seconds for a cell. It shows that everything runs, no more.",
    tasks={
        "translation": _tiny({"of": "captions", "train": 300, "valid": 20, "test": 20}),
        "lm": _tiny({"of": "caption-text", "train": 300, "valid": 20, "test": 20}, "language-modeling"),
        "multilingual": _tiny({"of": "caption-directions", "sizes": [300, 300], "valid": 12, "test": 12}),
        "mismatched": _tiny({"of": "caption-directions", "sizes": [120, 300], "valid": 12, "test": 12}),
        "bilingual": _tiny({"of": "captions", "train": 300, "valid": 20, "test": 20}),
        "summarization": _tiny({"of": "caption-summaries", "train": 300, "valid": 20, "test": 20}, "summarization")
        | {"start": 0, "pretrain": {"recipe": {"of": "captions", "train": 300, "valid": 20, "test": 20}}},
        "everyday": _tiny({"of": "captions", "train": 240, "valid": 20, "test": 20}),
        "manuals": _tiny({"of": "captions", "train": 260, "valid": 20, "test": 20}),
        "natural": _tiny({"of": "natural-captions", "train": 300, "valid": 20, "test": 20}),
    },
    noise=(0.0, 0.2, 0.5),
    fractions=(0.2, 0.6),
    starts=(0, 12),
)


def _small(recipe: Settings, changes: Settings, task: str = "translation") -> Settings:
    return merged(
        {
            "task": task,
            "recipe": recipe,
            "start": 300,
            "max_length": 100,
            "model": {"preset": "tiny", "overrides": {"dropout": 0.0}},
            "tokenizer": {"vocab": 4000},
            "training": {"steps": 600, "tokens_per_step": 1600, "learning_rate": 2e-3, "warmup": 100},
            "evaluation": {"limit": 500, "max_new_tokens": 80},
            "logging": {"every": 10},
        },
        changes,
    )


SMALL = Scale(
    name="small",
    about="Transformers of 2+2 layers (of language modelling 3) and width 128, 400 to 600 steps of 1,536 to 2,800 "
    "tokens with padding; minutes for a cell on one thread. For summarization and natural noise the model has learnt "
    "from other text before, by likelihood.",
    tasks={
        "translation": _small({"of": "multi30k", "languages": ["fr"]}, {}),
        "everyday": _small({"of": "tatoeba-en-fr"}, {}),
        "manuals": _small({"of": "python-docs-en-fr", "words": 30}, {}),
        "lm": _small(
            {"of": "wikitext-2"},
            {"max_length": 128, "model.overrides": {}, "training.tokens_per_step": 1536, "evaluation.limit": 1000},
            "language-modeling",
        ),
        "multilingual": _small({"of": "multi30k", "languages": ["fr", "de", "cs"]}, {"evaluation.limit": 150}),
        # 400K of 1M sentences in the paper.
        "mismatched": _small(
            {"of": "multi30k", "languages": ["cs", "fr"], "sizes": [11_600, 29_000]}, {"evaluation.limit": 200}
        ),
        "bilingual": _small({"of": "multi30k", "languages": ["cs"]}, {}),
        "summarization": _small(
            {"of": "debian-long-to-short", "valid": 1000, "test": 1000},
            {
                "start": 0,  # "we can rely on the pre-trained model to make an estimate of the data quality"
                "max_length": 128,
                "training.steps": 500,
                "training.tokens_per_step": 2800,
                "training.learning_rate": 1e-3,
                "evaluation.max_new_tokens": 32,
                "pretrain": {
                    "recipe": {"of": "debian-gaps", "valid": 1000, "test": 1000},
                    "training.steps": 1600,
                    "training.learning_rate": 2e-3,
                },
            },
            "summarization",
        ),
        "natural": _small(
            {"of": "europarl-en-fr-natural-noise", "words": 20},
            {
                "start": 0,
                "training.steps": 400,
                "training.learning_rate": 1e-3,
                "pretrain": {
                    "recipe": {"of": "europarl-en-fr", "words": 20},
                    "training.steps": 3000,
                    "training.learning_rate": 2e-3,
                },
            },
        ),
    },
    noise=(0.0, 0.2, 0.5),
    fractions=(0.2, 0.4, 0.6),
    starts=(0, 100, 200, 300, 500),
    needs_data=True,
)


def _paper(recipe: Settings, changes: Settings, task: str = "translation") -> Settings:
    return merged(
        {
            "task": task,
            "recipe": recipe,
            "start": 500,
            "max_length": 256,
            "model": {"preset": "transformer_iwslt_de_en"},
            "tokenizer": {"vocab": 32_000},
            "training": {"steps": 100_000, "tokens_per_step": 32_000, "learning_rate": 5e-4, "warmup": 4000,
                         "precision": "bfloat16"},
            "evaluation": {"max_new_tokens": 200, "tokenize": "flores200"},
            "logging": {"every": 100},
        },
        changes,
    )  # fmt: skip


_EIGHT = ["es", "fa", "fr", "it", "ko", "ru", "tr", "zh"]
_HF_BETAS = [0.9, 0.999]  # of the Trainer of transformers
PAPER = Scale(
    name="paper",
    about="The paper's models and data, on GPUs.",
    tasks={
        "translation": _paper({"of": "opus-100", "languages": ["fr"]}, {}),
        "lm": _paper(
            {"of": "wikitext-103"},
            {
                "model": {"preset": "gpt2-large"},
                "tokenizer": {"pretrained": "openai-community/gpt2-large", "download": True},
                "max_length": 1024,
                "training.steps": 9_000,
                "training.tokens_per_step": 65_536,
                "training.learning_rate": 2e-4,
                "training.warmup": 500,
                "training.betas": _HF_BETAS,
                "training.gradient_checkpointing": True,
                "evaluation": {},
            },
            "language-modeling",
        ),
        "multilingual": _paper({"of": "opus-100", "languages": _EIGHT}, {"tokenizer.vocab": 64_000}),
        "mismatched": _paper({"of": "opus-100", "languages": ["gl", "fr"], "sizes": [400_000, 1_000_000]}, {}),
        "bilingual": _paper({"of": "paracrawl", "languages": ["cs"]}, {}),
        "directions": _paper({"of": "opus-100", "languages": ["de", "fr", "it", "es"]}, {}),
        "summarization": _paper(
            {"of": "cnn-dailymail"},
            {
                "model": {"pretrained": "google-t5/t5-small", "download": True},
                "tokenizer": {},
                "prefix": "summarize: ",
                "start": 0,
                "max_length": 512,
                "training.steps": 27_000,
                "training.tokens_per_step": 16_384,
                "training.learning_rate": 5e-5,
                "training.warmup": 500,
                "training.schedule": "linear",
                "training.betas": _HF_BETAS,
                "evaluation": {"max_new_tokens": 128},
            },
            "summarization",
        ),
        "everyday": _paper({"of": "tatoeba-en-fr"}, {"tokenizer.vocab": 16_000, "training.steps": 30_000}),
        "manuals": _paper(
            {"of": "python-docs-en-fr", "words": 250}, {"tokenizer.vocab": 8000, "training.steps": 10_000}
        ),
        "natural": _paper(
            {"of": "europarl-en-fr-natural-noise", "words": 250},
            {
                "start": 0,
                "tokenizer.vocab": 16_000,
                "training.steps": 4_000,
                "training.learning_rate": 2e-4,
                "pretrain": {
                    "recipe": {"of": "europarl-en-fr", "words": 250},
                    "training.steps": 30_000,
                    "training.learning_rate": 5e-4,
                },
            },
        ),
    },
    noise=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    fractions=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    starts=(0, 100, 200, 500, 1000),
    words={
        "translation.recipe": "1M parallel sentences of En-Fr data from the opus-100 dataset",
        "translation.model": "the fairseq implementation of the standard Transformer architecture, "
        "transformer_iwslt_de_en, for all of our machine translation experiments",
        "translation.tokenizer": "not in the paper: one BPE for both languages",
        "translation.max_length": "not in the paper: longer pairs are left out",
        "translation.training": "not in the paper: batch, learning rate and steps are those usual for this "
        "architecture",
        "translation.start": "not in the paper for translation: as for language modelling",
        "translation.evaluation": "BLEU|nrefs:1|case:mixed|eff:no|tok:flores200|smooth:exp; the beam is not in the "
        "paper",
        "lm.recipe": "WikiText-103, 100M tokens; ours has an end token where a line ends",
        "lm.model": "We use the Huggingface implementation of GPT2-large ... from scratch",
        "lm.tokenizer": "not in the paper: the model's own",
        "lm.max_length": "not in the paper: the positions of the model",
        "lm.training.steps": "for 5 epochs: 118M tokens of the GPT-2 tokenizer, 1,800 steps each",
        "lm.training.tokens_per_step": "not in the paper: 64 rows of 1,024",
        "lm.training.learning_rate": "not in the paper",
        "lm.start": "horizontal red line at around training iteration 500",
        "multilingual.recipe": "a single model for eight directions en-{es,fa,fr,it,ko,ru,tr,zh} ... using 1M parallel "
        "sentences for each direction",
        "multilingual.tokenizer": "not in the paper: twice the vocabulary, for five scripts",
        "mismatched.recipe": "En-Gl is low resource with 400k parallel sentences and En-Fr is high resource with 1M; "
        "of En-Gl these are the first of 515k",
        "bilingual.recipe": "separate models for en-{cs,ru,zh} from the ParaCrawl V9 corpus ... WMT22 test set; En-Cs "
        "(55M), En-Ru (50M), En-Zh (13M) in the paper, and whatever the files have here",
        "directions.recipe": "4 translation directions En-{De, Fr, It, Es} from the opus-100 dataset",
        "summarization.recipe": "CNN/Daily Mail, 286K article-summary pairs",
        "summarization.model": "two different models: T5-small and BART-base, the Huggingface implementations",
        "summarization.prefix": "not in the paper: what T5 was trained with",
        "summarization.max_length": "not in the paper: longer articles are cut",
        "summarization.training": "not in the paper: 3 epochs of 32 articles a step, the defaults of the Trainer",
        "summarization.start": "Since we can rely on the pre-trained model to make an estimate of the data quality, we "
        "do not need to pre-define a threshold",
        "natural": "not in the paper; local data, from --data, as at the scale small",
        "everyday": "not in the paper; local data, from --data, as at the scale small",
        "manuals": "not in the paper; local data, from --data, as at the scale small",
        "noise": "{10%, 20%, 30%, 40% 50%} of the size of the original clean corpus",
        "fractions": "Figure 6; the text speaks of 10%-20% and 60%",
        "starts": "we vary this iteration in {0, 100, 200, 500, 1000} parameter updates",
        "seeds": "the average results of three runs with different random seeds",
    },
)
SCALES = {scale.name: scale for scale in (TINY, SMALL, PAPER)}
