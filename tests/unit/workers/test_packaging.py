"""Packages: written once, verified always, refused with what to do."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from deploy.state.packages import model_record
from workers import manifest as manifests
from workers.entry_point import resolve
from workers.errors import OutputError, PackageError
from workers.executors.factory import executor_of
from workers.executors.frames import Package
from workers.executors.process import ProcessExecutor
from workers.manifest import MANIFEST, Manifest, Signature
from workers.packages.loading import checked, load_package, stored_examples
from workers.packages.packaging import package_function, package_sklearn
from workers.packages.sealed import sealed
from workers.runtimes import contract
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

X = np.arange(24, dtype=np.float32).reshape(8, 3)
Y = np.arange(8) % 2


def saved(rows: Any, *, allow_pickle: bool = False) -> bytes:
    """Return what `np.save` writes."""
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=allow_pickle)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that holds a package of a logistic regression."""
    package_sklearn(LogisticRegression().fit(X, Y), tmp_path / "package", "digits", "3", X[:2], output="scores")
    return tmp_path / "package"


class OwnRidge(Ridge):  # type: ignore[misc]  # it has no annotations
    """An estimator of the user's."""


def halved(rows: Any) -> Any:
    """Transform rows, as a user's function does."""
    return rows / 2


DIGEST = "0" * 64
ROOT = Path(__file__).parents[3]


def nested(depth: int) -> dict[str, Any]:
    """Return an object in an object, so many times."""
    return {"a": nested(depth - 1)} if depth else {}


def rewrite(folder: Path, **changes: Any) -> None:
    """Change fields of a manifest."""
    document = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(document | changes))


def test_a_manifest_says_what_the_model_takes_and_answers(folder: Path) -> None:
    """Read back, it is what packaging returned; the file's digest is there."""
    manifest = manifests.read(folder)
    assert (manifest.name, manifest.version, manifest.runtime, manifest.output) == ("digits", "3", "sklearn", "scores")
    assert manifest.input == Signature("tensor", "float32", (3,))
    assert manifest.classes == (0, 1)
    files = ("model.skops", "examples.npy")
    assert manifest.files == {name: manifests.sha256(folder / name) for name in files}
    assert load_package(folder).digest == manifests.digest(folder)


def test_a_package_never_changes(folder: Path) -> None:
    """A new version needs a new folder."""
    with pytest.raises(PackageError, match="new folder"):
        package_sklearn(LogisticRegression().fit(X, Y), folder, "digits", "4", X[:2])
    assert manifests.read(folder).version == "3"


