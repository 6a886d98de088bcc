"""What the report page shows, section by section, from the figures of `report.json`."""

from collections.abc import Sequence
from typing import Any

from jobs import ledger
from jobs.pipeline.contamination import boilerplate
from jobs.report import balance, chains, clean, mixture, origins, plots
from jobs.report.parts import Pair, Plot, Section, Table, percent, share

# What a course text on data pipelines states, from FineWeb's paper: the share of documents that each step drops.
USUAL = {
    "extraction": "about 80 % of bytes",
    "language": "about 50 %",
    "url_duplicate": "about 10 %",
    "near_duplicate": "about 20 %",
    "quality": "about 30 % by rules",
    "classifier": "20 to 90 %",
    "personal_data": "below 1 %",
}


def sections(
    content: dict[str, Any],
    near: dict[str, Any],
    examples: dict[str, list[dict[str, Any]]],
    pairs: Sequence[Pair],
) -> list[Section]:
    """All sections that this run has something to say in.

    Parameters
    ----------
    content
        The figures of `report.json`.
    near
        The settings of `near_duplicates`.
    examples
        Fate -> documents with excerpts.
    pairs
        Near-duplicates with their differences.
    """
    return [
        funnel(content["funnel"]),
        by_source(content["crawls"]),
        *(quality(content["quality"]) if content["quality"] else []),
        *(languages(content["languages"]) if content["languages"] else []),
        *(scores(content["scores"]) if content["scores"] else []),
        *(lengths(content) if content["lengths"]["train"] else []),
        duplicates(content, pairs),
        *(s_curve(content["scurve"], near) if content["scurve"]["bins"] else []),
        *clean.sections(content),
        packing(content),
        *(rows(content["rows"]) if content["rows"]["policies"] else []),
        *(mixture.sections(content["mixture"]) if content["mixture"] else []),
        Section(
            "examples",
            "Documents of each fate",
            "A keyed sample of each: what a rule removed, and what was kept, to be judged by reading.",
            examples=examples,
        ),
    ]


def warnings(content: dict[str, Any]) -> list[str]:
    """What looks odd, with what to do about it."""
    found = [
        f"{warning}. Look at the pairs and clusters below; set near_duplicates.verify: exact, or a narrower scope."
        for warning in content["duplicates"]["warnings"]
    ]
    found += [
        f"{sentence} Read the examples of that rule; try other thresholds with python -m jobs.whatif."
        for sentence in balance.sentences(content["out_of_proportion"])
    ]
    if sentence := boilerplate(content["contamination"]):
        found.append(sentence)
    if content["scurve"]["bins"] and not content["scurve"]["agrees"]:
        found.append(
            "The S-curve does not agree with its formula. Do not trust the clusters before it is known why."
        )
    found += [
        f"{file} has records that cannot be read. The rest of the file was used; fetch it again if that matters."
        for file in content["files_with_unreadable_records"]
    ]
    return found


