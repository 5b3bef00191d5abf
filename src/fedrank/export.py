"""Exports trained models as a PyTorch state dict, as ONNX, or as a seed and one bit per edge."""

from __future__ import annotations

import io
import json
import logging
import operator
import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fedrank.ballots.frame import Frame
from fedrank.data import SOURCES, Inputs, Preprocess, Source, find_source
from fedrank.errors import ConfigError, DataError, FedrankError, RunError
from fedrank.experiment.config import Experiment
from fedrank.experiment.parts import Parts
from fedrank.experiment.rundir import PARTS, RunDirectory, write_output
from fedrank.experiment.sections import NetworkSection
from fedrank.methods import FRL
from fedrank.methods.frl import FRLState
from fedrank.nn import NETWORKS, Supernetwork, supernetwork
from fedrank.parameters import did_you_mean
from fedrank.rank import top_count

FRAME = Frame(magic=b"FRLM", version=1, fields="xxxI", names=("length of the description",))
LARGEST_DESCRIPTION = 2**16
DATA = "fedrank.data"
"""Metadata key of an ONNX file for the data set it was trained on."""
SUFFIXES = {"torch": ".pt", "onnx": ".onnx", "fedrank": ".frlm"}


@dataclass(frozen=True)
class Portable:
    """A model that works without its run, and the data set it was trained on."""

    predict: Callable[[Inputs], NDArray[np.float32]]
    """Returns the logits for a batch of stored images."""
    source: Source


class WithPreprocessing(nn.Module):
    """A network together with the preprocessing of its inputs: images, signals or tables."""

    def __init__(self, network: nn.Module, preprocess: Preprocess) -> None:
        super().__init__()
        self.network = network
        self.factor: Tensor
        self.shift: Tensor
        self.channel_shape = preprocess.channel_shape
        std = torch.tensor(preprocess.std)
        self.register_buffer("factor", 1 / (preprocess.scale * std))
        self.register_buffer("shift", torch.tensor(preprocess.mean) / std)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits for inputs as they are stored, such as pixels from 0 to 255."""
        shape = self.channel_shape(inputs.ndim)
        if inputs.is_floating_point():
            inputs = inputs.to(self.factor.dtype)  # arrays of NumPy have 64 bits
        logits: Tensor = self.network(inputs * self.factor.reshape(shape) - self.shift.reshape(shape))
        return logits


def export(run: RunDirectory, method: Any, state: Any, to: str, path: Path) -> None:
    """Export the model of a run's state to a file."""
    model = method.model(state)
    if to == "torch":
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        write_output(path, file.getbuffer())
        return
    if not isinstance(run.experiment, Experiment):
        raise ConfigError(
            f"{run.path}: a model of your own is exported --to torch only; for other formats, take the "
            f"module from Python: fedrank.load({str(run.path)!r}).subnetwork()"
        )
    match to:
        case "onnx":
            write_output(path, onnx_bytes(model, *_stored_inputs(run, run.experiment)))
        case "fedrank":
            if run.experiment.data.own or run.experiment.network.own:
                raise ConfigError(
                    f"{run.path}: a .frlm file stores only the names of its network and data set, so it "
                    "cannot hold a model or data of your own; use --to onnx or --to torch"
                )
            if not isinstance(method, FRL):
                raise ConfigError(
                    f"{run.path}: {run.experiment.method.name} trains weights; only frl exports --to fedrank"
                )
            write_output(path, compact_bytes(run.experiment, method, state))
        case _:
            raise ConfigError(f"unknown format {to!r}{did_you_mean(to, SUFFIXES)}")


def _stored_inputs(run: RunDirectory, experiment: Experiment) -> tuple[str, Sequence[int], Preprocess]:
    """Return the name of a run's data, the shape of a sample, and what is done to it before the network."""
    name = experiment.data.name
    if not experiment.data.own:
        source = find_source(name)
        return name, source.shape, source.preprocess
    parts = Parts.read(run)
    if parts is None or parts.data is None:
        raise RunError(f"{run.path}: {PARTS} is missing, which says what the inputs of the model are")
    return name, parts.data.shape, parts.data.preprocessing()


def onnx_bytes(network: nn.Module, data: str, shape: Sequence[int], preprocess: Preprocess) -> bytes:
    """Return a model that takes inputs as they are stored as ONNX, for batches of any size."""
    try:
        import onnxscript  # noqa: F401  (the exporter needs it)
    except ModuleNotFoundError:
        raise ConfigError("ONNX support is not installed; run: pip install 'fedrank[onnx]'") from None
    model = WithPreprocessing(network, preprocess)
    example = torch.zeros(2, *shape)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model.eval(),
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["images" if data in SOURCES else "inputs"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("images")},),
        )
    assert program is not None
    model_proto = program.model_proto
    model_proto.metadata_props.add(key=DATA, value=data)
    return bytes(model_proto.SerializeToString())


def compact_bytes(experiment: Experiment, method: FRL, state: FRLState) -> bytes:
    """Return a subnetwork as a description of its network, a seed, and one bit per edge."""
    section = experiment.network
    description = json.dumps(
        {
            "network": section.name,
            "seed": experiment.seed,
            "keep": section.keep,
            "weights": section.weights,
            "data": experiment.data.name,
            "rounds": state.round,
        }
    ).encode()
    bits = np.packbits(method.network.mask(state.ranking)).tobytes()
    return FRAME.close(FRAME.header(len(description)), description, bits)