def test_a_package_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    """So that the same folder can be used for the next try."""
    with pytest.raises(PackageError, match="sample input"):
        package_sklearn(LogisticRegression().fit(X, Y), tmp_path / "new", "digits", "1", X[:2, :2])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"runtime": "tvm"}, "use one of sklearn, torch, function, onnx, trees"),
        ({"output": "logits"}, "use one of label, scores, value"),
        ({"name": "Digits!"}, "lower-case"),
        ({"version": ""}, "version"),
        ({"classes": [0, "one"]}, "all whole numbers or all strings"),
        ({"input": {"kind": "image"}}, "use one of tensor"),
        ({"input": {"kind": "tensor", "dtype": "complex64"}}, "convert the input"),
        ({"files": {"../model.skops": DIGEST}}, "not a plain file"),
        ({"files": {"other": DIGEST}}, "missing"),
        ({"files": {"model.skops": "0"}}, "the digest of model.skops cannot be"),
        ({"files": {"model.skops\0": DIGEST}}, "not a plain file"),
        ({"files": {"a" * 5_000: DIGEST}}, "not a plain file"),
        ({"files": ["model.skops"]}, "files of the manifest cannot be"),
        ({"files": {}}, "lists no model.skops"),
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"input": None}, "package the model again"),
        ({"version": 1}, "version of the manifest cannot be 1"),
        ({"version": "1" * 300}, "1 to 256 letters"),
        ({"classes": [True, False]}, "classes of the manifest cannot be"),
        ({"classes": 5}, "classes of the manifest cannot be 5"),
        ({"input": {"kind": "tensor", "dtype": "float32", "shape": [1 << 40]}}, "shape of input cannot be"),
        ({"input": {"kind": "tensor", "dtype": "float32", "shape": [1 << 30]}}, "larger than 67,108,864 bytes"),
        ({"input": {"kind": "tensor", "dtype": "float32", "shape": [-1]}}, "shape of input cannot be"),
        ({"input": {"kind": "table"}}, "has columns"),
        ({"options": {"conversion": {"to": 5}}}, "to of conversion cannot be 5"),
        ({"options": {"conversion": {"batch_us": {"trees": {}}}}}, "batch_us of conversion cannot be"),
        ({"options": {"conversion": []}}, "conversion has|conversion is no object"),
        ({"options": {"min_rows": 1 << 40}}, "min_rows of options cannot be"),
        ({"options": {"parity": {"of": "net@1"}}}, "parity of options cannot be"),
        ({"options": {"parity": {"of": "net@1", "k": 2, "right": [0.5]}}}, "right of parity cannot be"),
        ({"options": {"parity": {"of": "net@1", "k": 2, "right": [2.0] * 13}}}, "right of parity cannot be"),
        ({"options": {"arguments": nested(40)}}, "more than 32 deep"),
    ],
)
def test_a_manifest_that_is_not_right_is_refused(folder: Path, changes: dict[str, Any], complaint: str) -> None:
    """Each with what to do about it."""
    rewrite(folder, **changes)
    with pytest.raises(PackageError, match=complaint):
        load_package(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'"text"', b"[" * 100_000, b'{"options":' * 100_000])
def test_what_is_no_manifest_is_refused(folder: Path, content: bytes) -> None:
    """Any bytes either are a manifest or raise PackageError."""
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(PackageError):
        load_package(folder)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    """The message says how packages are made."""
    with pytest.raises(PackageError, match="skysail model package"):
        load_package(tmp_path)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    """The package is what its folder holds."""
    (folder / "model.skops").rename(tmp_path / "model.skops")
    (folder / "model.skops").symlink_to(tmp_path / "model.skops")
    with pytest.raises(PackageError, match="not a plain file"):
        load_package(folder)


def test_a_link_inside_the_folder_is_refused(folder: Path) -> None:
    """So that a file cannot become another one between two looks."""
    (folder / "model.skops").rename(folder / "other")
    (folder / "model.skops").symlink_to("other")
    with pytest.raises(PackageError, match=r"not a plain file .* a link, .* copy the files, or link the whole folder"):
        load_package(folder)


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    """Nor is a folder read."""
    (folder / "model.skops").unlink()
    os.mkfifo(folder / "model.skops")
    with pytest.raises(PackageError, match="not a plain file"):
        load_package(folder)


def test_what_the_manifest_does_not_list_is_not_read(folder: Path) -> None:
    """Its digest would pin the manifest, and nothing of the model."""
    rewrite(folder, files={})
    with pytest.raises(PackageError, match=r"lists no model\.skops"):
        load_package(folder, digest=manifests.digest(folder))


