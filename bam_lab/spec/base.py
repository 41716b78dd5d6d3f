"""The base of every spec: strict (no coercion), frozen, no unknown keys."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool | float):  # Python holds True and 1.0 for 1
        raise ValueError("1")
    return value


SchemaVersion = Annotated[Literal[1], BeforeValidator(_no_truth)]
PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
NAME = r"^[a-z0-9][a-z0-9_.-]*$"
Beta = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=NAME, max_length=80)]


class Spec(BaseModel):
    """Hold one piece of what is wanted; change it with `model_copy(update=...)` and revalidate."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
