"""The trainers of TRL tell the Hub that they run, unless they may not; tests of adapters are no use of them."""

import pytest


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