def test_what_was_checked_is_what_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is exchanged after its digest was taken is not opened again."""

    def exchanged(where: Path, manifest: Manifest, _cache: object) -> Mapping[str, bytes]:
        found = sealed(where, manifest)
        for name in (*manifest.files, MANIFEST):
            (where / name).write_bytes(b"exchanged")
        return found

    monkeypatch.setattr("workers.packages.loading.sealed", exchanged)
    assert load_package(folder).runtime.predict_batch(X[:2]).answers is not None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no rows"),
        (b"garbage", "holds no rows"),
        (saved(np.array([{}], dtype=object), allow_pickle=True), "holds objects"),
        (saved(np.zeros((2, 3))), "takes rows of float32"),
        (saved(np.zeros((2, 4), np.float32)), "takes rows of float32"),
        (saved(np.zeros((0, 3), np.float32)), "takes rows of float32"),
        (saved(X[:2]).replace(b"(2, 3)", b"(9, 3)"), "holds no rows"),
    ],
)
def test_example_rows_that_are_none_are_refused_before_the_model_is_deployed(
    folder: Path, content: bytes, complaint: str
) -> None:
    """As they are by whoever loads it."""
    (folder / "examples.npy").write_bytes(content)
    document = json.loads((folder / MANIFEST).read_text())
    rewrite(folder, files=document["files"] | {"examples.npy": manifests.sha256(folder / "examples.npy")})
    for look in (checked, load_package):
        with pytest.raises(PackageError, match=complaint):
            look(folder)


def test_a_single_number_is_no_example_rows() -> None:
    """Also where the model takes single numbers, whose rows have one dimension."""
    manifest = Manifest("a", "1", "sklearn", Signature("tensor", "float32", ()), "label")
    assert stored_examples(manifest, {"examples.npy": saved(X[:2, 0])}).shape == (2,)
    with pytest.raises(PackageError, match="takes rows of float32"):
        stored_examples(manifest, {"examples.npy": saved(np.array(1, np.float32))})


def test_example_rows_are_read_as_they_were_written() -> None:
    """Whichever way they lay in memory."""
    manifest = Manifest("a", "1", "sklearn", Signature("tensor", "float32", (3,)), "label")
    for rows in (X, np.asfortranarray(X)):
        assert np.array_equal(stored_examples(manifest, {"examples.npy": saved(rows)}), X)


def test_types_that_are_not_trusted_are_refused_at_packaging(tmp_path: Path) -> None:
    """The message names them and the choices; nothing is left behind."""
    estimator = FunctionTransformer(resolve)
    estimator.predict = None
    with pytest.raises(PackageError, match=r"workers\.entry_point\.resolve"):
        package_sklearn(estimator, tmp_path / "new", "digits", "1", X[:2], output="value")
    assert not (tmp_path / "new").exists()


def test_types_that_are_not_trusted_are_refused_at_loading(folder: Path) -> None:
    """A forged package with fitting digests still holds nothing but listed types."""
    skops = pytest.importorskip("skops.io")
    skops.dump(FunctionTransformer(resolve), folder / "model.skops")
    rewrite(folder, files={"model.skops": manifests.sha256(folder / "model.skops")})
    with pytest.raises(PackageError, match="not trusted"):
        load_package(folder)


def test_a_pickle_needs_the_flag_and_the_digest(tmp_path: Path) -> None:
    """Both at packaging and at loading somebody has to say that they mean it."""
    folder = tmp_path / "package"
    package_sklearn(Ridge().fit(X, Y), folder, "digits", "1", X[:2], output="value", allow_pickle=True)
    digest = manifests.digest(folder)
    with pytest.raises(PackageError, match="allow_pickle=True"):
        load_package(folder, digest=digest)
    with pytest.raises(PackageError, match="give the digest"):
        load_package(folder, allow_pickle=True)
    with pytest.raises(PackageError, match="add the model again"):
        load_package(folder, allow_pickle=True, digest="0" * 64)
    assert load_package(folder, allow_pickle=True, digest=digest).manifest.output == "value"


def test_a_pickle_finds_its_modules_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dotted path does, whichever executor loads it."""
    (tmp_path / "own_ridge.py").write_text("from sklearn.linear_model import Ridge\nclass Own(Ridge): ...\n")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path)
        own = importlib.import_module("own_ridge").Own().fit(X, Y)
        package_sklearn(own, tmp_path / "package", "digits", "1", X[:2], output="value", allow_pickle=True)
    monkeypatch.delitem(sys.modules, "own_ridge")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in {"", str(tmp_path)}])
    loaded = load_package(tmp_path / "package", allow_pickle=True, digest=manifests.digest(tmp_path / "package"))
    assert loaded.manifest.output == "value"


