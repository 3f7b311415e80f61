"""onnxruntime's objects: glue over model/, reports/ and options/."""
