"""The shards of the groups, as the job that wrote them says what they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader.cache import LocalCache
from jobs.loader.stream import KEPT_OPEN, TokenFile, TokenStream
from jobs.mixture.allotment import Sizes, refuse_unknown
from jobs.runtime.checkpoint import MANIFEST, read_json
from jobs.settings.mixture import Mixture

FOLDER = "groups"


@dataclass(frozen=True)
class Groups:
    """Where the tokens of each group lie, by the least length of the documents."""

    folder: Path
    figures: Mapping[str, Any]  # of the job's manifest

    @classmethod
    def of(cls, out: Path) -> "Groups":
        """Those in the output of a run, or of `jobs.mix`.

        Raises
        ------
        UserError
            There are none.
        """
        try:
            figures = read_json(out / FOLDER / MANIFEST)["figures"]
        except FileNotFoundError:
            figures = {}
        if not figures:
            raise UserError(
                f"{out} has no shards of groups; set a mixture in the run's configuration, or make them from a "
                "finished run with python -m jobs.mix"
            )
        return cls(out / FOLDER, figures)

    @property
    def sizes(self) -> Sizes:
        """Tokens of each group in each tier."""
        return {
            name: {tier["min_document_tokens"]: tier["tokens"] for tier in tiers}
            for name, tiers in self.figures["groups"].items()
        }

    def refuse_other(self, settings: Mixture) -> None:
        """Refuse a mixture that wants its groups made in another way.

        Raises
        ------
        UserError
            One sentence.
        """
        here = self.figures["by"], tuple(self.figures["edges"])
        if (settings.by, settings.edges) != here:
            raise UserError(
                f"the groups in {self.folder} are by {here[0]} {list(here[1]) or ''}, and the mixture wants them by "
                f"{settings.by} {list(settings.edges) or ''}; make them anew with python -m jobs.mix"
            )
        refuse_unknown(settings.named_groups, self.sizes, f"the groups in {self.folder}")
        if lacking := sorted(set(settings.tiers) - set(self.figures["tiers"])):
            raise UserError(
                f"the groups in {self.folder} do not keep documents of at least {lacking[0]:,} tokens apart, only of "
                f"{', '.join(f'{tier:,}' for tier in self.figures['tiers'])}; make them anew with python -m jobs.mix"
            )

    def stream(
        self, name: str, least: int, cache: LocalCache | None = None, kept_open: int = KEPT_OPEN
    ) -> TokenStream:
        """Tokens of a group's documents of at least `least` tokens, of which there are some."""
        files = [
            TokenFile(self.folder / file, llmc.HEADER_BYTES, tokens)
            for tier in self.figures["groups"][name]
            if tier["min_document_tokens"] >= least
            for file, tokens in tier["files"]
        ]
        return TokenStream(files, np.dtype(self.figures["dtype"]), cache, kept_open)
