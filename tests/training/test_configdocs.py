"""Every setting is described, for editors and for readers."""

import json
import re

from errornorm.training.configfile import reference, schema
from errornorm.training.presets import PRESETS
from tests.configurations import read


def test_schema():
    made = schema()
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert made["title"] == "errornorm train"
    assert made["required"] == ["task", "output", "data"]
    assert made["additionalProperties"] is False
    assert json.loads(json.dumps(made)) == made
    preset = made["$defs"]["Model"]["properties"]["preset"]["anyOf"]
    assert preset == [{"type": "string", "enum": list(PRESETS)}, {"type": "null"}]
    source = {"$ref": "#/$defs/Source"}
    data = made["$defs"]["Data"]["properties"]
    assert data["train"]["anyOf"] == [source, {"type": "array", "items": source, "minItems": 1}]
    assert data["test"]["anyOf"] == [source, {"type": "array", "items": source}]
    for model in [made, *made["$defs"].values()]:
        assert model["description"]
        assert model["title"]
        assert all("description" in entry or "$ref" in entry for entry in model["properties"].values())
    text = json.dumps(made)
    assert all(name in made["$defs"] for name in re.findall(r"#/\$defs/(\w+)", text))


def test_reference_has_every_setting():
    page = reference()
    for name, model in [("Top level", schema()), *schema()["$defs"].items()]:
        for key, entry in model["properties"].items():
            assert f"| `{key}` |" in page, (name, key)
            assert " ".join(entry.get("description", "").split()) in page
    rows = [row for row in page.split("\n") if row.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert "## `data.train`, `data.valid`, `data.test`" in page
    assert "| `steps` | whole number ≥ 1 | `1000` | Optimizer steps. |" in page
    assert "| `task` | `translation`, `summarization`, `language-modeling` | required |" in page


def test_the_example_of_the_reference_is_valid(tmp_path):
    (block,) = re.findall(r"```yaml\n(.*?)```", reference(), re.DOTALL)
    assert read(tmp_path, block).objective == "ent_fraction(0.1, start=500)"
