"""What the tasks of this project share: a kind of part of its own."""

from alchemy.registry import Registrable


class CollateFn(Registrable):
    @classmethod
    def from_registry(cls, ty, **kwargs):
        return cls.resolve_registered_module(ty)(**kwargs)

    def __call__(self, batch):
        raise NotImplementedError(type(self).__name__)
