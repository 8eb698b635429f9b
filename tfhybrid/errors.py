"""The exceptions of tfhybrid.

TfhybridError
├── ConfigError (ValueError)             arguments that can never work
├── UnsupportedError (ValueError)        a feature that is refused; names what to use
├── DataError (ValueError)               a malformed record, column or file of training data
├── NotInitializedError (RuntimeError)   `tfhybrid.init()` has not been called
├── CheckpointError (RuntimeError)       a checkpoint is missing, incomplete or does not fit
├── ExportError (RuntimeError)           a model cannot be served, or could not be written
├── StreamError (RuntimeError)           online training: a queue, a lease or an update
│   ├── PositionLostError                the queue does not have what comes next
│   ├── LeaseRefusedError                a lease is not this trainer's, or is over
│   └── PublicationError                 a publication is withheld, missing or of an old chain
└── StoreError (RuntimeError)            the shared-memory store
    ├── NameTakenError                   a living job or table has that name
    ├── StaleEpochError                  slots of embedding nodes have other owners meanwhile
    ├── OutOfSpaceError                  shared memory, disk or memory limit reached
    ├── CorruptFileError                 a segment or binary file is damaged
    ├── PeerDiedError                    a process that this one waits for is gone
    └── ReplicaError                     a table is not the same on all hosts
"""

from __future__ import annotations


class TfhybridError(Exception):
    """Base of every exception that tfhybrid raises on purpose."""

    # By which AutoGraph knows that it can raise the error once more: Keras 2 traces through it.
    __init__ = Exception.__init__


class ConfigError(TfhybridError, ValueError):
    """An argument or a combination of settings that can never work."""


class UnsupportedError(TfhybridError, ValueError):
    """A feature of Keras or TensorFlow that tfhybrid refuses; the message names what to use."""


class DataError(TfhybridError, ValueError):
    """A malformed record, column or file of training data."""


class NotInitializedError(TfhybridError, RuntimeError):
    """`tfhybrid.init()` has not been called in this process."""


class CheckpointError(TfhybridError, RuntimeError):
    """A checkpoint is missing, incomplete, damaged or does not fit the model."""


class ExportError(TfhybridError, RuntimeError):
    """A model cannot be served by stock TensorFlow, or could not be written; nothing appeared."""


class StreamError(TfhybridError, RuntimeError):
    """A queue, lease or update of online training could not do what was asked."""


class PositionLostError(StreamError):
    """A queue no longer has the records at a position, or has lost those that were there."""


class LeaseRefusedError(StreamError):
    """A lease that was asked for, or an update under it, is refused; the message says why."""


class PublicationError(StreamError):
    """A publication of weights is withheld, missing, or of a chain that has ended."""


class StoreError(TfhybridError, RuntimeError):
    """The shared-memory store could not do what was asked."""


class NameTakenError(StoreError):
    """A living job or an open table already has that name."""


class StaleEpochError(StoreError):
    """The slots of embedding nodes have other owners than the caller knew of; ask again."""


class OutOfSpaceError(StoreError):
    """Shared memory, disk or a memory limit ran out; nothing was changed."""


class CorruptFileError(StoreError):
    """A segment or a binary file is damaged, truncated or not what it should be."""


class PeerDiedError(StoreError):
    """A process that this one waited for has died or does not answer."""


class ReplicaError(StoreError):
    """A table is not the same, bit for bit, on all hosts."""
