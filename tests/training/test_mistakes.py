"""Hundreds of mistakes in a configuration: each is refused, at its line and by the name of its setting."""

import random
import re

import pytest

from errornorm.data.lines import DataError
from errornorm.training.configfile import ConfigError, dump, load
from tests.configurations import GOOD, SUMMARIES, TRANSLATION

FREE = {"model_type", "hidden_size"}  # whatever transformers has


def keys_of(text):
    """Line, dotted key and indentation of each setting that stands on a line of its own."""
    found, above = [], []
    for number, row in enumerate(text.split("\n"), 1):
        match = re.match(r"( *)(- )?(\w+):", row)
        if match is None:
            continue
        indent = len(match[1]) + len(match[2] or "")
        above = [(depth, key) for depth, key in above if depth < indent] + [(indent, match[3])]
        found.append((number, [key for _, key in above], row))
    return found


def shifted(word):
    return word[:-2] + word[-1] + word[-2] if word[-1] != word[-2] else word + "x"


def with_row(text, number, *rows):
    lines = text.split("\n")
    lines[number - 1 : number] = rows
    return "\n".join(lines)


# Values that a setting cannot have.
WRONG = {
    "task": ["translate", "5", "[translation]", "", "null"],
    "output": ["5", "''", "[a]", "true", ""],
    "seeds": ["0", "[]", "[0, 0]", "[a]", "[-1]", "[1.5]", "{a: 1}"],
    "objective": ["ent_fractoin(0.1)", "ent_fraction(0.1", "ent_fraction(fracton=1)", "ent_fraction(2)", "5", "[mle]"],
    "data": ["5", "train.jsonl", "[]", "null"],
    "max_length": ["1", "'10'", "1.5", "abc", "", "-3", "1e2"],
    "temperature": ["0.5", "warm", "'1'", ".inf", "[1]"],
    "limit": ["0", "many", "1.0"],
    "preset": ["smal", "5", "[tiny]", "gpt2-large"],
    "vocab": ["10", "8k", "8,000"],
    "steps": ["0", "-1", "'2000'", "1e3", "true", "", "[5]", "{a: 5}", "5 steps"],
    "learning_rate": ["0", "-1e-3", "fast", "'3e-4'", "0,1", ".nan", ""],
    "schedule": ["cosin", "5", "", "[cosine]"],
    "betas": ["[0.9]", "[0.9, 0.98, 0.99]", "0.9", "[0.9, 1.5]", "[a, b]"],
    "gradient_checkpointing": ["yes", "0", "'false'", ""],
    "every": ["-1", "often", "1.5"],
    "metrics": ["bleu", "[blue]", "[1]"],
    "best": ["blue", "5", "rouge2"],
    "keep": ["0", "all"],
    "precision": ["fp16", "16"],
    "clip": ["-1", "none"],
    "warmup": ["-1", "0.1"],
    "weight_decay": ["-1.0", "true"],
    "beams": ["0", "'1'"],
    "label_smoothing": ["1.0", "-0.1"],
}
# A setting, what is written instead of its line, and which line and setting are to blame.
OTHER = [
    ("translation", "limit", ["    limit: 1000", "    dataset: some/where"], 1, "data.train.dataset"),
    ("translation", "limit", ["    limit: 1000", "    limit: 1001"], 1, "data.train.limit"),
    ("translation", "vocab", ["  vocab: 4000", "  steps: 5"], 1, "tokenizer.steps"),
    ("translation", "vocab", ["  vocab: 4000", "  task: translation"], 1, "tokenizer.task"),
    ("translation", "vocab", ["\tvocab: 4000"], 0, "tokenizer.vocab"),
    ("translation", "vocab", ["  vocab:4000", "  sample: 10"], 0, "tokenizer.vocab"),
    ("translation", "vocab", ["  vocab 4000"], 0, "tokenizer"),
    ("translation", "vocab", ["  vocab: 4000: 5"], 0, "tokenizer.vocab"),
    ("translation", "vocab", ["vocab: 4000"], 0, "vocab"),
    ("translation", "vocab", ["  vocab: {a: [1, {b: c}]}"], 0, "tokenizer.vocab"),
    ("translation", "vocab", ["  vocab: !!python/object/apply:os.getpid []"], 0, "tokenizer.vocab"),
    ("translation", "vocab", ["  vocab: *four"], 0, "tokenizer.vocab"),
    ("translation", "vocab", ["  vocab: 4000 \x07"], 0, "tokenizer.vocab"),
    ("translation", "vocab", [], -1, "tokenizer"),
    ("translation", "preset", ["  preset: small", "  pretrained: a/b"], 1, "model.pretrained"),
    ("translation", "preset", ["  preset: small", "  preset: small"], 1, "model.preset"),
    ("translation", "preset", ["  config: {hidden_size: 5}"], 0, "model.config.model_type"),
    ("translation", "preset", ["  - preset: small"], 0, "model"),
    ("translation", "steps", ["     steps: 2000"], 1, "training.learning_rate"),
    ("translation", "steps", ["  steps: 2000", "    warmup: 5"], 1, "training.warmup"),
    ("translation", "steps", ["  steps: 'a"], 0, "training.steps"),
    ("translation", "steps", ["  steps: [1"], 0, "training.steps"),
    ("translation", "steps", ["  steps: {a: 1"], 0, "training.steps"),
    ("translation", "steps", ["  steps: @5"], 0, "training.steps"),
    ("translation", "steps", ["  <<: 5"], 0, "training.<<"),
    ("translation", "task", [], 0, "task"),
    ("translation", "output", [], -1, "output"),
    ("translation", "keep", ["  keep: 3", "checkpoints: {}"], 1, "checkpoints"),
    ("translation", "keep", ["  keep: 3", "---", "task: translation"], 1, None),
    ("translation", "keep", ["  keep: 3", "just a word"], 1, "just"),
    ("summaries", "dataset", ["    - split: train"], 0, "data.train.1.path"),
    ("summaries", "dataset", ["    - some/where"], 1, "data.train.split"),
    ("summaries", "dataset", ["    - dataset: some/where", "      pair: b"], 1, "data.train.1.pair"),
    ("summaries", "dataset", ["    - dataset: some/where", "      languages: fr"], 1, "data.train.1.languages"),
    ("summaries", "name", ["      name: news", "      languages: en-fr"], 2, "data.train.1.languages"),
    ("summaries", "test", ["  test: {path: test.tsv, formt: tsv}"], 0, "data.test.formt"),
    ("summaries", "test", ["  test: {path: test.tsv, format: csv}"], 0, "data.test.format"),
    ("summaries", "test", ["  test: {path: test.tsv"], 0, "data.test"),
    ("summaries", "test", ["  test: test.tsv"], 0, "data.test"),
    ("language", "train", ["  train: {path: books.txt}", "  vaild: {path: a}"], 1, "data.vaild"),
    ("summaries", "<<", ["    <<: *nwes"], 0, "data.valid"),
    ("summaries", "freeze", ["  freeze: encoder."], 0, "training.freeze"),
    ("summaries", "freeze", ["  freeze: [1]"], 0, "training.freeze"),
    ("language", "beams", ["  beams: 1", "  metrics: [bleu]"], 1, "evaluation.metrics"),
    ("language", "beams", ["  beams: 1", "logging: {report_to: tensorboard}"], 1, "logging.report_to"),
    ("language", "train", ["  train: {path: books.txt, text_field: 5}"], 0, "data.train.text_field"),
    ("language", "train", ["  train: {pth: books.txt}"], 0, "data.train.pth"),
    ("language", "train", ["  train: {path: books.txt, limit: x}"], 0, "data.train.limit"),
    ("language", "train", ["  valid: {path: books.txt}"], -1, "data.train"),
    ("language", "model_type", ["    layers: 5"], -1, "model.config.model_type"),
]  # fmt: skip


