"""Export: a checkpoint as ONNX, int8 or OpenVINO, shipped only with the score it was measured at."""