def test_a_pickle_holds_nothing_of_the_script_or_notebook_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the process that packaged could load it: a worker would refuse it, too late for who has the notebook."""
    for made in (OwnRidge, halved):
        monkeypatch.setattr(made, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], made.__name__, made, raising=False)
    piped = make_pipeline(FunctionTransformer(halved), Ridge()).fit(X, Y)
    for estimator, name in ((OwnRidge().fit(X, Y), "OwnRidge"), (piped, "halved")):
        with pytest.raises(PackageError, match=rf"needs {name}, .* notebook that runs: .*move it into a module"):
            package_sklearn(estimator, tmp_path / name, "digits", "1", X[:2], output="value", allow_pickle=True)


def test_scores_need_an_estimator_that_gives_them(tmp_path: Path) -> None:
    """The message names two ways out."""
    with pytest.raises(PackageError, match="CalibratedClassifierCV"):
        package_sklearn(Ridge().fit(X, Y), tmp_path / "new", "digits", "1", X[:2], output="scores")


def test_an_estimator_fitted_on_a_data_frame_is_refused(tmp_path: Path) -> None:
    """It would warn about missing names at every batch."""
    estimator = DummyClassifier().fit(X, Y)
    estimator.feature_names_in_ = np.array(["a", "b", "c"])
    with pytest.raises(PackageError, match="give the sample input as one"):
        package_sklearn(estimator, tmp_path / "new", "digits", "1", X[:2])


@pytest.mark.parametrize("sample", [np.float32(1), np.array(1.0), X[:0], [], "text", ["a", b"b"], [1, 2]])
def test_a_sample_must_be_a_batch(tmp_path: Path, sample: Any) -> None:
    """Rows get their dtype and shape from it."""
    with pytest.raises(PackageError, match="sample input"):
        package_function("tests.toys:shout", tmp_path / "new", "digits", "1", sample)


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("tests.toys.parity", "package.module:name"),
        (":parity", "package.module:name"),
        ("os:system", "standard library"),
        ("builtins:eval", "standard library"),
        ("importlib.util:find_spec", "standard library"),
        ("__main__:main", "standard library"),
        ("psutil:os.system", "leads out of psutil"),
        ("psutil:subprocess.getoutput", "leads out of psutil"),
        ("click:core.os.system", "leads out of click"),
        ("tests.toys:os._exit", "leads out of tests.toys"),
        ("tests.toys:np.rint", "leads out of tests.toys"),
        ("tests.toys:parity.__globals__.get", "leads out of tests.toys"),
        ("tests.toys:parity.__class__", "leads out of tests.toys"),
        ("tests.toys:partly.func.__globals__.get", "leads out of tests.toys"),
        ("no_such_package.models:predict", "PYTHONPATH"),
        ("tests.toys:nothing", "cannot be imported"),
        ("tests.toys:NUMBER", "not callable"),
    ],
)
def test_a_dotted_path_that_names_no_model_is_refused(path: str, complaint: str) -> None:
    """With what to write instead; a shell is no model."""
    with pytest.raises(PackageError, match=complaint):
        resolve(path)


async def test_a_child_looks_into_the_current_folder_only_for_what_a_package_names(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that looks for another one must not find a file that happens to lie there."""
    (tmp_path / "lz4.py").write_text("raise SystemExit('a stray file was imported')")  # joblib looks for it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    child = ProcessExecutor(Package(str(folder)), lambda: 0)
    await child.start()
    await child.stop()


@pytest.mark.parametrize("path", ["psutil:Popen", "tests.toys:Counting"])
def test_a_class_is_no_function_package(tmp_path: Path, path: str) -> None:
    """A query's text as the argument of `psutil:Popen` would be a program that is started."""
    with pytest.raises(PackageError, match="is a class: name a function"):
        package_function(path, tmp_path / "new", "digits", "1", ["true"])


@pytest.mark.parametrize("code", [(), ("tests.toys",), ("tests",), ("others", "tests")])
def test_code_that_may_be_named_is_loaded(tmp_path: Path, code: tuple[str, ...]) -> None:
    """By its module, or a package around it; any, where nothing is said."""
    package_function("tests.toys:shout", tmp_path / "p", "shout", "1", ["a"])
    assert load_package(tmp_path / "p", code=code).runtime.predict_batch(["a"]).answers == ("A",)


