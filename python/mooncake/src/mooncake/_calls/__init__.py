# SPDX-License-Identifier: Apache-2.0
"""The methods of MooncakeDistributedStore: a mix-in on StoreBase per module and group of calls."""
