# SPDX-License-Identifier: Apache-2.0
"""The methods of MooncakeDistributedStore: one module and one mix-in per group of calls."""
