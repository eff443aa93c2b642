"""A problem is told in one line, with its place, its setting and what to do."""

import pytest

from errornorm.evaluation.metrics import TOKENIZERS
from errornorm.training.config import Evaluation
from tests.configurations import MINIMAL, refused


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("training: {stepz: 5}", "4:12: training.stepz: unknown setting (did you mean steps?)"),
        ("steps: 5", "4:1: steps: unknown setting here; `steps` belongs to training"),
        ("every: 5", "4:1: every: unknown setting here; `every` belongs to evaluation, checkpoints or logging"),
        ("training: {seeds: [1]}", "4:12: training.seeds: unknown setting here; `seeds` belongs to the top level"),
        ("lr: 5", "4:1: lr: unknown setting here; did you mean `learning_rate`? It belongs to training"),
        ("training: {lr: 5}", "4:12: training.lr: unknown setting (did you mean learning_rate?)"),
        ("training: {Learning-Rate: 5}", "4:12: training.Learning-Rate: unknown setting (did you mean learning_rate?)"),
        ("learnin_rate: 5", "4:1: learnin_rate: unknown setting here (did you mean training.learning_rate?)"),
        ("checkpoints: {xyz: 1}", "4:15: checkpoints.xyz: unknown setting; checkpoints has every, keep"),
        ("training: {steps: abc}", "4:19: training.steps: must be a whole number, not 'abc'"),
        ("training: {steps: 0}", "4:19: training.steps: must be at least 1, not 0"),
        ("training: {steps: 1e3}", "4:19: training.steps: must be a whole number, not 1e3; write 1000"),
        ("training: {steps: yes}", "4:19: training.steps: must be a whole number, not 'yes'"),
        (
            "training: {steps: '10'}",
            "4:19: training.steps: must be a whole number, not '10'; it looks like a number but is a text: "
            "remove the quotes",
        ),
        (
            "training:\n  steps: 10,000",
            "5:10: training.steps: must be a whole number, not '10,000'; it looks like a number but is a text: "
            "write 10000",
        ),
        (
            "training:\n  clip: 0,5",
            "5:9: training.clip: must be a number, not '0,5'; it looks like a number but is a text: write 0.5",
        ),
        ("training: {clip: .nan}", "4:18: training.clip: must be a finite number, not .nan"),
        ("training: {label_smoothing: 1}", "4:29: training.label_smoothing: must be less than 1, not 1"),
        (
            "training: {gradient_checkpointing: yes}",
            "4:36: training.gradient_checkpointing: must be true or false, not 'yes'; write true",
        ),
        ("training: {betas: [0.9]}", "4:19: training.betas: needs at least 2 items, not 1"),
        (
            "training: {schedule: cosin}",
            "4:22: training.schedule: 'cosin' is not one of inverse_sqrt, cosine, linear, constant "
            "(did you mean cosine?)",
        ),
        (
            "training:",
            "4:1: training: must be a section (lines of key: value), not empty; write its settings below it, "
            "indented, or remove it",
        ),
        (
            "training:\n- steps: 5",
            "5:1: training: must be a section (lines of key: value), not a list; remove the dashes",
        ),
        ("evaluation: {metrics: bleu}", "4:23: evaluation.metrics: must be a list, not 'bleu'; write [bleu]"),
        ("objective: 5", "4:12: objective: must be a text, not 5; put it in quotes: '5'"),
        (
            "evaluation: {limit: None}",
            "4:21: evaluation.limit: must be a whole number, not 'None'; for none, leave it out",
        ),
        ("seeds: [1, 2, 1]", "4:8: seeds: the seed 1 is given twice; each seed is a run of its own"),
        ('"a\\nb": 2', "4:1: 'a\\nb': unknown setting; the top level has task, output, data, objective, seeds, model, "
         "tokenizer, training, evaluation, checkpoints, logging"),
        ("1: 2", "4:1: 1: a key must be a text; put it in quotes: '1'"),
        ("~: 1", "4:1: ~: a key must be a text; put it in quotes: '~'"),
        (".nan: 1", "4:1: .nan: a key must be a text; put it in quotes: '.nan'"),
        ("!!foo objective: mle", "4:1: objective: the tag foo is not allowed; remove it"),
        ('"\\udc80": 1', "4:1: \\udc80: half a character ('\\udc80'); write it whole, without escapes"),
        ('objective: "a\\ud800"', "4:12: objective: half a character ('\\ud800'); write it whole, without escapes"),
        ("model: {overrides: {1: 2}}", "4:21: model.overrides.1: a key must be a text; put it in quotes: '1'"),
        ("[a]: 2", "4:1: a key must be a word, not a list or a mapping"),
        ("objective: !!python/name:os.x y", "4:12: objective: the tag python/name:os.x is not allowed; remove it"),
        ("tokenizer: {vocab: 9999999999}", "4:20: tokenizer.vocab: must be at most 16777216, not 9999999999"),
        ("training: {steps: 2147483648}", "4:19: training.steps: must be at most 2147483647, not 2147483648"),
        ("evaluation: {beams: 100000000}", "4:21: evaluation.beams: must be at most 1000, not 100000000"),
        (f"training: {{steps: 0x{'f' * 5000}}}", f"4:19: training.steps: '0x{'f' * 55}...' cannot be read as int"),
        (f"model: {{overrides: {{a: {9**30}}}}}", f"4:24: model.overrides.a: '{9**30}' cannot be read as int"),
        ("training: {steps: !!int abc}", "4:19: training.steps: 'abc' cannot be read as int"),
        (
            "model: {preset: gpt2-large}",
            "4:9: model.preset: gpt2-large cannot do translation; choose one of tiny, small, transformer_iwslt_de_en",
        ),
        (
            "model: {preset: tiny, config: {}}",
            "4:23: model.config: there is a preset too; give one of preset, config and pretrained",
        ),
        ("model: {config: {}}", "4:9: model.config.model_type: must be given, as a text such as marian or llama"),
        (
            "evaluation: {best: nll}",
            "4:14: evaluation.best: needs evaluations during training; give data.valid and evaluation.every, or "
            "remove it",
        ),
        (
            "evaluation: {best: rouge1}",
            "4:14: evaluation.best: rouge1 is not measured during training; add rouge to evaluation.during",
        ),
        ("model: &m {overrides: {a: *m}}", "4:24: model.overrides.a: an alias of something that it is inside of; "
         "write it out"),
        ("training: {<<: 3}", "4:16: training.<<: must be an alias of a mapping, such as *defaults"),
    ],
)  # fmt: skip
def test_one_line_about_a_problem(tmp_path, text, want):
    assert refused(tmp_path, MINIMAL + text) == [f"run.yaml:{want}"]


