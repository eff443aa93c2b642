import re
from importlib.resources import files

import pytest

CSS = files("errornorm.reporting").joinpath("assets", "page.css").read_text(encoding="utf-8")
COLOURS = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS)}


def luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second, scheme):
    low, high = sorted(luminance(COLOURS[name][scheme]) for name in (first, second))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(scheme):
    for text in ("ink", "quiet", "accent"):
        for behind in ("paper", "card", "well"):
            assert contrast(text, behind, scheme) >= 4.5, (text, behind)
    for mark in ("yellow", "red"):
        assert contrast("on-mark", mark, scheme) >= 4.5, mark
    assert contrast("on-accent", "accent", scheme) >= 4.5
    assert contrast("ink", "found", scheme) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_lines_and_bars_can_be_seen(scheme):
    for bar in ("plain", "yellow-bar", "red-bar", "accent"):
        assert contrast(bar, "card", scheme) >= (3 if bar in ("accent", "red-bar") else 1.7), bar
    for mark in ("yellow", "red"):  # and not by their colour alone
        assert contrast(mark, "paper", scheme) >= 1.15, mark
