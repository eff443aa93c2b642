"""Small corpora and configurations, and the command line in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time

from errornorm.data.grammar import corpus
from errornorm.training.rundir import read_rows

BASE = """\
task: translation
output: {output}
objective: "{objective}"
data:
  train: {{path: {folder}/train.jsonl}}
  valid: {{path: {folder}/valid.jsonl}}
  test: {{path: {folder}/test.jsonl}}
  max_length: 40
model:
  preset: tiny
  overrides: {{d_model: 16, encoder_layers: 1, decoder_layers: 1, encoder_ffn_dim: 32, decoder_ffn_dim: 32,
    encoder_attention_heads: 2, decoder_attention_heads: 2, dropout: {dropout}}}
tokenizer: {{vocab: 300}}
training: {{steps: {steps}, tokens_per_step: 400, warmup: 3, learning_rate: 0.01}}
evaluation: {{every: 4, best: nll, beams: 1, max_new_tokens: 8}}
checkpoints: {{every: 3, keep: 2}}
logging: {{every: 1}}
"""
RUNNING = "ent_fraction(0.1, scope='running')"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "error"}


def write(folder, output="run", objective=RUNNING, steps=12, dropout=0.1, records=120):
    """Three corpora and run.yaml, whose path is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [{"source": caption.english, "target": text} for caption, text in corpus(records + 24)]
    for name, part in (("train", pairs[24:]), ("valid", pairs[:12]), ("test", pairs[12:24])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in part), "utf-8")
    path = folder / "run.yaml"
    path.write_text(BASE.format(folder=folder, output=folder / output, objective=objective, steps=steps,
                                dropout=dropout))  # fmt: skip
    return path
