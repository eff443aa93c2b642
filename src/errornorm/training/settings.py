"""Types and errors that the sections of a configuration share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

try:
    from pydantic import BeforeValidator, Field
    from pydantic_core import PydanticCustomError
except ImportError as error:
    raise ImportError("training needs more packages: pip install errornorm[train]") from error


def _file(value: Any) -> Any:
    if not isinstance(value, str | Path):
        return value
    if not str(value).strip() or "\0" in str(value):
        raise ValueError(f"a path cannot be {str(value)!r}; give the name of a file or folder")
    try:
        return Path(value).expanduser()
    except RuntimeError as error:  # ~nobody/
        raise ValueError(f"{str(value)!r}: {error}; write the path without ~") from None


File = Annotated[Path, Field(strict=False), BeforeValidator(_file)]
MOST = 2**31 - 1  # of anything that is counted
Count = Annotated[int, Field(ge=1, le=MOST)]
Share = Annotated[float, Field(ge=0, lt=1)]


def refused(key: str, problem: str) -> PydanticCustomError:
    """A problem between settings, laid at the door of one of them: `key`, from the section that is being checked."""
    return PydanticCustomError("setting", "{problem}", {"problem": problem, "key": key})


def or_one(schema: dict[str, Any]) -> None:
    """A list need not be written around a single item."""
    array = {key: schema.pop(key) for key in ("type", "items", "minItems") if key in schema}
    schema["anyOf"] = [array["items"], array]