@pytest.mark.parametrize(
    ("objective", "column", "words"),
    [
        ("ent_fractoin(0.1)", 12, "did you mean ent_fraction?"),
        ("ent_fraction(fracton=0.1)", 25, "did you mean fraction?"),
        ("ent_fraction(0.1, start=-5)", 30, "start=-5 is an optimizer step"),
        ("ent_fraction(0.1, 0.2)", 30, "unit=0.2 must be a quoted word"),
        ("ent_fraction(fraction=x)", 34, "column 23: a value must be a number"),
        ("'ent_fraction(fraction=x)'", 35, "column 23: a value must be a number"),
        ("'ent_fraction(unit=''x'')'", 12, "unit='x' is not one of token"),
        ("|\n  ent_fraction(fraction=x)", 12, "a value must be a number"),
        ("''", 13, "not of the form"),
    ],
)
def test_places_inside_an_objective(tmp_path, objective, column, words):
    (line,) = refused(tmp_path, f"{MINIMAL}objective: {objective}\n")
    assert line.startswith(f"run.yaml:4:{column}: objective: ")
    assert words in line


@pytest.mark.parametrize(
    ("train", "want"),
    [
        ("{}", "3:8: data.train.path: is missing; give a path or a dataset"),
        ("{path: a, dataset: b}", "3:25: data.train.dataset: there is a path too; give one of path and dataset"),
        ("{dataset: b, pair: c}", "3:28: data.train.pair: is the target side of path, which is missing; give path too"),
        ("{path: a, subset: b}", "3:25: data.train.subset: is for a dataset, and this is a path; remove it"),
        ("{path: a, format: pairs}", "3:25: data.train.format: pairs are two files; give the target side as pair"),
        ("{path: a, languages: fr}", "3:36: data.train.languages: 'fr' is not of the form en-fr"),
        ("{path: ''}", "3:22: data.train.path: a path cannot be ''; give the name of a file or folder"),
        ("a.txt", "3:15: data.train: must be a corpus (lines of key: value) or a list of them, not 'a.txt'; "
         "write path: a.txt"),
        ("[a.txt]", "3:16: data.train.0: must be a section (lines of key: value), not 'a.txt'; write path: a.txt"),
        ("[]", "3:15: data.train: needs at least 1 item, not 0"),
        ("[{path: a}, {pth: b}]", "3:28: data.train.1.pth: unknown setting (did you mean path?)"),
        ("[{path: a, languages: en-fr}, {path: b}]", "3:45: data.train.1.languages: is missing, but "
         "data.train.0.languages is given; give it to all corpora, or to none"),
    ],
)  # fmt: skip
def test_corpora(tmp_path, train, want):
    assert refused(tmp_path, f"task: translation\noutput: o\ndata: {{train: {train}}}\n") == [f"run.yaml:{want}"]


def test_all_problems_are_told_at_once_in_order(tmp_path):
    lines = refused(
        tmp_path, "task: translate\ndata:\n  train: {pth: a}\n  max_length: 1\ntraining:\n  steps: 1\n  steps: 2\n"
    )
    assert [line.split(": ")[:2] for line in lines] == [
        ["run.yaml:1:1", "output"],
        ["run.yaml:1:7", "task"],
        ["run.yaml:3:11", "data.train.pth"],
        ["run.yaml:4:15", "data.max_length"],
        ["run.yaml:7:3", "training.steps"],
    ]


def test_very_many_problems(tmp_path):
    lines = refused(tmp_path, MINIMAL + "".join(f"foo{i}: 1\n" for i in range(100)))
    assert len(lines) == 21
    assert lines[-1] == "run.yaml: and 80 more problems"
    assert all(len(line) < 300 for line in lines)


def test_choices_are_those_of_the_code():
    fields = Evaluation.model_fields
    assert set(fields["tokenize"].annotation.__args__) == set(TOKENIZERS)
