"""A store in Redis or Valkey, for the processes of several hosts. It needs the package `redis`."""

from interlock.serving.store.redis.redis_store import RedisStore

__all__ = ["RedisStore"]