def mistakes():
    """Name, bytes, and the line and setting that are to blame."""
    for name, text in GOOD.items():
        for number, keys, row in keys_of(text):
            if not set(keys) & FREE:
                wrong = [*keys[:-1], shifted(keys[-1])]
                dotted = ".".join(map(str, listed(name, number, wrong)))
                yield f"{name}: {dotted}", with_row(text, number, row.replace(keys[-1], wrong[-1], 1)), number, dotted
            for value in WRONG.get(keys[-1], []):
                if ": " in row or keys[-1] == "data":
                    new = with_row(text, number, f"{row.split(':')[0]}: {value}")
                    if keys == ["data"]:  # what was below it
                        new = "\n".join(r for r in new.split("\n") if not r.startswith("  ") or "preset" in r)
                    yield f"{name}: {row} -> {value}", new, number, ".".join(map(str, listed(name, number, keys)))
    for name, key, rows, blame, dotted in OTHER:
        number = next(n for n, row in enumerate(GOOD[name].split("\n"), 1) if re.match(rf"[ -]*{key}:", row))
        yield f"{name}: {key} -> {rows}", with_row(GOOD[name], number, *rows), number + blame, dotted


def listed(name, number, keys):
    """With the index of a corpus in a list."""
    inside = name == "summaries" and keys[:2] == ["data", "train"] and len(keys) > 2
    return [*keys[:2], 0 if number < 10 else 1, *keys[2:]] if inside else keys


