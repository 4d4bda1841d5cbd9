"""C++ sources for a TFLite Micro project: the flatbuffer as an array, and the operators it uses."""

from collections.abc import Sequence

from .flatbuffer import TFLM_OPERATORS

_PER_LINE = 12


def data_header() -> str:
    """Declares the array of `data_source`."""
    return (
        "#ifndef MODEL_DATA_H_\n#define MODEL_DATA_H_\n\n"
        "extern const unsigned char g_model_data[];\n"
        "extern const int g_model_data_size;\n\n"
        "#endif  // MODEL_DATA_H_\n"
    )


def data_source(flatbuffer: bytes) -> str:
    """The flatbuffer as a constant array, aligned as TFLite Micro needs it."""
    lines = [
        "    " + ", ".join(f"0x{byte:02x}" for byte in flatbuffer[start : start + _PER_LINE]) + ","
        for start in range(0, len(flatbuffer), _PER_LINE)
    ]
    return (
        '#include "model_data.h"\n\n'
        "alignas(16) const unsigned char g_model_data[] = {\n"
        + "\n".join(lines)
        + f"\n}};\nconst int g_model_data_size = {len(flatbuffer)};\n"
    )


def operators_header(operators: Sequence[str], arena: int | None) -> str:
    """A resolver with exactly these operators, and the arena in bytes if it is known."""
    calls = [
        f"  TF_LITE_ENSURE_STATUS(resolver.{TFLM_OPERATORS[name]}());\n"
        for name in sorted(set(operators))
    ]
    size = (
        "// The arena was not measured: TFLite Micro was not installed.\n"
        if arena is None
        else "// Measured on a 64-bit machine; with 32-bit pointers a little less is enough.\n"
        f"constexpr int kModelArenaSize = {-(-arena // 16) * 16};\n"
    )
    count = len(calls)
    return (
        "#ifndef MODEL_OPS_H_\n#define MODEL_OPS_H_\n\n"
        '#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"\n\n'
        f"{size}\n"
        f"using ModelOpResolver = tflite::MicroMutableOpResolver<{count}>;\n\n"
        "inline TfLiteStatus RegisterModelOps(ModelOpResolver& resolver) {\n"
        + "".join(calls)
        + "  return kTfLiteOk;\n}\n\n#endif  // MODEL_OPS_H_\n"
    )
