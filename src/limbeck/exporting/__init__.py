"""Export: a checkpoint as ONNX, int8 or OpenVINO, shipped only with the score it was measured at."""

from limbeck.exporting.conversions import ExportSettings, conversions
from limbeck.exporting.export_model import export

__all__ = ["ExportSettings", "conversions", "export"]