@pytest.mark.parametrize("runtime_option", ["function", "architecture"])
@pytest.mark.parametrize("code", [("my_nets",), ("tests.toy",), ("tests.toys.parity",), ("toys",)])
def test_code_outside_of_what_may_be_named_is_not_imported(
    folder: Path, runtime_option: str, code: tuple[str, ...]
) -> None:
    """The refusal says which setting allows it."""
    rewrite(folder, options={runtime_option: "tests.toys:parity"})
    with pytest.raises(PackageError, match=r"add tests\.toys to worker\.code"):
        load_package(folder, code=code)


@pytest.mark.parametrize("processes", [0, 1])
async def test_a_worker_loads_no_code_outside_of_what_its_settings_allow(tmp_path: Path, processes: int) -> None:
    """In a thread as in a process of its own."""
    package_function("tests.toys:shout", tmp_path / "p", "shout", "1", ["a"])
    settings = WorkerSettings(processes=processes, code=("my_nets", "my_rules"))
    executor = executor_of(model_record(tmp_path / "p"), settings, lambda: 0, lambda _: None)
    with pytest.raises(PackageError, match="is not within my_nets, my_rules"):
        await executor.start()
    await executor.stop()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tests.toys:parity", "parity"),
        ("tests.toys:Counting.of", "of"),
        ("tests.toys:counting", None),
        ("tests.toys:counting.answer", "answer"),
        ("tests.toys:partly", None),
        ("schemas.records:Tensor.of", "of"),
        ("sklearn.linear_model:LogisticRegression", "LogisticRegression"),
    ],
)
def test_a_dotted_path_reaches_what_a_module_or_its_package_defines(path: str, name: str | None) -> None:
    """Functions, classes and their methods, objects of its classes, and what its package has elsewhere."""
    assert getattr(resolve(path), "__name__", None) == name


@pytest.mark.parametrize(
    "path",
    [
        "deploy.demo.models:predict_breakably",
        "load.models.functions:right",
        "load.research.models.published:resnet18",
    ],
)
def test_models_of_the_demo_and_of_measurements_may_be_named(path: str) -> None:
    """Other parts of Skysail are no models."""
    assert callable(resolve(path))


