# SPDX-License-Identifier: Apache-2.0
"""Mooncake's environment variables: those that mean something to mc, and all others by reason.

The table in python/mooncake/README.md says the same to users. A variable without a meaning is named
once in a warning if it is set.
"""

from __future__ import annotations

import logging
import os
import urllib.parse
from collections.abc import Iterable

import mckv

logger = logging.getLogger("mooncake")

# Variables that this package reads, in this module or elsewhere.
MEANINGFUL = frozenset(
    """\
    ADMIN_API_KEY
    MC_FORCE_TCP MC_LOG_LEVEL MC_METADATA_CLUSTER_ID MC_MS_FILTERS
    MC_REDIS_DB_INDEX MC_REDIS_PASSWORD MC_REDIS_USERNAME
    MC_RPC_CONNECT_TIMEOUT_MS MC_RPC_TIMEOUT_MS
    MC_STORE_CLIENT_MAX_PORT MC_STORE_CLIENT_MIN_PORT MC_STORE_CLIENT_SETUP_RETRIES
    MC_STORE_CLUSTER_ID MC_STORE_HUGEPAGE_SIZE MC_STORE_USE_HUGEPAGE
    MC_TCP_BIND_ADDRESS MC_TE_FILTERS MC_TRANSFER_TIMEOUT
    MOONCAKE_CLIENT_HTTP_PORT MOONCAKE_CONFIG_PATH MOONCAKE_DEVICE
    MOONCAKE_ENABLE_CLIENT_HTTP_SERVER MOONCAKE_GLOBAL_SEGMENT_SIZE MOONCAKE_LOCAL_BUFFER_SIZE
    MOONCAKE_LOCAL_HOSTNAME MOONCAKE_MASTER MOONCAKE_OFFLOAD_BUCKET_MAX_PHYSICAL_BYTES
    MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE MOONCAKE_OFFLOAD_ENABLED
    MOONCAKE_OFFLOAD_FILE_STORAGE_PATH MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR
    MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES MOONCAKE_PROTOCOL MOONCAKE_TENANT_ID
    MOONCAKE_TE_META_DATA_SERVER
    """.split()
)

# Variables that engines and other programs read, without a warning.
OF_OTHERS = frozenset(
    """\
    ASCEND_* HCCL_* NCCL_IB_GID_INDEX POD_NAME POD_NAMESPACE
    MC_TE_DEVICE MC_TE_PROTOCOL MOONCAKE_CLIENT MOONCAKE_ENABLE_SSD_OFFLOAD
    MOONCAKE_PREFERRED_SEGMENT
    MOONCAKE_REQUESTER_LOCAL_HOSTNAME MOONCAKE_STANDALONE_STORAGE
    SGLANG_HICACHE_MOONCAKE_CONFIG_PATH VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT
    VLLM_MOONCAKE_BOOTSTRAP_PORT VLLM_MOONCAKE_PROTOCOL VLLM_MOONCAKE_SENDER_WORKERS
    VLLM_MOONCAKE_SIDE_CHANNEL_PORT
    """.split()
)

