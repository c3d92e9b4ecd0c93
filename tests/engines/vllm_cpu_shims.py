# SPDX-License-Identifier: Apache-2.0
"""vLLM's MooncakeConnector on a machine without an accelerator: it asks torch which one is current, and
torch raises. 0 is all that it needs; its KV is ordinary host memory. kv_connector_module_path."""

import torch

if not torch.accelerator.is_available():
    torch.accelerator.current_device_index = lambda: 0

from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector import (  # noqa: E402
    MooncakeConnector as _MooncakeConnector,
)


class MooncakeConnector(_MooncakeConnector):
    pass
