# SPDX-License-Identifier: Apache-2.0
"""Mooncake's Python interface, served by mc. See python/mooncake/README.md for what differs."""
