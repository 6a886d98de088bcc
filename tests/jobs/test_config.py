"""What is wrong in a configuration is refused before any work, in a sentence that names key and value."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs import config
from jobs.errors import UserError


@pytest.mark.parametrize("preset", config.presets())
def test_presets_are_valid_and_survive_a_round_trip(preset: str) -> None:
    wanting = ["sources.0.path=data"] if preset in {"common-crawl", "wet"} else []
    alone = preset not in {"fineweb", "refinedweb", "seed-128"}
    loaded = config.load(preset if alone else f"sample,{preset}", wanting)
    raw = yaml.safe_load(yaml.safe_dump(loaded.model_dump(mode="json", exclude_unset=True)))
    assert config.Config.model_validate(raw) == loaded


def test_presets_and_files_lie_on_top_of_each_other(tmp_path: Path) -> None:
    own = tmp_path / "own,with comma.yaml"
    own.write_text(
        "{sources: [{name: web, path: data}], near_duplicates: {hash_seed: 7}, shards: {name: own}}"
    )
    loaded = config.load("fineweb-edu,seed-128", ["near_duplicates.hash_seed=3"])
    near = loaded.near_duplicates
    assert (near.hashes, near.bands, near.rows, near.hash_seed) == (128, 8, 16, 3)
    assert loaded.sources == config.load("fineweb-edu").sources
    assert config.load(str(own)).shards.name == "own"
    plain = own.rename(tmp_path / "own.yaml")
    layered = config.load(f"fineweb-edu,{plain},seed-128")
    assert [source.path for source in layered.sources] == ["data"]
    assert (layered.near_duplicates.hash_seed, layered.near_duplicates.bands) == (7, 8)
    assert layered.validation.tokens == 15_000_000
    with pytest.raises(UserError, match="'seed-129': neither a preset"):
        config.load("fineweb-edu,seed-129")


def test_defaults_are_the_seeds() -> None:
    loaded = config.load("fineweb-edu")
    near = loaded.near_duplicates
    assert (near.ngram, near.hashes, near.bands, near.rows, near.hash_seed) == (5, 112, 14, 8, 42)
    assert loaded.length.min_tokens == 64
    assert loaded.order.seed == 1337
    assert loaded.validation.target(10**10) == 15_000_000
    assert loaded.shards.tokens == 100_000_000
    assert loaded.tokenizer.train.vocab_size == 32_768
    assert loaded.sources[0].path == "hf://datasets/HuggingFaceFW/fineweb-edu/sample/10BT"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "near_duplicates.bnads=3",
            "near_duplicates.bnads is not a setting; did you mean near_duplicates.bands?",
        ),
        ("extraction.memory=1", "extraction.memory is 1"),
        (
            "sources=[{name: a, path: x, extra: {stars: votes}}]",
            "extra: stars is 'votes', which is no type (string, int64, float64, bool); where the column has another "
            "name in the files, give its type here and say columns.stars: votes",
        ),
        (
            "sources=[{name: a, path: x, extra: {score: int64}}]",
            "extra: {my_score: float64}, columns: {my_score: score}",
        ),
        ("sources=[{name: a, format: warc}]", "sources.0: source 'a' has no path"),
        (
            "sources=[{name: a, format: warc, path: x, content: html}]",
            "content is 'html', but records of web archives",
        ),
        (
            "sources=[{name: a, format: warc, path: x, columns: {text: b}}]",
            "columns.text is 'b', but the text of a web archive",
        ),
        ("near_duplicates.bands=3", "bands × rows is 3 × 8 = 24, but hashes is 112; the two must be equal"),
        ("nonsense=1", "nonsense is not a setting"),
        ("order.seed=abc", "order.seed is 'abc'"),
        ("order.seed=-1", "order.seed is -1"),
        ("length=3", "length is 3, but it should be a section with keys of its own"),
        ("validation.tokens=0", "validation.tokens is 0"),
        ("validation.tokens=5", "tokens is 5 and fraction is 0.01; set one of them to null"),
        ("shards.min_tokens=3000000", "min_tokens is 3,000,000, more than half of the 4,000,000"),
        ("shards.dtype=uint64", "shards.dtype is 'uint64'"),
        ("shards.name=a/b", "shards.name is 'a/b'"),
        ("splits.bytes=3 parsecs", "splits.bytes is '3 parsecs'"),
        ("sources.0.path=x", "the built-in corpus (format: packages) has no path"),
        (
            "sources.0.columns={txt: body}",
            "columns names ['txt']; it can map text, id, url, crawl, score,",
        ),
        ("sources.7.path=x", "'7' is no place in a list of 1"),
        ("sources=[{name: a}]", "source 'a' has no path"),
        ("sources=[{name: a, path: x}, {name: a, path: y}]", "sources has two entries named 'a'"),
        ("sources=[]", "sources is []"),
        ("order.seed.deeper=1", "order.seed"),
        ("order.seed", "--set takes section.key=value"),
        ("order.seed=[1", "is not YAML"),
        (
            "quality.c4.preset=c5",
            "quality.c4.preset is 'c5': input should be 'c4', 'c4-datatrove' or 'c4-fineweb'",
        ),
        ("quality.order=[c4]", "quality: order has no effect while enabled is false; set enabled: true"),
        ("quality={enabled: true, order: [c4, c4]}", "quality: order names 'c4' twice"),
        (
            "quality={enabled: true, gopher_quality: {min_wrds: 3}}",
            "quality.gopher_quality.min_wrds is not a setting; did you mean quality.gopher_quality.min_words?",
        ),
        ("tokenizer.pattern=cl100k", "pattern belongs to a tiktoken ranks file; give its path"),
    ],
)
def test_refused_in_a_sentence(setting: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        config.load("sample", [setting])
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_contradictions_between_sections() -> None:
    with pytest.raises(
        UserError, match=r"uint16, which holds 65,536 ids, but tokenizer\.train\.vocab_size is 70000"
    ):
        config.load("sample", ["shards.dtype=uint16", "tokenizer.train.vocab_size=70000"])


def test_a_mistake_of_all_sources_is_said_once() -> None:
    twice = "{name: a, kind: kenlm, model: x}"
    settings = ["sources=[{name: a, path: x}, {name: b, path: y}]", f"classifiers=[{twice}, {twice}]"]
    with pytest.raises(UserError) as caught:
        config.load("sample", settings)
    assert str(caught.value) == (
        "sources.0: two classifiers would fill the column 'a_score'; give one another name (sources.1 too)"
    )


def test_a_setting_without_a_value_is_said_in_words() -> None:
    with pytest.raises(
        UserError, match=r"^personal_data\.placeholders\.email has no value: input should be a valid"
    ):
        config.load("sample", ["personal_data={enabled: true, placeholders: {email: }}"])


def test_a_file_and_what_can_be_wrong_with_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("sources: [{name: web, path: data}]\nlength: {min_tokens: 128}\n")
    assert config.load(str(file)).length.min_tokens == 128
    assert config.load(str(file), ["length.min_tokens=1", "length.min_tokens=2"]).length.min_tokens == 2
    with pytest.raises(UserError, match="neither a preset"):
        config.load(str(tmp_path / "absent.yaml"))
    file.write_text("- a list\n")
    with pytest.raises(UserError, match="should hold sections"):
        config.load(str(file))
    file.write_text("a: [\n")
    with pytest.raises(UserError, match="cannot be read as YAML"):
        config.load(str(file))


@given(
    st.integers(1, 10**12),
    st.sampled_from([("", 1), ("kB", 1000), ("MB", 10**6), ("MiB", 2**20), ("GiB", 2**30)]),
)
def test_sizes_are_read_with_their_units(number: int, unit: tuple[str, int]) -> None:
    assert config.parse_bytes(f"{number} {unit[0]}") == number * unit[1]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), max_size=3))
def test_any_setting_is_accepted_or_refused_in_words(settings: list[str]) -> None:
    try:
        loaded = config.load("sample", settings)
    except UserError as error:
        refused = str(error)
    else:
        refused = ""
        assert config.Config.model_validate(loaded.model_dump()) == loaded
    assert refused or not settings or "=" in settings[0]


def test_null_takes_back_a_column_that_a_preset_maps() -> None:
    loaded = config.load("fineweb-edu", ["sources.0.columns.crawl=null"])
    assert "crawl" not in loaded.sources[0].columns
    assert loaded.sources[0].columns["id"] == "id"


def test_quality_settings_are_inherited_key_by_key() -> None:
    loaded = config.load(
        "sample",
        [
            "quality={enabled: true, c4: {preset: c4}, gopher_quality: {min_words: 3}}",
            "sources.0.quality={gopher_quality: {max_words: 7}, c4: {min_sentences: null}}",
            "validation.references=[{name: b, path: b, quality: {enabled: false}}]",
        ],
    )
    own = loaded.sources[0].quality
    assert (own.gopher_quality.min_words, own.gopher_quality.max_words) == (3, 7)
    assert (own.c4.min_words_per_line, own.c4.min_sentences) == (5, None)
    assert not loaded.validation.references[0].quality.enabled
    assert config.Config.model_validate(loaded.model_dump(mode="json")) == loaded


def test_a_step_that_is_switched_off_forgets_what_its_preset_said() -> None:
    loaded = config.load("common-crawl", ["sources.0.path=data", "language.enabled=false"])
    assert not loaded.sources[0].language.enabled
    assert loaded.sources[0].language.keep == ()


def test_norwegian_is_not_false_and_null_is_every_language() -> None:
    for keep, meant in (("[no, de]", ("no", "de")), ("null", ())):
        loaded = config.load("sample", ["language.enabled=true", f"language.keep={keep}"])
        assert loaded.language.keep == meant