def read_compact(path: Path) -> tuple[nn.Module, Source]:
    """Read a model written by `compact_bytes`; return it and the data set it was trained on."""
    try:
        content = path.read_bytes()
        length = FRAME.claims(content)["length of the description"]
        if length > LARGEST_DESCRIPTION:
            raise ValueError(f"its description has {length} bytes")
        payload = FRAME.open(content, FRAME.header(length))
        description = json.loads(bytes(payload[:length]))
        section = NetworkSection(
            name=description["network"], keep=description["keep"], weights=description["weights"]
        )
        source = find_source(description["data"])
        network = supernetwork(
            NETWORKS[section.name](),
            seed=operator.index(description["seed"]),
            keep=section.keep,
            weights=section.weights,
        )
        mask = _mask(network, bytes(payload[length:]))
        model = network.with_weights(np.where(mask, network.weights, np.float32(0)))
        _check_takes(model, source)
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, struct.error, FedrankError) as error:
        raise RunError(f"{path}: not a fedrank model ({error})") from error
    return model, source


def _check_takes(model: nn.Module, source: Source) -> None:
    try:
        with torch.inference_mode():
            classes = model(torch.zeros(1, *source.shape)).shape[1]
    except RuntimeError as error:
        raise ValueError(f"the network does not accept images of {source.name}") from error
    if classes < source.classes:
        raise ValueError(f"the network has {classes} outputs, but {source.name} has {source.classes} classes")


def _mask(network: Supernetwork, packed: bytes) -> NDArray[np.bool_]:
    if len(packed) != (network.layout.size + 7) // 8:
        raise ValueError(f"the mask of {network.layout.size} edges has {len(packed)} bytes")
    mask = np.unpackbits(np.frombuffer(packed, np.uint8), count=network.layout.size).astype(bool)
    for layer in network.layout:
        kept, expected = int(mask[layer.edges].sum()), top_count(layer.size, network.keep)
        if kept != expected:
            raise ValueError(f"layer {layer.name} keeps {kept} edges, expected {expected}")
    return mask


def open_model(path: Path) -> Portable:
    """Open an exported model for prediction: a fedrank or ONNX file."""
    if path.suffix == SUFFIXES["torch"]:
        raise ConfigError(
            f"{path}: a state dict does not name its network; export --to fedrank or onnx instead"
        )
    if path.suffix == SUFFIXES["onnx"]:
        return _open_onnx(path)
    model, source = read_compact(path)

    def predict(images: Inputs) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits: Tensor = model(torch.from_numpy(source.preprocess(images)))
        return logits.numpy()

    return Portable(predict, source)


def _open_onnx(path: Path) -> Portable:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ConfigError("ONNX support is not installed; run: pip install 'fedrank[onnx]'") from None
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except Exception as error:  # the runtime's exceptions share no base class
        raise RunError(f"{path}: not an ONNX model ({error})") from error
    data = session.get_modelmeta().custom_metadata_map.get(DATA)
    if data and data not in SOURCES:
        raise RunError(f"{path}: was trained on {data}, which fedrank does not know; use onnxruntime")
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if [(each.name, each.type, len(each.shape)) for each in inputs] != [("images", "tensor(float)", 4)] or [
        (each.name, len(each.shape)) for each in outputs
    ] != [("logits", 2)]:
        raise RunError(f"{path}: not exported by fedrank; expected an input 'images' and an output 'logits'")
    if not data:
        raise RunError(f"{path}: does not name its data set, as models exported by fedrank do")
    source = SOURCES[data]
    shape, classes = tuple(inputs[0].shape[1:]), outputs[0].shape[1]
    if shape != source.shape or not isinstance(classes, int) or classes < source.classes:
        raise RunError(f"{path}: takes images of shape {shape} and does not fit {source.name}")

    def predict(images: Inputs) -> NDArray[np.float32]:
        try:
            return np.asarray(session.run(["logits"], {"images": images.astype(np.float32)})[0])
        except Exception as error:  # no common base class here either
            raise RunError(f"{path}: the model failed ({error})") from error

    return Portable(predict, source)


def read_images(paths: Sequence[Path], source: Source) -> Inputs:
    """Read image files in the data set's format: its size, and grayscale or RGB."""
    channels, height, width = source.shape
    images = []
    for path in paths:
        try:
            with Image.open(path) as image:
                picture = _opaque(image).convert("L" if channels == 1 else "RGB").resize((width, height))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except Exception as error:  # reading a damaged image can raise any exception
            raise DataError(f"{path}: cannot be read as an image ({error})") from error
        pixels = np.asarray(picture, np.float32).reshape(height, width, channels).transpose(2, 0, 1)
        images.append(pixels * (source.preprocess.scale / 255))
    return np.stack(images)


def _opaque(image: Image.Image) -> Image.Image:
    """Return an image with eight bits per channel; reject transparent ones, whose background is undefined."""
    if image.has_transparency_data and np.asarray(image.convert("RGBA").getchannel("A")).min() < 255:
        raise ValueError("it has transparent pixels; save it on a plain background")
    if image.mode.startswith("I"):  # 16-bit grayscale, which `convert` would clip at 255
        return Image.fromarray((np.asarray(image, np.float64) / 257).astype(np.uint8))
    return image
