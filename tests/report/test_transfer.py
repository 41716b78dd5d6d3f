"""Transfer at equal loss, on courses whose answer is known."""

import pytest

from bam_lab.report.transfer import MEASURE, at_level, transfer_cells


@pytest.mark.parametrize(
    ("points", "level", "value"),
    [
        (((4.0, 5.0), (3.0, 4.4), (2.0, 4.0)), 2.0, 4.0),  # at its end
        (((4.0, 5.0), (3.0, 4.4), (2.0, 4.0)), 2.5, 4.2),  # half way
        (((4.0, 5.0), (3.0, 4.4), (2.0, 4.0)), 3.25, 4.55),
        (((4.0, 5.0), (3.0, 4.4)), 4.5, 5.0),  # below from the first point on
        (((3.0, 5.0), (3.0, 4.0)), 3.0, 5.0),  # a tie is reached at once
    ],
)
def test_the_course_is_read_at_a_level(points, level, value):
    assert at_level(points, level) == pytest.approx(value)


def with_curves(evidence, transfer, courses):
    """Return evidence with `transfer` held out, and courses of (inside, outside) for each arm."""
    curves = [
        curve.model_copy(
            update={
                "valid": tuple(
                    (step, dict.fromkeys(evidence.domains, inside) | {"moon": outside})
                    for step, (inside, outside) in enumerate(courses[curve.arm])
                )
            }
        )
        for curve in evidence.curves
        if curve.name == "mixture" and curve.arm in courses
    ]
    recipe = evidence.recipe | {"transfer": transfer}
    return evidence.model_copy(update={"recipe": recipe, "curves": tuple(curves)})


COURSES = {
    "btx": ((4.0, 5.0), (3.0, 4.0)),
    "soft": ((4.0, 5.2), (2.0, 4.2)),  # better inside; at btx's loss it is no better outside
}


def test_arms_are_read_where_the_worst_of_them_ends(evidence_of):
    evidence = with_curves(evidence_of(replicates=2), ["moon"], COURSES)
    cells = {(c.arm, c.replicate): c for c in transfer_cells(evidence)}
    assert cells.keys() == {("btx", 0), ("btx", 1), ("soft", 0), ("soft", 1)}
    assert cells["btx", 1].value == pytest.approx(4.0)
    assert cells["soft", 1].value == pytest.approx(4.7)
    assert cells["soft", 1].measure == MEASURE
    assert cells["soft", 1].runs == (
        next(c.key for c in evidence.curves if c.arm == "soft" and c.replicate == 1),
    )


def test_without_a_domain_held_out_there_is_nothing(evidence_of):
    assert not list(transfer_cells(with_curves(evidence_of(replicates=1), [], COURSES)))
    assert not list(transfer_cells(with_curves(evidence_of(replicates=1), ["sun"], COURSES)))
