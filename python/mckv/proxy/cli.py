# SPDX-License-Identifier: Apache-2.0
"""mckv proxy: starts, reports the address, ends on a signal."""

from __future__ import annotations

import asyncio
import logging
import sys

from mckv import _web
from mckv._web import Refused
from mckv.proxy.options import Settings, parse
from mckv.proxy.server import running

logger = logging.getLogger("mckv.proxy")


async def _run(settings: Settings) -> None:
    stop = _web.stop_event()
    async with running(settings) as (proxy, port):
        logger.info(
            "listening=http://%s:%d way=%s instances=%d",
            settings.host, port, settings.way, len(list(proxy.fleet)),
        )  # fmt: skip
        if not settings.api_key and not _web.is_loopback(settings.host):
            logger.warning(
                "others reach host=%s and need no key: MCKV_PROXY_API_KEY", settings.host
            )
        await stop.wait()
        logger.info("ending requests=%d", proxy.fleet.in_flight)


def main(arguments: list[str]) -> None:
    settings = parse(arguments)
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    try:
        asyncio.run(_run(settings))
    except (OSError, Refused) as error:
        sys.exit(f"mckv proxy: {error}")
