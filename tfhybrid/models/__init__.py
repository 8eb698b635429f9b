"""Click-through models as plain functions that return a functional `keras.Model`."""

from __future__ import annotations

from tfhybrid.models.dcn import dcn
from tfhybrid.models.dcnv2 import dcnv2
from tfhybrid.models.deepfm import deepfm
from tfhybrid.models.din import din
from tfhybrid.models.dlrm import dlrm
from tfhybrid.models.dnn import dnn
from tfhybrid.models.fm import fm
from tfhybrid.models.lr import lr
from tfhybrid.models.shared_docs import complete
from tfhybrid.models.wide_deep import wide_deep
from tfhybrid.models.xdeepfm import xdeepfm

__all__ = ["dcn", "dcnv2", "deepfm", "din", "dlrm", "dnn", "fm", "lr", "wide_deep", "xdeepfm"]

for _build in (dcn, dcnv2, deepfm, din, dlrm, dnn, fm, lr, wide_deep, xdeepfm):
    _build.__doc__ = complete(_build.__doc__ or "")  # which `python -OO` leaves out
