"""The table of settings is whole: its defaults are those of `Limits`, its bounds hold, and the page is made from it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from overnight.domain.errors import InvalidParameter, UnknownParameter
from overnight.domain.limits import KIB, MIB, Limits
from overnight.domain.setting import Setting, Value
from overnight.domain.settings_table import SETTINGS, TABLE, apply, find, in_force
from tools import settings_page


def test_the_page_in_the_docs_is_the_one_made_from_the_table() -> None:
    assert settings_page.PAGE.read_text("utf-8") == settings_page.page(), "run: python -m tools.settings_page"


def test_defaults_are_those_of_a_process_that_has_not_looked_yet() -> None:
    limits = Limits()
    apply(limits, in_force({}))
    assert limits == Limits()


def test_each_setting_decides_one_limit_of_its_own() -> None:
    fields = [setting.field for setting in TABLE]
    assert len(set(fields)) == len(fields) == len(SETTINGS)
    assert set(fields) == {field.name for field in dataclasses.fields(Limits)} - {"intake", "slots"}


@pytest.mark.parametrize("setting", TABLE, ids=lambda s: s.name)
def test_bounds_are_taken_and_what_is_beyond_them_is_not(setting: Setting) -> None:
    assert setting.says.endswith(".")
    if setting.is_switch:
        assert (setting.check(True), setting.check(False)) == (True, False)
        beyond: tuple[object, ...] = (0, 1, "on", None, 0.5)
    else:
        assert (setting.check(setting.least), setting.check(setting.most)) == (setting.least, setting.most)
        assert setting.default is None or setting.check(setting.default) == setting.default
        beyond = (setting.least - 1, setting.most + 1, True, 1.0, "1", None, float("nan"))
    for value in beyond:
        with pytest.raises(InvalidParameter) as raised:
            setting.check(value)
        assert raised.value.param == setting.name
        assert setting.name in raised.value.message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("BATCH_ENABLED", "off", False),
        ("BATCH_ENABLED", " TRUE ", True),
        ("BATCH_ENABLED", "0", False),
        ("BATCH_MAX_REQUESTS", "100000", 100_000),
        ("BATCH_COMPLETION_WINDOW_HOURS", "0", 0),
    ],
)
def test_values_are_read_from_a_command_line(name: str, text: str, value: Value) -> None:
    assert find(name).read(text) is value or find(name).read(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BATCH_ENABLED", "maybe"),
        ("BATCH_ENABLED", ""),
        ("BATCH_MAX_REQUESTS", "many"),
        ("BATCH_MAX_REQUESTS", "1e3"),
        ("BATCH_MAX_REQUESTS", "0"),
        ("BATCH_MAX_REQUESTS", "٣"),
        ("BATCH_MAX_REQUESTS", "9" * 5_000),
        ("BATCH_COMPLETION_WINDOW_HOURS", "169"),
    ],
)
def test_what_is_no_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        find(name).read(text)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownParameter, match="BATCH_MIN_ROLE"):
        find("BATCH_MIN_ROLE")


def test_units_become_those_of_the_code() -> None:
    limits = Limits()
    stored: dict[str, object] = {
        "BATCH_MAX_LINE_KB": 8,
        "BATCH_MAX_BODY_MB": 2,
        "BATCH_RETENTION_DAYS": 3,
        "BATCH_COMPLETION_WINDOW_HOURS": 5,
        "BATCH_MODEL_CONCURRENCY": 0,
        "BATCH_ENABLED": False,
    }
    apply(limits, in_force(stored))
    assert (limits.line_bytes, limits.create_body_bytes) == (8 * KIB, 2 * MIB)
    assert (limits.retention, limits.window) == (timedelta(days=3), timedelta(hours=5))
    assert (limits.per_model, limits.enabled) == (0, False)


def test_zero_lifts_the_window_and_the_limit_of_results_and_pauses_a_model() -> None:
    names = ("BATCH_COMPLETION_WINDOW_HOURS", "BATCH_MAX_RESULTS_MB_PER_BATCH", "BATCH_MODEL_CONCURRENCY")
    limits = Limits()
    apply(limits, in_force(dict.fromkeys(names, 0)))
    assert (limits.window, limits.results_bytes, limits.per_model) == (None, None, 0)


def test_what_this_version_does_not_take_has_its_default() -> None:
    values = in_force({"BATCH_MAX_REQUESTS": -5, "BATCH_ENABLED": "off", "BATCH_OF_A_NEWER_VERSION": 1})
    assert values == in_force({})
