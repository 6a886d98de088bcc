"""What every section of the configuration is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]


class Section(BaseModel):
    """Unknown keys are refused and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
