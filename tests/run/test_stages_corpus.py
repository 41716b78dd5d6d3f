"""The corpus stage: text that changes while it is read gives no corpus."""

import shutil
import threading
from pathlib import Path

import pytest

from bam_lab.errors import InputError
from bam_lab.record.numerics import Numerics
from bam_lab.run.context import Progress, StageContext
from bam_lab.run.stage_specs import corpus_stage
from bam_lab.run.stages import corpus
from bam_lab.spec.corpus import CorpusSpec, located
from bam_lab.spec.reader import read

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("edited", [False, True])
def test_text_that_is_edited_during_a_build_is_refused(tmp_path: Path, edited: bool) -> None:
    def report(progress: Progress) -> None:
        if edited and progress.note.startswith("found duplicates"):
            file.write_text(text.replace("the", "this"))

    shutil.copytree(FIXTURES / "corpus", tmp_path / "corpus")
    file = tmp_path / "corpus" / "tales.jsonl"
    text = file.read_text()
    stage = corpus_stage(located(read(FIXTURES / "corpus.yaml", CorpusSpec), tmp_path))
    (tmp_path / "work").mkdir()
    context = StageContext(
        name="corpus",
        label="",
        spec=stage.spec,
        inputs={},
        settings=stage.settings,
        threads=1,
        work=tmp_path / "work",
        cache=tmp_path,
        numerics=Numerics("float32", "cpu"),
        facts={},
        report=report,
        stop=threading.Event(),
    )
    if edited:
        with pytest.raises(InputError, match="must stay as it is while a corpus is built"):
            corpus(context)
    else:
        corpus(context)
        assert context.facts["digest"]
