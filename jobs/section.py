"""What every section of the configuration is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys are refused and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
