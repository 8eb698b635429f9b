"""Rights that the calls of a stream's processes need."""

from __future__ import annotations

from tfhybrid._remote import call_name
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit
from tfhybrid.stream.sync_unit.target_model import TargetModel

_READ = (
    Provider.lag,
    Provider.stats,
    SyncUnit.stats,
    TargetModel.digests,
    TargetModel.read,
    TargetModel.saved,
    TargetModel.standing,
)
_TRAIN = (
    Provider.finish,
    Provider.has_rows,
    Provider.last_record,
    Provider.lease_encoded,
    Provider.leave,
    Provider.put,
    Provider.renew,
    TargetModel.apply_record,
    TargetModel.open,
)

CALL_RIGHTS = {call_name(each): "read" for each in _READ} | {
    call_name(each): "train" for each in _TRAIN
}
"""Right that a call needs, by its name. All other calls need the right to operate."""
