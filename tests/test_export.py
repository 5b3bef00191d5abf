"""Models that leave fedrank compute what they computed inside."""

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from fedrank.cli import app
from fedrank.errors import ConfigError, DataError, RunError
from fedrank.experiment.config import load_preset
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, last_state, prepare, run
from fedrank.export import export, open_model, read_compact, read_images
from fedrank.nn import NETWORKS

SMALL = ("rounds=2", "data.clients=6", "clients_per_round=4", "local.epochs=1", "evaluate_every=9")


def made(path, preset="digits", *settings):
    experiment = load_preset(preset, (*SMALL, *settings))
    directory = RunDirectory.create(path, experiment, {"data_dir": "", "device": "cpu"})
    prepared = prepare(experiment, path)
    run(directory, prepared, workers=1, device="cpu", observer=Observers(()))
    return directory, prepared


@pytest.fixture(scope="module", params=["signed", "authors"])
def trained(request, tmp_path_factory):
    """Return a run, its method and state, and real images with the logits of its model."""
    directory, prepared = made(
        tmp_path_factory.mktemp("run") / "r", "digits", f"network.scores={request.param}"
    )
    state = last_state(directory, prepared.method)
    images = prepared.federation.dataset.inputs[:100]
    with torch.inference_mode():
        inputs = torch.from_numpy(prepared.federation.dataset.preprocess(images))
        logits = prepared.method.model(state)(inputs).numpy()
    return directory, prepared.method, state, images, logits


def test_a_state_dict_is_an_ordinary_one(trained, tmp_path):
    directory, method, state, images, logits = trained
    export(directory, method, state, "torch", tmp_path / "model.pt")
    network = NETWORKS["lenet-digits"]()
    network.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    source = open_dataset(directory)
    with torch.inference_mode():
        assert np.array_equal(network(torch.from_numpy(source.preprocess(images))).numpy(), logits)


def open_dataset(directory):
    from fedrank.data import find_source

    return find_source(directory.experiment.data.name)


def test_the_compact_form_is_one_bit_an_edge_and_the_same_model(trained, tmp_path):
    directory, method, state, images, logits = trained
    path = tmp_path / "model.frlm"
    export(directory, method, state, "fedrank", path)
    assert path.stat().st_size < method.layout.size / 8 + 250
    assert np.array_equal(open_model(path).predict(images), logits)


def test_onnx_computes_the_same_on_real_images(trained, tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX is not installed: pip install 'fedrank[onnx]'")
    directory, method, state, images, logits = trained
    export(directory, method, state, "onnx", tmp_path / "model.onnx")
    predicted = open_model(tmp_path / "model.onnx").predict(images)
    np.testing.assert_allclose(predicted, logits, rtol=1e-3, atol=1e-4)
    assert (predicted.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_a_lenet_takes_about_200_kilobytes(tmp_path):
    from fedrank.experiment.build import build_method
    from fedrank.export import write_compact

    experiment = load_preset("mnist")
    images = np.zeros((2, 1, 28, 28), np.uint8)
    import fedrank

    federation = fedrank.split(images, [0, 9], by=fedrank.IID(), clients=1, seed=1)
    method = build_method(experiment, federation)
    write_compact(experiment, method, method.init(), tmp_path / "lenet.frlm")
    assert 200_000 < (tmp_path / "lenet.frlm").stat().st_size < 206_000


def test_damaged_models_are_refused(trained, tmp_path):
    directory, method, state, _, _ = trained
    path = tmp_path / "model.frlm"
    export(directory, method, state, "fedrank", path)
    content = path.read_bytes()
    for damaged in (
        b"",
        content[:-1],
        content[:100],
        content[:60] + b"x" + content[61:],
        b"PK" + content[2:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="no model of fedrank's"):
            read_compact(path)


def test_a_model_with_another_number_of_edges_is_refused(trained, tmp_path):
    """A checksum keeps out damage, not malice: what the bits say is checked, too."""
    import zlib

    from fedrank.export import CHECKSUM

    directory, method, state, _, _ = trained
    path = tmp_path / "model.frlm"
    export(directory, method, state, "fedrank", path)
    body = bytearray(path.read_bytes()[: -CHECKSUM.size])
    body[-1] ^= 1
    path.write_bytes(bytes(body) + CHECKSUM.pack(zlib.crc32(body)))
    with pytest.raises(RunError, match="are kept"):
        read_compact(path)


def test_weights_have_no_compact_form(tmp_path):
    directory, prepared = made(tmp_path / "run", "digits-weights")
    state = last_state(directory, prepared.method)
    with pytest.raises(ConfigError, match="trains weights"):
        export(directory, prepared.method, state, "fedrank", tmp_path / "model")
    export(directory, prepared.method, state, "torch", tmp_path / "model.pt")


def test_commands_export_and_predict(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory, _, _, images, logits = trained
    invoke = CliRunner().invoke
    made = invoke(app, ["export", str(directory.path), "--to", "fedrank", "--out", str(tmp_path / "m.frlm")])
    assert made.exit_code == 0, made.output
    paths = []
    for number in range(5):
        paths.append(f"digit-{number}.png")
        Image.fromarray((images[number, 0] * (255 / 16)).round().astype(np.uint8)).save(paths[-1])
    told = invoke(app, ["predict", str(tmp_path / "m.frlm"), *paths])
    assert told.exit_code == 0, told.output
    answers = [line.split()[1] for line in told.output.splitlines() if "digit-" in line]
    assert answers == [str(row.argmax()) for row in logits[:5]]
    assert isinstance(invoke(app, ["export", str(directory.path), "--to", "keras"]).exception, ConfigError)
    assert isinstance(invoke(app, ["predict", str(tmp_path / "none.frlm"), *paths]).exception, RunError)
    assert isinstance(invoke(app, ["predict", str(tmp_path / "m.frlm"), __file__]).exception, DataError)
    assert isinstance(invoke(app, ["predict", "model.pt", *paths]).exception, ConfigError)


def test_images_are_read_as_the_data_set_stores_them(tmp_path):
    from fedrank.data import find_source

    Image.new("RGB", (64, 48), (255, 0, 0)).save(tmp_path / "red.png")
    [red] = read_images([tmp_path / "red.png"], find_source("cifar10"))
    assert red.shape == (3, 32, 32)
    assert (red[0] == 255).all()
    assert (red[1:] == 0).all()
    [grey] = read_images([tmp_path / "red.png"], find_source("digits"))
    assert grey.shape == (1, 8, 8)
    assert grey.max() <= 16
