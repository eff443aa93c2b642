"""Good configurations, and what is said about bad ones."""

import pytest

from errornorm.training.configfile import ConfigError, load

TRANSLATION = """\
task: translation
output: runs/first
objective: ent_fraction(0.1, start=500)
seeds: [0, 1]
data:
  train:
    path: train.jsonl
    source_field: translation.en
    limit: 1000
  valid:
    path: valid.jsonl
  max_length: 128
  temperature: 5
model:
  preset: small
tokenizer:
  vocab: 4000
training:
  steps: 2000
  learning_rate: 3e-4
  schedule: cosine
  betas: [0.9, 0.98]
  gradient_checkpointing: false
evaluation:
  every: 100
  metrics: [bleu, chrf]
  during: [likelihood, bleu]
  best: bleu
checkpoints:
  keep: 3
"""
SUMMARIES = """\
# Two corpora, one of them from a data set.
task: summarization
output: "runs/news"
data:
  train:
    - &news
      path: news.tsv
      columns: [source, target]
      name: news
    - dataset: some/where
      split: "train[:10%]"
  valid:
    <<: *news
    path: valid.tsv  # the rest is as above
  test: {path: test.tsv, format: tsv, limit: 50}
model: {pretrained: some/model, overrides: {dropout: 0.2}}
training:
  precision: bfloat16
  freeze: [encoder.]
  label_smoothing: .1
logging:
  report_to:
    - tensorboard
"""
LANGUAGE = """\
task: language-modeling
output: lm
data:
  train: {path: books.txt, text_field: text}
objective: mle
model:
  config:
    model_type: llama
    hidden_size: 64
training:
  steps: 10
  warmup: 0
  clip: 0
  weight_decay: 1.0e-2
evaluation:
  beams: 1
"""
GOOD = {"translation": TRANSLATION, "summaries": SUMMARIES, "language": LANGUAGE}
MINIMAL = "task: translation\noutput: o\ndata: {train: {path: x}}\n"


def read(folder, text, *sets):
    path = folder / "run.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, sets)


def refused(folder, text, *sets):
    """The lines about a text that is refused, without the folder."""
    with pytest.raises(ConfigError) as error:
        read(folder, text, *sets)
    return [line.replace(f"{folder}/", "") for line in str(error.value).split("\n")]
