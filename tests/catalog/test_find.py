"""Which model a name means."""

from __future__ import annotations

from overnight.catalog.find import resolve
from overnight.store.served import ANY, Offer

CHAT = Offer("big", ("nick", "small"), None, ("chat", "completions"))
SMALL = Offer("small", (), None, ("chat",))
VECTORS = Offer("vec", (), None, ("embeddings",))
WHATEVER = Offer(ANY, (), None, ("chat",), any_model=True)


def test_an_id_means_itself() -> None:
    assert resolve([CHAT], "big", "chat") == "big"


def test_an_alias_means_its_model() -> None:
    assert resolve([CHAT], "nick", "chat") == "big"


def test_an_id_wins_over_an_alias() -> None:
    assert resolve([CHAT, SMALL], "small", "chat") == "small"
    assert resolve([CHAT, SMALL], "small", "completions") == "big"


def test_a_model_that_does_not_serve_the_target_is_not_found() -> None:
    assert resolve([CHAT, VECTORS], "vec", "chat") is None
    assert resolve([CHAT, VECTORS], "vec", "embeddings") == "vec"


def test_names_are_exact() -> None:
    assert resolve([CHAT], "Big", "chat") is None
    assert resolve([CHAT], "big ", "chat") is None
    assert resolve([], "big", "chat") is None


def test_a_server_that_does_not_say_takes_every_name_that_nobody_else_has() -> None:
    assert resolve([WHATEVER, CHAT], "other", "chat") == "other"
    assert resolve([WHATEVER, CHAT], "nick", "chat") == "big"
    assert resolve([WHATEVER], "other", "embeddings") is None
