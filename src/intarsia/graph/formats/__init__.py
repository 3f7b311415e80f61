"""Files and bytes: protobuf, FlatBuffers, external data, read in place and written whole."""
