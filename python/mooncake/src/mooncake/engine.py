# SPDX-License-Identifier: Apache-2.0
"""mooncake.engine needs one-sided transfers between processes, which libmc has not yet."""

raise ImportError(
    "mooncake.engine: TransferEngine is not part of mckv-mooncake yet: libmc has no transfer verb. "
    "mooncake.store works; for prefill/decode transfer use Mooncake's own wheel in an environment "
    "of its own."
)
