"""Features: what a model reads, described once for files, training and requests.

A feature is a column of the data and the Keras layers that turn it into keys or numbers.
"""

from tfhybrid.features.cross import Cross
from tfhybrid.features.list_layers import SplitText, Truncate
from tfhybrid.features.number_layers import Buckets, Clip, Default, Log
from tfhybrid.features.preprocessing import Features

__all__ = ["Buckets", "Clip", "Cross", "Default", "Features", "Log", "SplitText", "Truncate"]
