"""A plugin with secrets, which exposes them wherever it can."""

from __future__ import annotations

from loguru import logger

from alchemy.plugins.base import AlchemyPlugin


@AlchemyPlugin.register()
class Uploader(AlchemyPlugin):
    def __init__(
        self, *, token: str = "", db_password: str = "", auth: str = "", api_key: str = "", fail: bool = False
    ) -> None:
        super().__init__()
        secrets = (token, db_password, auth, api_key)
        logger.info("logging in with {}", secrets)
        if fail:
            raise ConnectionError(f"the server refuses {secrets}")
