# SPDX-License-Identifier: Apache-2.0
"""MooncakeConfig from file and environment."""

import json

import pytest

REQUIRED = {
    "local_hostname": "localhost",
    "metadata_server": "P2PHANDSHAKE",
    "master_server_address": "localhost:50051",
}
NAMES = "CONFIG_PATH MASTER TE_META_DATA_SERVER PROTOCOL DEVICE GLOBAL_SEGMENT_SIZE LOCAL_BUFFER_SIZE LOCAL_HOSTNAME TENANT_ID ENABLE_CLIENT_HTTP_SERVER CLIENT_HTTP_PORT"  # noqa: E501


@pytest.fixture
def load(tmp_path, monkeypatch):
    from mooncake.mooncake_config import MooncakeConfig

    for name in NAMES.split():
        monkeypatch.delenv(f"MOONCAKE_{name}", raising=False)

    def load(values=None, **environment):
        if values is not None:
            path = tmp_path / "config.json"
            path.write_text(values if isinstance(values, str) else json.dumps(values))
            environment["CONFIG_PATH"] = str(path)
        for name, value in environment.items():
            monkeypatch.setenv(f"MOONCAKE_{name}", value)
        return MooncakeConfig.load_from_env()

    return load


def test_defaults(load):
    config = load(REQUIRED)
    assert config.global_segment_size == 3355443200 and config.local_buffer_size == 1073741824
    assert config.protocol == "tcp" and config.tenant_id == "default"
    assert config.client_http_port == 9300 and config.enable_client_http_server is False
    assert config.enable_ssd_offload is False and config.ssd_offload_path == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4 << 30),
        ("512mb", 512 << 20),
        (1000, 1000),
        ("1.5k", 1536),
        ("7", 7),
        ("2 tb", 2 << 40),
    ],
)
def test_sizes(load, text, size):
    assert load({**REQUIRED, "global_segment_size": text}).global_segment_size == size


def test_the_protocol_is_in_lower_case(load):
    assert load({**REQUIRED, "protocol": "RDMA"}).protocol == "rdma"


@pytest.mark.parametrize(
    "change",
    [
        {"local_hostname": ""},
        {"metadata_server": None},
        {"master_server_address": 5},
        {"global_segment_size": "much"},
        {"global_segment_size": -1},
        {"protocol": ""},
        {"enable_ssd_offload": "perhaps"},
        {"client_http_port": "http"},
    ],
    ids=str,
)
def test_what_is_wrong_raises(load, change):
    with pytest.raises(ValueError):
        load({**REQUIRED, **change})


@pytest.mark.parametrize("name", REQUIRED)
def test_what_is_missing_raises(load, name):
    with pytest.raises(ValueError, match=name):
        load({key: value for key, value in REQUIRED.items() if key != name})


@pytest.mark.parametrize("text", ["", "{", "nonsense"])
def test_what_is_no_json_raises(load, text):
    with pytest.raises(ValueError):
        load(text)


def test_environment(load):
    config = load(MASTER="h:50051", GLOBAL_SEGMENT_SIZE="1gb", PROTOCOL="tcp", TENANT_ID="chat",
                  LOCAL_HOSTNAME="me", CLIENT_HTTP_PORT="9301")  # fmt: skip
    assert config.master_server_address == "h:50051" and config.global_segment_size == 1 << 30
    assert config.local_hostname == "me" and config.tenant_id == "chat"
    assert config.metadata_server == "P2PHANDSHAKE" and config.client_http_port == 9301


def test_an_empty_environment_raises(load):
    with pytest.raises(ValueError, match="'MOONCAKE_CONFIG_PATH' nor 'MOONCAKE_MASTER' is set"):
        load()


def test_an_unknown_protocol_is_a_warning(load, caplog):
    from mooncake import mooncake_config

    with caplog.at_level("WARNING", logger=mooncake_config.logger.name):
        assert load({**REQUIRED, "protocol": "rmda"}).protocol == "rmda"
        assert "Unrecognised protocol 'rmda'" in caplog.text
        caplog.clear()
        assert load({**REQUIRED, "protocol": " TCP "}).protocol == "tcp" and not caplog.text
    with pytest.raises(ValueError, match="Invalid protocol"):
        load({**REQUIRED, "protocol": " "})
