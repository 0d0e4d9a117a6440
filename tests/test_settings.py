"""What a process is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from overnight.domain.errors import Unusable
from overnight.settings import Part, Settings, Upstream, check_host, data_dir, parse_parts


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_addresses_may_be_answered_on(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gpu-box", "localhost.example.org", ""])
def test_no_other_address_may_while_there_are_no_accounts(host: str) -> None:
    with pytest.raises(Unusable, match="loopback"):
        check_host(host)


def test_the_data_directory_is_the_one_given_then_the_environments_then_the_platforms(tmp_path: Path) -> None:
    environment = {"OVERNIGHT_DATA_DIR": str(tmp_path / "environment")}

    assert data_dir(tmp_path / "given", environment) == tmp_path / "given"
    assert data_dir(None, environment) == tmp_path / "environment"
    assert data_dir(None, {}).name == "overnight"


def test_parts_are_a_list_of_known_names() -> None:
    assert parse_parts("api, worker") == {Part.API, Part.WORKER}
    with pytest.raises(Unusable, match="--parts"):
        parse_parts("api,web")
    with pytest.raises(Unusable, match="--parts"):
        parse_parts(" , ")


def test_secrets_are_not_shown() -> None:
    settings = Settings(
        Path("/data"), database_url="postgresql://me:hunter2@db/x", upstreams=(Upstream("http://x/v1", "sk-secret"),)
    )

    assert "hunter2" not in repr(settings)
    assert "sk-secret" not in repr(settings)
