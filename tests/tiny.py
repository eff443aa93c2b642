"""Tiny corpora, tokenizers, configurations and models, as training makes them."""

import functools
import json
from pathlib import Path

from errornorm.training import models, tokenizing
from errornorm.training.config import Data, Evaluation, Model, Source, TrainConfig, Training

PAIRS = [
    (f"a {size} {animal} {does} {time}", f"un {animal_fr} {size_fr} {does_fr} {time_fr}")
    for size, size_fr in (("small", "petit"), ("large", "grand"))
    for animal, animal_fr in (("dog", "chien"), ("cat", "chat"), ("bird", "oiseau"))
    for does, does_fr in (("runs", "court"), ("sleeps", "dort"), ("sings so that all of us hear it", "chante"))
    for time, time_fr in (("today", "aujourd'hui"), ("at night", "la nuit"))
]
SHAPES = {
    "t5": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32},
    "bart": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    "marian": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
               "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    "llama": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
}  # fmt: skip
CAUSAL = ("llama", "gpt2")


def task_of(name):
    return "language-modeling" if name in CAUSAL else "translation"


def config(task="translation", train=None, *, model=None, max_length=64, data=None, training=None, **sections):
    """A run on a corpus, which need not exist."""
    train = [train or Source(path=Path("none.jsonl"))] if not isinstance(train, list) else train
    return TrainConfig(
        task=task,
        output=Path("none"),
        data=Data(train=train, max_length=max_length, **data or {}),
        model=Model(**model or {"preset": "tiny"}),
        training=Training(**training or {}),
        evaluation=Evaluation(max_new_tokens=16),
        **sections,
    )


@functools.cache
def tokenizer(kind="seq2seq", tags=()):
    texts = [text for pair in PAIRS for text in pair]
    return tokenizing.train_bpe(texts, 320, kind, tags)


def model(name, seed=0, **options):
    """A tiny model of a type, in evaluation mode, with weights so large that its outputs differ."""
    asked = config(task_of(name), model={"config": {"model_type": name} | SHAPES[name]}, **options)
    built = models.build(asked, tokenizer(asked.kind), seed)
    for parameter in built.parameters():
        if parameter.dim() > 1 and parameter.requires_grad:  # not sinusoids
            parameter.data.mul_(5 if name == "t5" else 20)
    return built.eval()


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