# Reason: names, and beginnings of names with * at the end (as in OF_OTHERS).
MEANINGLESS = {
    "agents choose devices, paths and sizes of RDMA themselves (mc-agent --rdma-devices, "
    "--rdma-ack-timeout)": """\
    EP_OVERRIDE_RDMA_SL MC_AUTO_GID_MAX_RETRIES MC_CONN_PAUSE_TTL_MS MC_CUSTOM_TOPO_JSON
    MC_EFA_CQ_THREADS MC_EFA_NIC_SELECTION MC_ENABLE_DEST_DEVICE_AFFINITY
    MC_ENABLE_HCA_PEER_AFFINITY MC_ENABLE_PARALLEL_REG_MR MC_ENDPOINT_STORE_TYPE MC_FORCE_HCA
    MC_FRAGMENT_RATIO MC_GID_INDEX MC_IB_PCI_RELAXED_ORDERING MC_IB_PORT MC_IB_SL MC_IB_TC
    MC_LOG_RDMA_SLICE_AFFINITY MC_MAX_CONCURRENT_REG_MR MC_MAX_CQE_PER_CTX MC_MAX_EP_PER_CTX
    MC_MAX_INLINE MC_MAX_MR_SIZE MC_MAX_SGE MC_MAX_WR MC_MIN_REG_SIZE MC_MLX5_QP_* MC_MS_AUTO_DISC
    MC_MTU MC_NIC_PEER_AFFINITY MC_NUM_COMP_CHANNELS_PER_CTX MC_NUM_CQ_PER_CTX MC_NUM_QP_PER_EP
    MC_PATH_ROUNDROBIN MC_PKEY_INDEX MC_RDMA_BIND_ADDRESS MC_RDMA_RAIL_PAUSE_SECONDS MC_RETRY_CNT
    MC_SLICE_SIZE MC_SLICE_TIMEOUT MC_TE_FILTERS_EXCLUDE MC_TRACK_RDMA_POSTED_SLICES
    MC_WORKERS_PER_CTX""",
    "connections between hosts need no tuning": """\
    MC_HANDSHAKE_* MC_LEGACY_RPC_PORT_BINDING MC_MAX_PRC_PORT MC_MAX_RPC_PORT MC_MIN_PRC_PORT
    MC_MIN_RPC_PORT MC_RPC_CLIENT_IO_THREADS MC_RPC_PROTOCOL MC_STORE_RPC_CLIENT_IO_THREADS
    MC_TCP_* MC_TE_RPC_CLIENT_IO_THREADS MC_USE_IPV6""",
    "names of peers are looked up when they are needed": """\
    MC_DISABLE_METACACHE MC_TE_METADATA_REFRESH_INTERVAL_SECONDS""",
    "there is one engine": "MC_TENT_* MC_USE_TENT MC_USE_TEV1 TENT_*",
    "the agent reserves the memory of the pool, and local hits are read in place": """\
    MC_DISABLE_MMAP_ARENA MC_FILEREAD_WORKERS MC_MMAP_ARENA_POOL_SIZE MC_STORE_LOCAL_HOT_*
    MC_STORE_MEMCPY MC_STORE_NUMA_SOCKET_ID MC_STORE_REPLICA_SCORING""",
    "every object has a checksum": "MOONCAKE_STORE_CHECKSUM",
    "mcctl top and the master's /metrics show the metrics": """\
    MC_STORE_CLIENT_METRIC MC_STORE_CLIENT_METRIC_* MC_TE_METRIC MC_TE_METRIC_INTERVAL_SECONDS""",
    "programs log to standard error": "MC_LOG_DIR MC_YLT_LOG_LEVEL",
    "mc has no memory of devices and no links between devices yet": """\
    MC_DISABLE_GPU_DIRECT_RDMA MC_ENABLE_MNNVL MC_FORCE_MNNVL MC_INTRANODE_NVLINK MC_INTRA_NVLINK
    MC_STORE_PINNED_RESTORE_ARENA_SIZE_BYTES MC_STORE_PIN_MEMORY_MAX_BYTES MC_USE_NVLINK_IPC
    WITH_NVIDIA_PEERMEM""",
    "the tier is one log on each disk, which needs no tuning": """\
    MOONCAKE_DISK_EVICTION_* MOONCAKE_OFFLOAD_* MOONCAKE_OFFSET_* MOONCAKE_SCANMETA_*
    MOONCAKE_USE_URING""",
    "the tier is on files and block devices of the host": """\
    MC_NOF_* MC_NVME_* MOONCAKE_DFS_* MOONCAKE_ENABLE_DFS MOONCAKE_NVME_KV_*""",
    "agents keep the objects over restarts, without snapshots": """\
    MOONCAKE_AWS_* MOONCAKE_SNAPSHOT_LOCAL_PATH MOONCAKE_TENANT_QUOTA_ETCD_ENDPOINTS""",
    "mc has no such part": """\
    CONDUCTOR_* MC_CXL_* MC_TPU_PJRT_LIB MOONCAKE_EP_* MOONCAKE_PGTEST_* MOONCAKE_PG_*""",
    "mc does not run on this vendor's devices": """\
    ACCL_* MC_HIP_* MC_MACA_* MC_MUSA_* MC_UBSHMEM_* MPCOMM_* SUNRISE_*""",
}

