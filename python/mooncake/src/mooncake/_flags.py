# SPDX-License-Identifier: Apache-2.0
"""The flags of mooncake_master and mooncake_client, with Mooncake's defaults."""


def _table(text: str) -> dict[str, str]:
    """Maps each name to its default; a line has a name and an optional default."""
    return {
        name: default for name, _, default in (line.partition(" ") for line in text.splitlines())
    }


MASTER_FLAGS = _table(
    """\
config_path
port 0
rpc_port 0
rpc_thread_num 0
max_threads 4
rpc_address 0.0.0.0
insecure false
rpc_interface
rpc_conn_timeout_seconds 0
rpc_enable_tcp_no_delay true
enable_metric_reporting true
log_format 0.3.13
metrics_port 9003
metrics_host 0.0.0.0
default_kv_lease_ttl 10000
default_kv_soft_pin_ttl 1800000
max_kv_soft_pin_ttl 86400000
allow_evict_soft_pinned_objects true
eviction_ratio 0.05
eviction_high_watermark_ratio 0.90
nof_eviction_ratio 0.05
nof_eviction_high_watermark_ratio 0.90
client_ttl 10
enable_ha false
ha_backend_type etcd
ha_backend_connstring
etcd_endpoints
cluster_id mooncake_cluster
enable_oplog false
oplog_poll_interval_ms 1000
oplog_batch_max_entries 1024
batch_oplog_retry_timeout_sec 180
pod_name
pod_namespace
root_fs_dir
global_file_segment_size 9223372036854775807
memory_allocator offset
allocation_strategy random
enable_http_metadata_server false
http_metadata_server_host 0.0.0.0
http_metadata_server_port 8080
enable_metadata_cleanup_on_timeout false
put_start_discard_timeout_sec 30
put_start_release_timeout_sec 600
enable_disk_eviction true
quota_bytes 0
enable_multi_tenants false
tenant_quota_connector_type file
tenant_quota_connector_uri
enable_offload false
offload_on_evict false
offload_force_evict false
offloading_queue_limit 50000
offload_cap_ratio 0.5
promotion_on_hit false
promotion_admission_threshold 2
promotion_queue_limit 50000
promotion_max_per_heartbeat 1
dynamic_replication_mode off
dynamic_replication_heat_window_seconds 10
dynamic_replication_admission_qps_threshold 0.8
dynamic_replication_max_memory_replicas 2
enable_kv_events false
kv_events_bind_endpoint
kv_events_backend_id
kv_events_emit_legacy_compat true
kv_events_emit_object_key true
kv_events_queue_capacity 65536
nof_heartbeat_interval_sec 10
nof_heartbeat_probe_timeout_ms 1000
nof_heartbeat_failures_threshold 3
enable_snapshot false
enable_snapshot_restore false
snapshot_interval_seconds 600
snapshot_child_timeout_seconds 300
snapshot_retention_count 2
snapshot_object_store_type
snapshot_catalog_store_type
snapshot_catalog_store_connstring
snapshot_backup_dir
max_total_finished_tasks 10000
max_total_pending_tasks 10000
max_total_processing_tasks 10000
pending_task_timeout_sec 300
processing_task_timeout_sec 300
max_retry_attempts 10
enable_cxl false
cxl_path
cxl_size 8589934592
enable_gc false
logtostderr false
alsologtostderr false
v 0
minloglevel 0
log_dir"""
)

CLIENT_FLAGS = _table(
    """\
host
port 50052
global_segment_size 4GB
local_buffer_size 0
master_server_address 127.0.0.1:50051
metadata_server P2PHANDSHAKE
protocol tcp
device_names
threads 1
tenant_id default
enable_offload false
start_offload_rpc_server false
enable_http_server false
http_port 9300
logtostderr false
v 0
minloglevel 0
log_dir"""
)

# All other flags are accepted, and logged once.
MEANINGFUL = {
    "config_path",
    "port",
    "rpc_port",
    "rpc_address",
    "insecure",
    "metrics_port",
    "metrics_host",
    "enable_metric_reporting",
    "log_format",
    "enable_http_metadata_server",
    "http_metadata_server_host",
    "http_metadata_server_port",
    "enable_ha",
    "ha_backend_type",
    "ha_backend_connstring",
    "etcd_endpoints",
    "cluster_id",
    "enable_oplog",
    "enable_snapshot",
    "enable_offload",
    "enable_cxl",
    "host",
    "global_segment_size",
    "local_buffer_size",
    "master_server_address",
    "tenant_id",
    "protocol",
    "enable_http_server",
    "http_port",
}
