"""Finds in a statement what SQLite takes and PostgreSQL refuses, or what would be a race there; by its text alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest

# A level of a statement: its words, and a level of its own for each pair of parentheses.
Level = list["str | Level"]

TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_]\w*(?:\.(?:\w+|\*))?|\d+(?:\.\d+)?|\|\||<>|<=|>=|!=|==|\S")

# Tuples: a level, which is a list, may be looked for in them.
AGGREGATES = ("count", "sum", "max", "min", "avg")
COMPARISONS = ("=", "<>", "!=", "<", ">", "<=", ">=", "IS", "IN", "LIKE", "BETWEEN", "AND", "OR", "NOT", "EXISTS")
ARITHMETIC = ("+", "-", "*", "/")
FUNCTIONS = {
    *("instr", "ifnull", "iif", "total", "group_concat", "typeof", "printf", "quote", "hex", "unhex", "changes"),
    *("json_extract", "json_set", "json_object", "json_remove", "json", "strftime", "datetime", "date", "julianday"),
    *("unixepoch", "last_insert_rowid", "randomblob", "zeroblob", "glob", "likely", "unlikely"),
}
WORDS = {"PRAGMA", "VACUUM", "ATTACH", "GLOB", "REGEXP", "ISNULL", "NOTNULL", "NOCASE", "rowid", "_rowid_", "INDEXED"}
CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "RETURNING")

# The words that PostgreSQL 15 lets nobody use as the name of a column or a table.
RESERVED = {
    *re.findall(
        r"\w+",
        """all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
        current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
        distinct do else end except false fetch for foreign from grant group having in initially intersect into
        lateral leading limit localtime localtimestamp not null offset on only or order placing primary references
        returning select session_user some symmetric table then to trailing true union unique user using variadic
        when where window with authorization binary collation concurrently cross current_schema freeze full ilike
        inner is isnull join left like natural notnull outer overlaps right similar tablesample verbose""",
    )
}


def parse(sql: str) -> Level:
    """The words of a statement, nested as its parentheses are."""
    whole: Level = []
    open_levels = [whole]
    for token in TOKEN.findall(sql):
        if token == "(":
            inner: Level = []
            open_levels[-1].append(inner)
            open_levels.append(inner)
        elif token == ")":
            open_levels.pop()
        else:
            open_levels[-1].append(token)
    assert len(open_levels) == 1, sql
    return whole


def refusals(sql: str) -> list[str]:
    """What PostgreSQL would say against the statement; nothing for one that both databases take."""
    whole = parse(sql)
    return [why for rule in RULES for level in _levels(whole) for why in rule(level)]


def _levels(level: Level) -> Iterator[Level]:
    yield level
    for each in level:
        if isinstance(each, list):
            yield from _levels(each)


def _pairs(level: Level) -> Iterator[tuple[str | Level, str | Level | None]]:
    return zip_longest(level, level[1:])


def _is_query(each: str | Level | None) -> bool:
    return isinstance(each, list) and each[:1] in (["SELECT"], ["WITH"], ["VALUES"])


def _split(level: Level, at: str = ",") -> list[Level]:
    parts: list[Level] = [[]]
    for each in level:
        if each == at:
            parts.append([])
        else:
            parts[-1].append(each)
    return parts


def _between(level: Level, first: tuple[str, ...], ends: tuple[str, ...]) -> Iterator[Level]:
    """The words after each occurrence of some words, up to one that ends them."""
    size = len(first)
    for start in range(len(level) - size + 1):
        if tuple(level[start : start + size]) == first:
            rest = level[start + size :]
            end = next((at for at, each in enumerate(rest) if each in ends), len(rest))
            yield rest[:end]


def _items(level: Level) -> Iterator[Level]:
    """The expressions that a query gives back, without the names that it gives them."""
    for listed in _between(level, ("SELECT",), CLAUSES):
        for item in _split(listed):
            item = item[1:] if item[:1] in (["DISTINCT"], ["ALL"]) else item
            yield item[: item.index("AS")] if "AS" in item else item


def _without_cases(level: Level) -> Iterator[str | Level]:
    """The words of an expression outside CASE … END, where comparisons belong."""
    depth = 0
    for each in level:
        depth += each == "CASE"
        if not depth:
            yield each
        depth -= each == "END"


def _compares(level: Level) -> bool:
    """Is the value of this expression a boolean?"""
    return any(
        _compares(each) if isinstance(each, list) else each in COMPARISONS
        for each in _without_cases(level)
        if not _is_query(each)
    )


def _functions(level: Level) -> Iterator[str]:
    for each, following in _pairs(level):
        if isinstance(each, str) and isinstance(following, list) and each.lower() in FUNCTIONS:
            yield f"there is no function {each}"


def _words(level: Level) -> Iterator[str]:
    for each, following in _pairs(level):
        if isinstance(each, str) and (each in WORDS or each.startswith(("sqlite_", '"', "`"))):
            yield f"{each} belongs to SQLite"
        if each == "==" or (each == "IS" and following == "?") or (each, following) == ("INSERT", "OR"):
            yield f"{each} {following} is SQLite's own"
    yield from ("LIMIT takes no pair" for limit in _between(level, ("LIMIT",), CLAUSES) if "," in limit)


def _scalar_extremes(level: Level) -> Iterator[str]:
    for each, following in _pairs(level):
        if each in ("max", "min") and isinstance(following, list) and "," in following:
            yield f"{each} of several values is greatest or least: write CASE WHEN"


def _nameless_subqueries(level: Level) -> Iterator[str]:
    for at, each in enumerate(level):
        if each in ("FROM", "JOIN") and at + 1 < len(level) and _is_query(level[at + 1]):
            name = level[at + 2] if at + 2 < len(level) else None
            if not isinstance(name, str) or name in CLAUSES or name in ("JOIN", "ON"):
                yield "a subquery in FROM needs a name"


def _boolean_numbers(level: Level) -> Iterator[str]:
    for assigned in _between(level, ("SET",), CLAUSES):
        for assignment in _split(assigned):
            if _compares(assignment[2:]):
                yield f"{assignment[0]} would be given a boolean: write CASE WHEN … THEN 1 ELSE 0 END"
    if any(map(_compares, _items(level))):
        yield "a comparison is given back as a number: write CASE WHEN … THEN 1 ELSE 0 END"
    for each, following in _pairs(level):
        for one, other in ((each, following), (following, each)):
            if one in ARITHMETIC and isinstance(other, list) and not _is_query(other) and _compares(other):
                yield "a boolean is no number: write CASE WHEN … THEN 1 ELSE 0 END"


def _untyped_parameters(level: Level) -> Iterator[str]:
    if "INSERT" not in level:
        yield from ("SELECT ? has no type: write CAST(? AS …)" for item in _items(level) if item == ["?"])
    for start in (at for at, each in enumerate(level) if each == "CASE"):
        case = level[start : level.index("END", start)]
        results = [following for each, following in _pairs(case) if each in ("THEN", "ELSE")]
        if all(result == "?" for result in results):
            yield "CASE … THEN ? has no type: write CAST(? AS …)"


def _parameters_as_conditions(level: Level) -> Iterator[str]:
    ends = ("THEN", "AND", "OR", *CLAUSES)
    for at, each in enumerate(level):
        before, after = level[at - 1] if at else None, level[at + 1] if at + 1 < len(level) else None
        ranged = before == "AND" and level[at - 3 : at - 2] == ["BETWEEN"]
        condition = before in ("WHEN", "WHERE", "ON", "AND", "OR", "NOT") and (after is None or after in ends)
        if each == "?" and condition and not ranged:
            yield "a number is no condition: write ? = 1"


def _cross_joins(level: Level) -> Iterator[str]:
    for joined in _between(level, ("CROSS", "JOIN"), ("WHERE", "JOIN", "GROUP", "ORDER")):
        if "ON" in joined:
            yield "CROSS JOIN takes no ON: write JOIN"


def _aggregates(level: Level) -> bool:
    return any(
        (each in AGGREGATES and isinstance(following, list)) or (isinstance(each, list) and _aggregates(each))
        for each, following in _pairs(level)
        if not _is_query(each)
    )


def _columns(level: Level) -> Iterator[str]:
    for each, following in _pairs(level):
        if isinstance(each, list):
            yield from () if _is_query(each) else _columns(each)
        elif re.fullmatch(r"[a-z_]\w*(\.\w+)?", each) and not isinstance(following, list):
            yield each


def _ungrouped_columns(level: Level) -> Iterator[str]:
    groups = [*_between(level, ("GROUP", "BY"), ("HAVING", "ORDER", "LIMIT", "UNION"))]
    grouped = {column for group in groups for column in _columns(group)}
    items = [*_items(level)]
    if not groups and not any(map(_aggregates, items)):
        return
    for item in items:
        loose = set() if _aggregates(item) else {*_columns(item)} - grouped
        yield from (f"{column} is neither grouped nor aggregated" for column in sorted(loose))


def _distinct_order(level: Level) -> Iterator[str]:
    if level[:2] == ["SELECT", "DISTINCT"]:
        listed = {column for item in _items(level) for column in _columns(item)}
        for order in _between(level, ("ORDER", "BY"), ("LIMIT",)):
            yield from (f"DISTINCT is not ordered by {column}" for column in _columns(order) if column not in listed)


def _ambiguous_columns(level: Level) -> Iterator[str]:
    """The columns of an upsert: the row that is there and the one that was given have the same."""
    for update in _between(level, ("DO", "UPDATE", "SET"), ("RETURNING",)):
        where = update.index("WHERE") if "WHERE" in update else len(update)
        given = [column for part in _split(update[:where]) for column in _columns(part[2:])]
        given += _columns(update[where + 1 :])
        yield from (f"{column} is ambiguous: name its table" for column in given if "." not in column)


def _reserved_names(level: Level) -> Iterator[str]:
    for each, following in _pairs(level):
        if each == "AS" and isinstance(following, str) and following.lower() in RESERVED:
            yield f"{following} is a reserved word"


Rule = Callable[[Level], Iterator[str]]
RULES: tuple[Rule, ...] = (
    _functions,
    _words,
    _scalar_extremes,
    _nameless_subqueries,
    _boolean_numbers,
    _untyped_parameters,
    _parameters_as_conditions,
    _cross_joins,
    _ungrouped_columns,
    _distinct_order,
    _ambiguous_columns,
    _reserved_names,
)
