"""Plain values as YAML 1.2 that every reader takes for what it is."""

from __future__ import annotations

import io
import re
from pathlib import PurePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import RepresenterError, SafeRepresenter

# Texts that no reader takes for anything else; all others are written in quotes.
_PLAIN = re.compile(
    r"(?!(?:true|false|yes|no|on|off|y|n|null|none|nan|inf)$)[a-z_/][\w./()=-]*", re.ASCII | re.IGNORECASE
)


class _Representer(SafeRepresenter):
    def text(self, text: str | PurePath) -> Any:
        style = None if _PLAIN.fullmatch(str(text)) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


_Representer.add_representer(str, _Representer.text)
_Representer.add_multi_representer(PurePath, _Representer.text)


def write(value: Any) -> str:
    """Plain values as YAML, in their order; `yamltree.parse` gives them back."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 2**16
    file = io.StringIO()
    try:
        yaml.dump(value, file)
    except RepresenterError as error:
        raise ValueError(f"a setting cannot be written as YAML: {error}") from None
    return file.getvalue()
