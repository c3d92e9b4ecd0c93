# SPDX-License-Identifier: Apache-2.0
"""MooncakeConfig: Mooncake's JSON configuration and MOONCAKE_* environment.

A missing field gets its default. A missing required field, or an invalid size, switch or number,
raises ValueError. Sizes: numbers, or text like "512MB", "4gb".
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from typing import Any

logger = logging.getLogger("mooncake")

DEFAULT_GLOBAL_SEGMENT_SIZE = 3355443200
DEFAULT_LOCAL_BUFFER_SIZE = 1073741824

_UNITS = {"kb": 10, "mb": 20, "gb": 30, "tb": 40, "k": 10, "m": 20, "g": 30, "t": 40, "b": 0}
_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")
# The names that Mooncake knows. mc chooses the transport itself.
_PROTOCOLS = set(
    "ascend barex cxl efa hip maca musa nvlink nvlink_intra nvmeof rdma rpc_only sunrise_link tcp "
    "ub ubshmem".split()
)
_ENVIRONMENT = {
    "local_hostname": "MOONCAKE_LOCAL_HOSTNAME",
    "metadata_server": "MOONCAKE_TE_META_DATA_SERVER",
    "global_segment_size": "MOONCAKE_GLOBAL_SEGMENT_SIZE",
    "local_buffer_size": "MOONCAKE_LOCAL_BUFFER_SIZE",
    "protocol": "MOONCAKE_PROTOCOL",
    "device_name": "MOONCAKE_DEVICE",
    "master_server_address": "MOONCAKE_MASTER",
    "enable_ssd_offload": "MOONCAKE_OFFLOAD_ENABLED",
    "ssd_offload_path": "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH",
    "tenant_id": "MOONCAKE_TENANT_ID",
    "enable_client_http_server": "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER",
    "client_http_port": "MOONCAKE_CLIENT_HTTP_PORT",
}


def _parse_segment_size(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        raise ValueError(f"not a size: {value!r}")
    if isinstance(value, int):
        return value
    text = str(value).strip().lower()
    for unit, shift in _UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * (1 << shift))
    return int(float(text))


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool | int | float) or value is None:
        return bool(value)
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on", "enable"):
        return True
    if text in ("", "false", "0", "no", "off", "disable"):
        return False
    raise ValueError(f"not a switch: {value!r}")


@dataclasses.dataclass
class MooncakeConfig:
    """The arguments of MooncakeDistributedStore.setup(). Sizes are bytes."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: str | None
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300

    def __post_init__(self) -> None:
        for name in _REQUIRED:
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{name} must be a text that is not empty, not {value!r}")
        if not isinstance(self.protocol, str) or not self.protocol.strip():
            raise ValueError(f"Invalid protocol {self.protocol!r}: it must be a text, not empty")
        self.protocol = self.protocol.strip().lower()
        if self.protocol not in _PROTOCOLS:
            logger.warning(
                "mc: Unrecognised protocol %r; Mooncake's protocols are %s",
                self.protocol,
                ", ".join(sorted(_PROTOCOLS)),
            )
        for name in ("global_segment_size", "local_buffer_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative: {getattr(self, name)}")

    @staticmethod
    def _of(values: dict[str, Any]) -> MooncakeConfig:
        def pick(name: str, default: Any) -> Any:
            value = values.get(name)
            return default if value is None else value

        return MooncakeConfig(
            local_hostname=values["local_hostname"],
            metadata_server=values["metadata_server"],
            global_segment_size=_parse_segment_size(
                pick("global_segment_size", DEFAULT_GLOBAL_SEGMENT_SIZE)
            ),
            local_buffer_size=_parse_segment_size(
                pick("local_buffer_size", DEFAULT_LOCAL_BUFFER_SIZE)
            ),
            protocol=pick("protocol", "tcp"),
            device_name=pick("device_name", ""),
            master_server_address=values["master_server_address"],
            enable_ssd_offload=_parse_bool(pick("enable_ssd_offload", False)),
            ssd_offload_path=str(pick("ssd_offload_path", "")),
            tenant_id=str(pick("tenant_id", "default")),
            enable_client_http_server=_parse_bool(pick("enable_client_http_server", False)),
            client_http_port=int(pick("client_http_port", 9300)),
        )

    def overridden(self, values: dict[str, str]) -> MooncakeConfig:
        """Creates a configuration; fields may be text. Raises ValueError for invalid values."""
        return MooncakeConfig._of({**dataclasses.asdict(self), **values})

    @staticmethod
    def from_file(file_path: str) -> MooncakeConfig:
        with open(file_path, encoding="utf-8") as file:
            values = json.load(file)
        if not isinstance(values, dict):
            raise ValueError(f"{file_path}: needs a JSON object")
        for name in _REQUIRED:
            if name not in values:
                raise ValueError(f"Missing required config field: {name}")
        return MooncakeConfig._of(values)

    @staticmethod
    def load_from_env() -> MooncakeConfig:
        """Loads the file MOONCAKE_CONFIG_PATH; without the variable, the MOONCAKE_* variables."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path:
            return MooncakeConfig.from_file(path)
        values: dict[str, Any] = {
            name: os.environ[variable]
            for name, variable in _ENVIRONMENT.items()
            if os.environ.get(variable)
        }
        if "master_server_address" not in values:
            raise ValueError(
                "Neither the environment variable 'MOONCAKE_CONFIG_PATH' nor 'MOONCAKE_MASTER' "
                "is set."
            )
        values.setdefault("local_hostname", "localhost")
        values.setdefault("metadata_server", "P2PHANDSHAKE")
        return MooncakeConfig._of(values)
