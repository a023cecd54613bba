from .locking import commit_lock

__all__ = ["commit_lock"]
