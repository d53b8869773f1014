"""Tables that are written as TOML are read back by a TOML parser as they were."""

from __future__ import annotations

import tomllib

import pytest

import emu
from emu._toml import toml_of
from emu.hardware import Device


@pytest.mark.parametrize("text", ["\U0001f600", "naïve — \uffff", "\x7f", 'a "quoted" \\ path\n\t\x00\x1f', "\\u007f"])
def test_every_text_of_a_device_is_read_back(text: str):
    device = emu.device("fixed16").model_copy(update={"description": text})
    content = toml_of(device, "a comment")
    assert tomllib.loads(content)["description"] == text
    assert Device.model_validate(tomllib.loads(content)) == device


def test_a_key_that_is_no_bare_key_is_read_back():
    recipe = emu.model("mlp").with_settings({"systems": {"\U0001f600\x7f": {"level": 1}}})
    assert tomllib.loads(toml_of(recipe, "a comment"))["systems"] == {"\U0001f600\x7f": {"level": 1}}
