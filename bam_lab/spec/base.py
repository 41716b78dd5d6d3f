"""The base of every spec: strict (no coercion), frozen, no unknown keys."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=80)]


class Spec(BaseModel):
    """Hold one piece of what is wanted; change it with `model_copy(update=...)` and revalidate."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
