# SPDX-License-Identifier: Apache-2.0
"""What LMCache asks of a connector whose engine has host memory."""

from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface


class HostCopies(GPUConnectorInterface):
    """A batch is copied one chunk after the other; from_gpu() and to_gpu() copy a chunk."""

    def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
        for one, start, end in zip(memory_objs, starts, ends, strict=True):
            self.from_gpu(one, start, end, **kwargs)

    def batched_to_gpu(self, memory_objs, starts, ends, **kwargs):
        for one, start, end in zip(memory_objs, starts, ends, strict=True):
            self.to_gpu(one, start, end, **kwargs)