def headline(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The few figures that say what went in and what came out."""
    rows = {row["step"]: row for row in content["funnel"]}
    read, kept = rows["read"], rows["kept"]
    return [
        (f"{read['documents']:,}", "documents in"),
        (f"{kept['documents']:,}", f"kept ({percent(kept['documents'], read['documents'])})"),
        (f"{kept['tokens']:,}", "tokens out"),
        (f"{content['bytes_per_token'] or 0:.2f}", "bytes a token"),
        (f"{len(content['shards']['shards'])}", "shards"),
    ]


def funnel(steps: list[dict[str, Any]]) -> Section:
    """From documents in to tokens out."""
    read = steps[0]
    dropped = [row for row in steps[1:] if row["step"] not in ("kept", ledger.TRAIN, ledger.VALIDATION)]
    by_step: dict[str, int] = {}
    for row in dropped:
        step = row["step"].partition(".")[0]
        by_step[step] = by_step.get(step, 0) + row["documents"]
    left, names, values = read["documents"], ["read"], [read["documents"]]
    for step, documents in by_step.items():
        left -= documents
        names.append(f"after {step}")
        values.append(left)
    label = f"Documents left after each step: {', '.join(f'{n} {v:,}' for n, v in zip(names, values, strict=True))}"
    names_of_steps = [row["step"].partition(".")[0] for row in steps]
    rows = [
        (
            row["step"],
            row["documents"],
            percent(row["documents"], read["documents"]),
            row["bytes"],
            row["tokens"],
            USUAL.get(step, "") if step != before else "",
        )
        for row, step, before in zip(steps, names_of_steps, ["", *names_of_steps], strict=False)
    ]
    return Section(
        "funnel",
        "From documents to tokens",
        "Each step is given what the steps before it left; a rule has the documents that it was the first to drop. "
        "Tokens are of documents that came as far as the tokenizer.",
        [Plot("funnel", label, plots.bars(names, values, "documents"))],
        [
            Table(
                "funnel",
                "Documents, bytes and tokens by step",
                ("step", "documents", "share", "bytes", "tokens", "dropped elsewhere"),
                rows,
            )
        ],
    )


def by_source(crawls: list[dict[str, Any]]) -> Section:
    """Sources and crawls beside each other."""
    columns = [
        "documents",
        *(fate for fate in ledger.DUPLICATES if any(row[fate] for row in crawls)),
        "kept",
    ]
    rows = [
        (
            row["source"],
            row["crawl"] or "",
            *(row[column] for column in columns),
            percent(row["kept"], row["documents"]),
            share(row["share_removed_as_duplicates"]),
        )
        for row in crawls
    ]
    names = ("source", "crawl", *columns, "share kept", "share removed as duplicates")
    return Section(
        "sources", "Sources and crawls", tables=[Table("sources", "By source and crawl", names, rows)]
    )


def quality(judged: list[dict[str, Any]]) -> list[Section]:
    """What each quality rule was the first to drop."""
    rows = [
        (
            one["source"],
            rule.removeprefix("quality."),
            n["documents"],
            percent(n["documents"], one["documents"]),
        )
        for one in judged
        for rule, n in sorted(one["dropped"].items(), key=lambda item: -item[1]["documents"])
    ]
    totals: dict[str, int] = {}
    for _, rule, documents, _ in rows:
        totals[rule] = totals.get(rule, 0) + documents
    most = dict(sorted(totals.items(), key=lambda item: -item[1])[: plots.MOST_BARS])
    text = "; ".join(f"{one['source']}: {share(one['share_kept'])} kept" for one in judged[:10])
    drawn = (
        plots.bars(list(most), list(most.values()), "documents", [plots.DROPPED] * len(most))
        if most
        else None
    )
    return [
        Section(
            "quality",
            "Quality rules",
            f"Documents that each rule was the first to drop. {text}.",
            [Plot("quality", "Documents dropped by each quality rule", drawn)] if drawn else [],
            [Table("quality", "By source and rule", ("source", "rule", "documents", "share"), rows)],
        )
    ]


def languages(found: list[dict[str, Any]]) -> list[Section]:
    """Languages, the most frequent first."""
    rows = [
        (
            one["language"],
            one["documents"],
            one["kept"],
            percent(one["kept"], one["documents"]),
            one["bytes"],
        )
        for one in found
    ]
    return [
        Section(
            "languages",
            "Languages",
            tables=[
                Table(
                    "languages", "By language", ("language", "documents", "kept", "share kept", "bytes"), rows
                )
            ],
        )
    ]


def scores(found: dict[str, Any]) -> list[Section]:
    """The scores that came with the documents."""
    bins = found["histogram"]
    edges, counts = list[float](), list[float]()
    for one in bins:  # tenths without a document have no entry
        while edges and edges[-1] < one["from"] - 1e-9:
            counts.append(0)
            edges.append(round(edges[-1] + 0.1, 1))
        edges = edges or [one["from"]]
        counts.append(one["documents"])
        edges.append(round(one["from"] + 0.1, 1))
    label = f"Documents by score, mean {found['mean']:.2f}, median {found['median']:.2f}"
    rows = [(one["from"], one["documents"], one["tokens"]) for one in bins]
    return [
        Section(
            "scores",
            "Scores that came with the documents",
            f"Mean {found['mean']:.2f}, median {found['median']:.2f}.",
            [Plot("scores", label, plots.histogram(edges, counts, "score", "documents"))],
            [Table("scores", "By tenth", ("score from", "documents", "tokens"), rows)],
        )
    ]


def lengths(content: dict[str, Any]) -> list[Section]:
    """How long documents are, and what a floor would remove."""
    train, window = content["lengths"]["train"], content["lengths"]["train"]["window"]
    bins = train["histogram"]
    edges = [*(one["from"] for one in bins), 2 * bins[-1]["from"]]
    drawn = plots.histogram(
        edges, [one["documents"] for one in bins], "tokens in a document", "documents", logarithmic=True
    )
    quantiles = [(f"{float(q):.0%}", value) for q, value in train["quantiles"].items()]
    floors = [
        (
            row["floor"],
            row["documents"],
            share(row["share_of_documents"]),
            row["tokens"],
            share(row["share_of_tokens"]),
        )
        for row in content["length_floors"]
    ]
    longer = share(train["share_of_documents_longer_than_window"])
    return [
        Section(
            "lengths",
            "Lengths of documents",
            f"In training, {train['mean']:,.0f} tokens on average; {longer} of the documents, with "
            f"{share(train['share_of_tokens_in_them'])} of the tokens, are longer than a window of {window:,}.",
            [Plot("lengths", "Training documents by length in tokens", drawn)],
            [
                Table("quantiles", "Share of training documents of at most", ("share", "tokens"), quantiles),
                Table(
                    "floors",
                    "What a floor would remove, before de-duplication",
                    ("tokens below", "documents", "share", "tokens", "share of tokens"),
                    floors,
                ),
            ],
        )
    ]


def duplicates(content: dict[str, Any], pairs: Sequence[Pair]) -> Section:
    """Equal URLs, equal texts and near-duplicates."""
    near = content["near_duplicates"]
    rows = [
        (job.replace("_", " "), "on" if found["enabled"] else "off", found["removed"]["documents"], *scopes)
        for job in ("url_duplicates", "exact_duplicates")
        for found in [content[job]]
        for scopes in [tuple(found["documents_removed_by_scope"][s] for s in ("corpus", "crawl", "source"))]
    ]
    sizes = [(int(size), n) for size, n in near["clusters_by_size"].items()]
    drawn = [
        Plot(
            "clusters",
            f"Clusters of near-duplicates by size: {near['clusters']:,} clusters, the largest of "
            f"{near['largest_cluster']:,}",
            plots.bars(
                [f"{size:,}" for size, _ in sizes[:20]], [n for _, n in sizes[:20]], "clusters by size"
            ),
        )
    ]
    text = (
        f"{near['documents_removed']:,} near-duplicates were removed "
        f"({share(near['share_of_documents_removed'])} of the documents), from {near['clusters']:,} clusters, "
        f"{near['clusters_across_crawls']:,} of them across crawls; the largest has "
        f"{near['largest_cluster']:,} documents."
        if near["clusters"]
        else "No near-duplicates were found."
    )
    if said := chains.sentence(near["chains"]):
        text += f" {said}: see the clusters below."
    reach = content["duplicates_by_origin"]
    return Section(
        "duplicates",
        "Duplicates",
        text,
        [*(drawn if sizes else []), *([origins.heat_map(reach)] if reach else [])],
        [
            *([origins.table(reach)] if reach else []),
            Table(
                "duplicates",
                "Equal URLs and texts: removed, and what each scope would remove",
                ("", "step", "removed", "corpus", "crawl", "source"),
                rows,
            ),
            *([Table("clusters", "Clusters by size", ("documents", "clusters"), sizes)] if sizes else []),
            *similarities(near),
            *earlier(content["against"]),
        ],
        examples=chains.samples(near["chains"]),
        pairs=pairs,
    )


def similarities(near: dict[str, Any]) -> list[Table]:
    """Candidates by their similarity, removed documents by that to the kept one, and what scopes find."""
    compared = near["similarity_histogram"] or []
    to_kept = near["chains"]["similarity_to_kept_histogram"] if near["chains"] else []
    found = [
        Table(
            name, caption, ("similarity from", "to", noun), [(*_bin(i, bins), n) for i, n in enumerate(bins)]
        )
        for name, caption, noun, bins in (
            ("candidates", f"Pairs of candidates, verified by {near['verify']}", "pairs", compared),
            ("similarity_to_kept", "Removed documents, by signature", "documents", to_kept),
        )
        if sum(bins)
    ]
    rows = [(scope, *counts.values()) for scope, counts in near["in_clusters_by_scope"].items()]
    columns = ("scope", "documents in clusters", "clusters", "would remove")
    return [*found, Table("near_duplicate_scopes", "Near-duplicates by scope", columns, rows)]


def earlier(against: dict[str, Any]) -> list[Table]:
    """What was dropped for the documents of each earlier run."""
    rows = [tuple(one.values()) for one in against["outputs"]]
    columns = ("output", "by URL", "by text", "near-duplicates")
    return [Table("against", "Dropped for documents of earlier runs", columns, rows)] if rows else []


def _bin(number: int, bins: Sequence[int]) -> tuple[str, str]:
    return f"{number / len(bins):.2f}", f"{(number + 1) / len(bins):.2f}"


def s_curve(found: dict[str, Any], near: dict[str, Any]) -> list[Section]:
    """Measured against the formula."""
    verdict = "agrees with" if found["agrees"] else "does NOT agree with"
    text = f"Measured on {found['pairs']:,} pairs with copied documents: {verdict} the formula {found['formula']}."
    rows = [
        (
            f"{one['similarity']:.3f}",
            one["pairs"],
            f"{one['flagged']:.1%}",
            f"{one['expected']:.1%}",
            "yes" if one["within_joint_interval"] else "NO",
        )
        for one in found["bins"]
    ]
    drawn = plots.s_curve(found, near["bands"], near["rows"])
    names = ("similarity", "pairs", "flagged", "formula", "within its interval")
    return [
        Section(
            "scurve",
            "How often near-duplicates are flagged",
            text,
            [Plot("scurve", text, drawn)],
            [Table("scurve", "By similarity", names, rows)],
        )
    ]


def packing(content: dict[str, Any]) -> Section:
    """Packing against padding, and the shards."""
    found = content["packing"]
    rows = [
        ("windows", found["windows"]),
        ("windows with a boundary", share(found["share_with_boundary"])),
        (
            "documents a window",
            f"{found['documents_per_window']:.2f}" if found["documents_per_window"] else "",
        ),
        ("tokens that are padding if each document has rows of its own", share(found["padding_share"])),
    ]
    shards = [(name, split, tokens) for split, name, tokens in content["shards"]["shards"]]
    return Section(
        "packing",
        "Packing",
        tables=[
            Table("packing", f"Training in windows of {found['window']:,} tokens", ("", ""), rows),
            Table("shards", "Shards", ("file", "split", "tokens"), shards),
        ],
    )


def rows(found: dict[str, Any]) -> list[Section]:
    """Rows of one length by each policy: waste, truncation and mixing."""
    of_policies = [
        (
            policy.replace("_", " "),
            one["rows"],
            share(one["share_of_positions_filled_up"]),
            one["tokens_left_out"],
            one["documents_cut"],
            share(one["share_of_documents_cut"]),
            one["documents_cut_that_fit"],
            share(one["share_of_rows_with_several_documents"]),
            share(one["share_of_tokens_after_boundary"]),
        )
        for policy, one in found["policies"].items()
    ]
    names = (
        "policy",
        "rows",
        "filled up",
        "tokens left out",
        "documents cut",
        "share cut",
        "cut that fit",
        "rows with several",
        "tokens behind a boundary",
    )
    return [
        Section(
            "rows",
            "Rows of one length",
            f"The training documents in rows of {found['length']:,} tokens: the stream, a row for each piece of a "
            "document, and packing that cuts no document that fits a row.",
            tables=[Table("rows", "By policy", names, of_policies)],
        )
    ]