def test_hooks_of_installed_packages_are_no_folders_to_look_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install -e` puts one on the path."""
    monkeypatch.syspath_prepend("__editable__.skysail-1.0.finder.__path_hook__")
    with pytest.raises(PackageError, match="modules are looked for in") as told:
        resolve("no_such_module:f")
    assert "__editable__" not in str(told.value)


def test_a_module_that_is_not_there_is_looked_for_where_the_message_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever misses a folder there knows what to put on PYTHONPATH."""
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PackageError, match=f"modules are looked for in {tmp_path}"):
        resolve("no_such_package:predict")


def test_a_module_that_raises_when_it_is_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises: where a version of it is to take over, the one before goes on."""
    (tmp_path / "spoilt_rules.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PackageError, match=r"cannot be imported here \(RuntimeError: no licence"):
        resolve("spoilt_rules:predict")


def test_a_module_that_ends_the_process_when_it_is_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends no worker."""
    (tmp_path / "ending_rules.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PackageError, match=r"SystemExit: 3"):
        resolve("ending_rules:predict")


def test_whatever_a_runtime_raises_when_it_loads_a_package_is_a_refusal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library of another version, or code that the package names."""

    def load(*_: object, **__: object) -> None:
        raise KeyError("layers")

    monkeypatch.setattr("workers.runtimes.sklearn.load", load)
    with pytest.raises(PackageError, match=r"cannot be loaded \(KeyError: 'layers'"):
        load_package(folder)


@pytest.mark.parametrize("raw", [[1, 2], [True, False], np.array([1, 2], dtype=np.uint8), [1.0, 2.0]])
def test_whole_numbers_become_integer_labels(raw: Any) -> None:
    """Whatever the model calls them."""
    found = contract.labels(raw)
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.tolist()) == (np.int64, [int(number) for number in raw])


def test_no_label_is_changed_on_its_way() -> None:
    """Not by an array that would make floats of them, or cut them."""
    assert contract.labels([2**53 + 1, 1.0]).tolist() == [2**53 + 1, 1]  # type: ignore[union-attr] # an array
    assert contract.labels(np.array([2**63 - 1], np.uint64)).tolist() == [2**63 - 1]  # type: ignore[union-attr]
    assert contract.labels(["a\0"]) == ("a\0",)


def test_numbers_that_float64_does_not_hold_are_neither_values_nor_scores() -> None:
    """Whole ones; and none is cut to 32 bits."""
    for answer in (contract.values, lambda raw: contract.scored(np.stack([raw, raw], axis=1), ())):
        for raw in (np.array([2**53 + 1]), np.array([2**64 - 1], np.uint64)):
            with pytest.raises(OutputError, match="does not hold"):
                answer(raw)
    scores = contract.scored(np.array([[2**24 + 1, 2**24]], np.int32), ()).scores
    assert scores is not None
    assert scores.tolist() == [[2**24 + 1, 2**24]]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("raw", [np.zeros((3, 1)), np.zeros(3)])
def test_one_number_a_row_is_no_score_of_several_classes(raw: Any, keep: bool) -> None:
    """Its highest would be the first for ever; a single named column is a feature, and is asked for as scores."""
    with pytest.raises(OutputError, match="output='value'"):
        contract.scored(raw, (), keep=keep)
    with pytest.raises(OutputError):
        contract.scored(raw, (0,), keep=False)
    assert contract.scored(np.zeros((3, 1)), (0,)).scores is not None


def test_strings_become_a_tuple() -> None:
    """Also those in an array of objects, as pandas makes them."""
    assert contract.labels(np.array(["a", "bc"], dtype=object)) == ("a", "bc")


@pytest.mark.parametrize(
    "raw",
    [
        *([1.5], [[1], [2]], [None], 3, [1, "a"], [True, "a"], [1j], [b"a"], [2**63], [7, 2**63 + 5]),
        *(np.array([7, 2**63 + 5], np.uint64), np.array([np.inf]), np.array([-1e19]), np.array([np.nan])),
        *(np.array(["2024-01-01"], "M8[D]"), np.array([1j]), np.array([1, "a"], dtype=object), np.zeros((2, 2))),
        np.ma.array([1, 2], mask=[False, True]),
    ],
)
def test_what_is_no_label_is_refused(raw: Any) -> None:
    """Half labels, columns, holes, mixtures and what 64 bits do not hold are not answers."""
    with pytest.raises(OutputError):
        contract.labels(raw)


@pytest.mark.parametrize("raw", [[0.5, 0.5], [[0.5, 0.3, 0.2]], [["a", "b"]]])
def test_scores_must_be_one_for_each_class(raw: Any) -> None:
    """Rows times classes, numbers."""
    with pytest.raises(OutputError):
        contract.scored(raw, (0, 1))


def test_the_first_of_equal_scores_wins() -> None:
    """So that an answer never depends on chance."""
    assert contract.scored([[0.5, 0.5], [0.2, 0.8]], ("cat", "dog")).answers == ("cat", "dog")


def test_a_column_of_values_is_taken_as_values() -> None:
    """Networks with one output answer (n, 1)."""
    assert np.asarray(contract.values([[1], [2]]).answers).tolist() == [1.0, 2.0]
    with pytest.raises(OutputError, match="with output='tensors' it answers several numbers"):
        contract.values([[1, 2]])


def test_a_manifest_is_a_value() -> None:
    """Equal fields, equal manifests."""
    signature = Signature("string")
    assert Manifest("a", "1", "function", signature, "label") == Manifest("a", "1", "function", signature, "label")
