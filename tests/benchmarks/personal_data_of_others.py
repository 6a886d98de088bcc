"""Where other tools find personal data; runs in the environment of `referees.txt`.

``python -m tests.benchmarks.personal_data_of_others TEXTS FOLDER REGIONS public|all``: TEXTS is a JSON list of strings;
for each tool, a JSON list of its finds in each text, ``[kind, first character, the one behind the last]``, goes to
FOLDER.

`Presidio`
    The recognisers of its analyser that go by patterns, without a language model, phone numbers of the same regions.
    What they score below `LEAST_SCORE` (nine digits as a social security number) is left out.
`datatrove`
    `PIIFormatter`, what FineWeb uses: the places that it replaces, public addresses alone or all.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

LEAST_SCORE = 0.3
Find = tuple[str, int, int]
KINDS = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "CREDIT_CARD": "card",
    "US_SSN": "ssn",
    "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip",
}


def presidio(regions: tuple[str, ...]) -> Callable[[str], list[Find]]:
    """Recognisers, one after another."""
    import tldextract
    from presidio_analyzer import predefined_recognizers as known

    # Without this, the first e-mail address makes it download the list of top-level domains.
    offline = tldextract.TLDExtract(cache_dir=None, suffix_list_urls=())
    tldextract.extract = tldextract.tldextract.extract = offline.__call__
    recognisers = [
        known.EmailRecognizer(),
        known.PhoneRecognizer(supported_regions=regions),
        known.CreditCardRecognizer(),
        known.UsSsnRecognizer(),
        known.IbanRecognizer(),
        known.IpRecognizer(),
    ]

    def find(text: str) -> list[Find]:
        return [
            (_kind(KINDS[one.entity_type], text[one.start : one.end]), one.start, one.end)
            for recogniser in recognisers
            for one in recogniser.analyze(text, recogniser.supported_entities, None) or ()
            if one.entity_type in KINDS and one.score >= LEAST_SCORE
        ]

    return find


def datatrove(public_only: bool) -> Callable[[str], list[Find]]:
    """What the formatter's expressions match and its check of addresses lets pass."""
    from datatrove.pipeline.formatters.pii import PIIFormatter

    formatter = PIIFormatter(only_remove_public_ips=public_only)
    replacers = {"email": formatter.emails_replacer, "ip": formatter.ip_replacer}

    def find(text: str) -> list[Find]:
        return [
            (_kind(kind, match[0]), *match.span())
            for kind, replacer in replacers.items()
            for match in replacer.regex.finditer(text)
            if replacer.validator is None or replacer.validator(match[0])
        ]

    return find


def _kind(kind: str, found: str) -> str:
    return kind if kind != "ip" else "ipv6" if ":" in found else "ipv4"


def tools(regions: tuple[str, ...], public_only: bool) -> dict[str, Callable[[str], list[Find]]]:
    """By name."""
    return {"Presidio": presidio(regions), "datatrove": datatrove(public_only)}


def main() -> None:
    texts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name, find in tools(tuple(sys.argv[3].split(",")), sys.argv[4] == "public").items():
        found = [find(text) for text in texts]
        Path(sys.argv[2], f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
