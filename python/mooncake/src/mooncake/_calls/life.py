# SPDX-License-Identifier: Apache-2.0
"""setup() in all its forms, close(), health."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import mckv

from mooncake import _client_port, _codes, _environment, _offload, _pool
from mooncake._arguments import address_of, size_of, switch_of
from mooncake._calls.base import StoreBase
from mooncake._client_http import ClientServer
from mooncake._codes import CODE

logger = logging.getLogger("mooncake")

_DICT_SIZE = 16 << 20


class LifeCalls(StoreBase):
    """Mixed into MooncakeDistributedStore."""

    def setup(self, *args: Any, **kwargs: Any) -> int:
        """setup(config: dict) or setup(local_hostname, metadata_server, ...); 0, or a code."""
        if not kwargs and len(args) == 1 and isinstance(args[0], dict):
            return self._setup_dict(args[0])
        if not args and set(kwargs) == {"config"} and isinstance(kwargs["config"], dict):
            return self._setup_dict(kwargs["config"])
        return self._setup_arguments(*args, **kwargs)

    def _setup_arguments(
        self,
        local_hostname: str,
        metadata_server: str,
        global_segment_size: int,
        local_buffer_size: int,
        protocol: str,
        rdma_devices: str,
        master_server_addr: str,
        engine: Any = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: int = 9300,
    ) -> int:
        for value in (global_segment_size, local_buffer_size, client_http_port):
            address_of(value)
        for text in (local_hostname, metadata_server, protocol, rdma_devices, master_server_addr):
            if not isinstance(text, str):
                raise TypeError(f"setup(): incompatible function arguments: {text!r} is no str")
        if self._pool is not None:
            return _codes.OK
        _environment.begin()
        try:
            disk = _offload.wish(ssd_offload_path) if enable_ssd_offload else _offload.Wish()
            self._pool = _pool.open_pool(
                self._lender,
                tenant_id or "default",
                global_segment_size,
                local_buffer_size,
                local_hostname.rpartition(":")[0] or local_hostname,
                master_server_addr,
                {**_environment.agent_options(protocol, rdma_devices), **disk.options()},
            )
            if enable_ssd_offload:
                _offload.check(self._pool.client, disk)
        except mckv.McError as error:
            logger.error("mc: setup: %s", error)
            self.close()
            return CODE[error.status]
        if enable_client_http_server:
            try:
                self._http = ClientServer(self._pool.client, client_http_port)
            except (OSError, OverflowError) as error:
                logger.error("mc: setup: client_http_port %d: %s", client_http_port, error)
                self.close()
                return _codes.INVALID_PARAMS
        self._has_buffer = local_buffer_size > 0
        self._hostname = local_hostname
        if ":" not in local_hostname:
            self._hostname += f":{_environment.client_port()}"
        return _codes.OK

    def _setup_dict(self, config: dict[str, Any]) -> int:
        known: dict[str, Any] = {
            name: str(config[name])
            for name in ("local_hostname", "metadata_server", "ssd_offload_path", "tenant_id")
            if name in config
        }
        if not known.get("local_hostname") or not known.get("metadata_server"):
            logger.error("mc: setup: local_hostname and metadata_server are required")
            return _codes.INVALID_PARAMS
        try:
            segment = size_of(config.get("global_segment_size", _DICT_SIZE))
            buffer = size_of(config.get("local_buffer_size", _DICT_SIZE))
            port = int(config.get("client_http_port", 9300))
            switches: dict[str, Any] = {
                name: switch_of(config[name])
                for name in ("enable_ssd_offload", "enable_client_http_server")
                if name in config
            }
        except (ValueError, TypeError) as error:
            logger.error("mc: setup: not a size, number or switch: %s", error)
            return _codes.INVALID_PARAMS
        master = config.get("master_server_addr", config.get("master_server_address", ""))
        return self._setup_arguments(
            **known,
            **switches,
            global_segment_size=segment,
            local_buffer_size=buffer,
            protocol=str(config.get("protocol", "tcp")),
            rdma_devices=str(config.get("rdma_devices", config.get("device_name", ""))),
            master_server_addr=str(master),
            client_http_port=port,
        )

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Uses the agent of the mooncake_client at host:port, or $MC_AGENT. RPC_FAIL (-900)."""
        buffer = max(address_of(local_buffer_size), address_of(mem_pool_size))
        if self._pool is not None:
            return _codes.OK
        _environment.begin()
        try:
            agent, tenant = os.environ.get("MC_AGENT") or "", "default"
            if not agent:
                agent, tenant = _client_port.ask(server_address)
            self._pool = _pool.open_pool(self._lender, tenant, 0, buffer, "dummy", "", {}, agent)
        except mckv.McError as error:
            logger.error("mc: setup_dummy: %s", error)
            return CODE[error.status]
        self._has_buffer = True
        return _codes.OK

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int = 16 << 20) -> int:
        return self._setup_arguments(
            "localhost", "P2PHANDSHAKE", mount_segment_size, _DICT_SIZE, protocol, device_name, ""
        )

    def close(self) -> int:
        with self._lock:
            pool, self._pool = self._pool, None
            http, self._http = self._http, None
            self._get_sessions.clear()
            self._put_sessions.clear()
            self._allocated.clear()
            self._segments.clear()
        if http is not None:
            http.close()
        if pool is not None:
            pool.close(self._lender)
        return _codes.OK

    def __del__(self) -> None:
        """Withdraws the memory of a store that was never closed. Mooncake's destructor does so."""
        if self._pool is None or not self._pool.collect(self._lender):
            return
        if self._http is not None:
            threading.Thread(target=self._http.close, daemon=True).start()

    def health_check(self) -> int:
        """0: healthy; 1: not set up, or closed; 2: no answer from the agent."""
        if self._pool is None:
            return 1
        try:
            self._pool.client.ping(timeout=2)
        except mckv.McError:
            return 2
        return 0

    def get_hostname(self) -> str:
        return self._hostname
