"""The floor: what its work says and writes beside what Skysail writes, and beside fastavro with scikit-learn."""

from pathlib import Path

import joblib
import pytest
from sklearn.linear_model import RidgeClassifier

from load.baseline.codec_work import CodecWork
from load.baseline.job import Job
from load.baseline.work import Work, work_of
from load.models.training import Digits, digits
from load.research.peers import task
from schemas.codec import Codec
from schemas.records import Outcome, Prediction, Query, Status, Tensor

ROWS = 100


@pytest.fixture(scope="module")
def data() -> Digits:
    """The rows that floors are asked about."""
    return digits()


@pytest.fixture(scope="module")
def model(data: Digits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted classifier in a file."""
    path = tmp_path_factory.mktemp("model") / "logistic.joblib"
    joblib.dump(RidgeClassifier().fit(data.train_x[:100], data.train_y[:100]), path)
    return path


def queries(data: Digits) -> list[bytes]:
    """Return a query about each of some rows."""
    return [
        Codec().encode(Query(f"query-{number}", "digits", Tensor.of(row), None, 7))
        for number, row in enumerate(data.test_x[:ROWS])
    ]


def test_arrays_say_what_the_estimator_says(data: Digits, model: Path) -> None:
    """About each row, in the name of the model, each to its own query."""
    said = [Codec().decode(Prediction, value) for value in CodecWork(str(model)).answer(queries(data))]
    assert [answer.answer for answer in said] == joblib.load(model).predict(data.test_x[:ROWS]).tolist()
    assert [answer.query_id for answer in said] == [f"query-{number}" for number in range(len(said))]
    assert {(answer.status, answer.outputs[0].model, answer.outputs[0].outcome) for answer in said} == {
        (Status.COMPLETE, "logistic", Outcome.OK)
    }


def test_the_floor_writes_no_more_bytes_than_fastavro_does_for_the_peers(data: Digits, model: Path) -> None:
    """It is the same record: nobody is faster by saying more or less."""
    asked = queries(data)[:3]
    mine, theirs = CodecWork(str(model)).answer(asked), task.Work(str(model)).answer(asked)
    assert [len(value) for value in mine] == [len(value) for value in theirs]


def test_a_job_says_with_which_libraries_its_loop_works(model: Path) -> None:
    """Without the codec it is what one would write without Skysail."""
    assert isinstance(work_of(Job("", "", "", model=str(model), codec=True)), CodecWork)
    assert isinstance(work_of(Job("", "", "", model=str(model))), Work)