MISTAKES = list(mistakes())
BYTES = [
    ("not UTF-8", TRANSLATION.replace("small", "sm\xe9ll").encode("latin-1"), 15, "model.preset"),
    ("UTF-16", TRANSLATION.encode("utf-16"), 1, None),
    ("cut in a quote", SUMMARIES[: SUMMARIES.index("/news") + 3].encode(), 3, "output"),
    ("cut in a list", TRANSLATION[: TRANSLATION.index("0.98")].encode(), 22, "training.betas"),
    ("cut before the data", TRANSLATION[: TRANSLATION.index("data:")].encode(), 1, "data"),
    ("cut after a section", TRANSLATION[: TRANSLATION.index("  keep")].encode(), 29, "checkpoints"),
    ("cut in a key", TRANSLATION[: TRANSLATION.index("eep: 3")].encode(), 30, "checkpoints"),
]


def problem(path):
    try:
        return dump(load(path))
    except (ConfigError, DataError) as error:
        return str(error)


def test_a_hundred_mistakes(tmp_path):
    path = tmp_path / "run.yaml"
    cases = [(name, text.encode(), line, key) for name, text, line, key in MISTAKES] + BYTES
    assert len({text for _, text, _, _ in cases}) >= 150
    missed = []
    for name, text, line, key in cases:
        path.write_bytes(text)
        first = problem(path).split("\n")[0]
        found = re.match(rf"^{re.escape(str(path))}:(\d+):(\d+): (?:([\w.<-]+): )?", first)
        assert found, f"{name}: not refused, or without a place: {first}"
        assert len(first) < 400
        if (int(found[1]), found[3] and re.sub(r"\.\d$", "", found[3])) != (line, key):
            missed.append(f"{name}: {line} {key}: {first}")
    assert len(missed) <= 0.05 * len(cases), "\n".join(missed)


ODD = [*":- \n'\"[]{}#|>?%@!\t\\,&*\r\x85\u2028", "<<: ", "1e3", "!!int ", "&a ", "*a", "---\n"]


def damaged(dice, mark):
    """A configuration with pieces missing or too many; one of the mistakes above, damaged once more; or code in it."""
    text = dice.choice([*GOOD.values(), dice.choice(MISTAKES)[1]])
    kind = dice.randrange(4)
    if kind == 0:
        number, _, row = dice.choice(keys_of(text))
        return with_row(text, number, f"{row.split(':')[0]}: {dice.choice(code(mark))}").encode()
    for _ in range(dice.randint(1, 4)):
        here, there = sorted(dice.randrange(len(text)) for _ in "ab")
        text = text[:here] + dice.choice([dice.choice(ODD), ""]) + text[min(there, here + dice.randint(0, 20)) :]
    raw = text.encode()
    if kind == 1:
        at = dice.randrange(len(raw) + 1)
        raw = (
            raw[:at]
            + dice.choice([b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[2J", dice.randbytes(5)])
            + raw[at:]
        )
    return raw


def code(mark):
    """What would leave a mark if anyone ran it."""
    call = f"__import__('os').mkdir('{mark}')"
    return [
        f"!!python/object/apply:os.mkdir ['{mark}']", f"!!python/object/new:os.mkdir ['{mark}']",
        f"!!python/object/apply:os.system [touch {mark}]", "!!python/name:os.mkdir", "!!python/module:os",
        f"!!python/object/apply:builtins.eval [{call!r}]", f"!run '{mark}'", f'"{call}"', f'"ent_fraction({call})"',
        f'"ent_fraction(fraction={call})"', f'"${{{call}}}"', f'"{{{{ {call} }}}}"', f'"$(touch {mark})"',
    ]  # fmt: skip


def check_places(path, raw):
    """Whether it is refused; if so, every line of the message names a place in the file."""
    path.write_bytes(raw)
    try:
        load(path)
    except ConfigError as error:
        rows = re.split(r"\r\n?|[\n\x85\u2028\u2029]", raw.decode("utf-8", "replace"))
        *lines, last = str(error).split("\n")
        more = re.fullmatch(rf"{re.escape(str(path))}: and \d+ more problems", last)
        for line in [*lines, *([] if more else [last])]:
            found = re.match(rf"{re.escape(str(path))}:(\d+):(\d+): .", line)
            assert found, line
            assert 1 <= int(found[1]) <= len(rows), line
            assert 1 <= int(found[2]) <= max(map(len, rows)) + 2, line
        return True
    return False


def run_damaged(tmp_path, suite, count):
    path, mark, dice = tmp_path / "run.yaml", tmp_path / "mark", random.Random(0)
    refused = 0
    for number in range(count):
        raw = damaged(dice, mark)
        with suite.case(f"{number}: {raw!r}"):
            refused += check_places(path, raw)
            assert not mark.exists()
    assert refused > 0.8 * count


def test_damage_is_survived(tmp_path, tally):
    with tally("configs", "input", "damaged configurations") as suite:
        run_damaged(tmp_path, suite, 200)


@pytest.mark.slow
def test_a_thousand_damaged(tmp_path, tally):
    with tally("configs", "input", "damaged configurations, some with code in them; a case fails if anything but an "
               "error with file, line and column is raised, or if code runs") as suite:  # fmt: skip
        run_damaged(tmp_path, suite, 1000)
