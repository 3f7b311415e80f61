"""Run a small model on the toy NPU, after `pip install ./examples/custom_provider`."""

import numpy as np
import onnx.parser

import intarsia as ort

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
layer (float[N,4] x, float[4,3] w, float[3] b) => (float[N,3] y) {
    h = MatMul(x, w)  s = Add(h, b)  r = Relu(s)  y = Softmax(r)
}"""


def main() -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(
        "partition.keep_islands", "1"
    )  # four tiny nodes are not worth copies, but this is a demonstration
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    providers = [("ToyNpuExecutionProvider", {"memory_limit": 1 << 20}), "CPUExecutionProvider"]
    session = ort.InferenceSession(model, options, providers)
    rng = np.random.default_rng(0)
    feed = {name: rng.standard_normal(shape, np.float32) for name, shape in {"x": (2, 4), "w": (4, 3), "b": (3,)}.items()}
    (y,) = session.run(None, feed)
    logits = np.maximum(feed["x"] @ feed["w"] + feed["b"], 0)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    print(session.explain())
    print("right" if np.allclose(y, expected, atol=1e-6) else "wrong")


if __name__ == "__main__":
    main()