_LEVELS = {"TRACE": logging.DEBUG, "DEBUG": logging.DEBUG, "INFO": logging.INFO,
           "WARN": logging.WARNING, "WARNING": logging.WARNING, "ERROR": logging.ERROR,
           "0": logging.INFO, "1": logging.WARNING, "2": logging.ERROR,
           "3": logging.CRITICAL}  # fmt: skip
_HUGE_PAGE = ("2mb", "2m", "2mib", "2097152")
_warned = False


def _is_one_of(name: str, names: Iterable[str]) -> bool:
    return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in names)


def _reason_of(name: str) -> str | None:
    if name in MEANINGFUL:
        return None
    for reason, names in MEANINGLESS.items():
        if _is_one_of(name, names.split()):
            return reason
    return None


def begin() -> None:
    """At each setup: sets the log's level, and names once the variables without a meaning."""
    level = os.environ.get("MC_LOG_LEVEL", "").upper()
    if level in _LEVELS:
        logger.setLevel(_LEVELS[level])
    global _warned
    if _warned:
        return
    _warned = True
    by_reason: dict[str, list[str]] = {}
    for name in sorted(os.environ):
        if reason := _reason_of(name):
            by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        logger.warning("mc: without effect here: %s; %s", ", ".join(names), reason)


def _switch(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")


def count(name: str, otherwise: int) -> int:
    """A number of at least 1. A text that is none counts as not set, with a warning."""
    text = os.environ.get(name, "").strip()
    if not text:
        return otherwise
    if not text.isdecimal() or int(text) < 1:
        logger.warning("mc: %s=%s is no number of at least 1, and without effect", name, text)
        return otherwise
    return int(text)


def needs_huge_pages() -> bool:
    """Raises mckv.UnsupportedError for huge pages of another size."""
    if not _switch("MC_STORE_USE_HUGEPAGE"):
        return False
    size = os.environ.get("MC_STORE_HUGEPAGE_SIZE", "2MB").strip()
    if size.lower() not in _HUGE_PAGE:
        raise mckv.UnsupportedError(f"MC_STORE_HUGEPAGE_SIZE={size}: huge pages of mc have 2 MiB")
    return True


def agent_options(protocol: str, devices: str) -> dict[str, str]:
    """Variables for an agent that this process starts. Raises mckv.UnsupportedError."""
    options = {}
    if needs_huge_pages():
        options["MC_AGENT_HUGE_PAGES"] = "require"
    if _switch("MC_FORCE_TCP"):
        options["MC_AGENT_TRANSPORTS"] = "tcp"
    elif protocol == "rdma" and (devices or os.environ.get("MC_MS_FILTERS")):
        options["MC_AGENT_RDMA_DEVICES"] = devices or os.environ["MC_MS_FILTERS"]
    return options


def call_timeout_s(otherwise: float) -> float:
    return count("MC_RPC_TIMEOUT_MS", round(otherwise * 1000)) / 1000


def connect_timeout_s(otherwise: float) -> float:
    return count("MC_RPC_CONNECT_TIMEOUT_MS", round(otherwise * 1000)) / 1000


def setup_tries() -> int:
    return count("MC_STORE_CLIENT_SETUP_RETRIES", 1)


def client_port() -> int:
    """The port in the name of a store whose hostname has none; no process listens there."""
    lowest = count("MC_STORE_CLIENT_MIN_PORT", 12300)
    highest = count("MC_STORE_CLIENT_MAX_PORT", 14300)
    return lowest + os.getpid() % max(1, highest - lowest)


def redis_url(url: str) -> str:
    """redis://host with the user, password and database of the environment, if the URL has none."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("redis", "rediss") or "@" in rest:
        return url
    user, password = (
        urllib.parse.quote(os.environ.get(name, ""), safe="")
        for name in ("MC_REDIS_USERNAME", "MC_REDIS_PASSWORD")
    )
    database = os.environ.get("MC_REDIS_DB_INDEX", "")
    login = f"{user}:{password}@" if user or password else ""
    path = f"/{database}" if database and "/" not in rest else ""
    return f"{scheme}://{login}{rest}{path}"
