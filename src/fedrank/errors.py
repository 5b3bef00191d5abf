"""What can go wrong, in words for the person who has to fix it."""


class FedrankError(Exception):
    """Base of every error that fedrank raises on purpose."""


class ConfigError(FedrankError):
    """An experiment's configuration is refused."""


class DataError(FedrankError):
    """Data is missing, damaged or not what was announced."""


class ModelError(FedrankError):
    """A model cannot be turned into a supernetwork."""


class BallotError(FedrankError):
    """A ballot is not legal and does not count."""


class TooFewUpdatesError(FedrankError):
    """Too few clients of a round have sent anything usable."""


class TrainingError(FedrankError):
    """A client or a worker process failed while training."""


class RunError(FedrankError):
    """A run directory cannot be read or written."""


class FedrankWarning(UserWarning):
    """Something that makes training hard, and what to do about it."""
