"""The native core, through ctypes; neither TensorFlow nor Horovod."""
