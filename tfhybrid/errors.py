"""Exceptions of tfhybrid.

TfhybridError
├── ConfigError (ValueError)             arguments that cannot work
├── UnsupportedError (ValueError)        an unsupported feature; says what to use instead
├── DataError (ValueError)               a malformed record, column or file of training data
├── NotInitializedError (RuntimeError)   `tfhybrid.init()` has not been called
├── CheckpointError (RuntimeError)       a missing, incomplete or incompatible checkpoint
├── ExportError (RuntimeError)           a model cannot be exported, or writing it failed
├── StreamError (RuntimeError)           online training: a queue, a lease or an update
│   ├── PositionLostError                the queue no longer has the records at a position
│   ├── LeaseRefusedError                a lease belongs to another trainer, or has ended
│   └── PublicationError                 a publication is withheld, missing or of an old chain
└── StoreError (RuntimeError)            the shared-memory store
    ├── NameTakenError                   a living job or table has that name
    ├── StaleEpochError                  slots of embedding nodes have new owners
    ├── OutOfSpaceError                  shared memory, disk or memory limit reached
    ├── CorruptFileError                 a segment or binary file is damaged
    ├── PeerDiedError                    a process that this one waits for has died
    └── ReplicaError                     replicas of a table differ between hosts
"""

from __future__ import annotations


class TfhybridError(Exception):
    """Base class of all exceptions of tfhybrid."""

    # With this __init__, AutoGraph may raise the error again. Keras 2 traces through it.
    __init__ = Exception.__init__


class ConfigError(TfhybridError, ValueError):
    """An argument, or a combination of settings, cannot work."""


class UnsupportedError(TfhybridError, ValueError):
    """tfhybrid does not support a Keras or TensorFlow feature; the message names an alternative."""


class DataError(TfhybridError, ValueError):
    """A malformed record, column or file of training data."""


class NotInitializedError(TfhybridError, RuntimeError):
    """`tfhybrid.init()` has not been called in this process."""


class CheckpointError(TfhybridError, RuntimeError):
    """A checkpoint is missing, incomplete, damaged or does not fit the model."""


class ExportError(TfhybridError, RuntimeError):
    """Stock TensorFlow cannot serve the model, or writing it failed; no files were left."""


class StreamError(TfhybridError, RuntimeError):
    """An operation on a queue, lease or update of online training failed."""


class PositionLostError(StreamError):
    """A queue no longer has the records at a position."""


class LeaseRefusedError(StreamError):
    """A request for a lease, or an update under one, was refused; the message says why."""


class PublicationError(StreamError):
    """A publication of weights is withheld, missing, or of a chain that has ended."""


class StoreError(TfhybridError, RuntimeError):
    """An operation on the shared-memory store failed."""


class NameTakenError(StoreError):
    """A running job or an open table already has that name, or another process writes a queue."""


class StaleEpochError(StoreError):
    """The slots of embedding nodes have other owners than the caller knew; get them and retry."""


class OutOfSpaceError(StoreError):
    """Shared memory, the disk or a memory limit is exhausted; nothing was changed."""


class CorruptFileError(StoreError):
    """A segment or a binary file is damaged, truncated or of the wrong kind."""


class PeerDiedError(StoreError):
    """A process that this one waits for has died, or does not respond."""


class ReplicaError(StoreError):
    """The replicas of a table are not equal, bit for bit, on all hosts."""
