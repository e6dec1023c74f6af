"""Hostile SQL of a transform is refused before Spark analyzes it; every listed function does what it says.

All expressions are judged, and evaluated, by one start of Spark.
"""

from typing import Any

import pytest

from runtime.sql.functions import functions
from tests.security.sql_examples import EXAMPLES
from tests.security.sql_expressions import ALONE, JAVA, TIME, judged

pytestmark = pytest.mark.spark

NO_FUNCTION, NO_COLUMN, DAY, SIZE = "is not supported", "is no column", "present day", "times as long"
KEY = "'0123456789abcdef'"

# By an expression: what its error says. A function that is not in the table of functions is refused like any
# other one, and a test below compares the whole table; here stand the ways to write something else.
REFUSED: dict[str, str] = {
    # Variables, files, addresses.
    "`${env:REPL_PASSWORD}` = 'x'": NO_COLUMN,
    "`${system:user.home}` = 'x'": NO_COLUMN,
    "value.`${env:PATH}` = 'x'": "No such struct field `${env:PATH}`",
    "exists(select * from csv.`/etc/passwd`)": NO_FUNCTION,
    "value.id in (select * from json.`/etc/passwd`)": NO_FUNCTION,
    "(select max(id) from range(1000000000)) > 1": NO_FUNCTION,
    "from_json(value.s, schema_of_xml('<a/>', map('rowValidationXSDPath', 'http://x/')))": NO_FUNCTION,
    "from_json(value.s, 'a INT', map('mode', 'FAILFAST'))": "is called with 3 arguments",
    "from_json(value.s, concat('a', ' INT'))": "must be a literal",
    "from_json(value.s, 'a TIMESTAMP')": "reads no TIMESTAMP",
    "from_json(value.s, '')": "must be fields",
    "java_method('java.lang.System', 'getenv', 'PATH')": NO_FUNCTION,
    "identifier('val' || 'ue') IS NULL": NO_FUNCTION,
    "identifier('now')() IS NULL": NO_FUNCTION,
    ":name = 1": NO_FUNCTION,
    "? = 1": NO_FUNCTION,
    "__tombstone": NO_COLUMN,
    "__value IS NULL": NO_COLUMN,
    "*": NO_FUNCTION,
    "struct(*) IS NULL": NO_FUNCTION,
    "struct(value.*) IS NULL": NO_FUNCTION,
    "system.builtin.upper(value.s)": NO_FUNCTION,
    # What depends on the moment, on the session, or on chance.
    "timestamp > now()": NO_FUNCTION,
    "timestamp > current_timestamp": NO_COLUMN,
    "user = 'x'": NO_COLUMN,
    "TIMESTAMP 'now' > timestamp": "TIMESTAMP is written as",
    "DATE 'today' = value.day": "DATE or TIMESTAMP is written as",
    "TIMESTAMP '10:00:00' > timestamp": "TIMESTAMP is written as",
    "TIMESTAMP '2026-01-31 10:00:00 Europe/Berlin' > timestamp": "TIMESTAMP is written as",
    "TIMESTAMP_NTZ 'tomorrow' > timestamp": "TIMESTAMP is written as",
    "DATE r'today' = value.day": "DATE or TIMESTAMP is written as",
    "DATE /* */ 'today' = value.day": "DATE or TIMESTAMP is written as",
    "DATE '\\u0074oday' = value.day": "DATE or TIMESTAMP is written as",
    "value.day > 'tomorrow'": DAY,
    "timestamp IN ('now')": DAY,
    "coalesce(timestamp, 'now') IS NULL": DAY,
    "CAST(concat('no', 'w') AS TIMESTAMP) = timestamp": DAY,
    "date('yesterday') = value.day": DAY,
    "date(lower('TODAY')) = value.day": DAY,
    "hour(value.s) = 1": DAY,
    "extract(HOUR FROM value.s) = 1": DAY,
    "CAST(value.s AS TIMESTAMP) IS NULL": DAY,
    "TRY_CAST(value.s AS TIMESTAMP_NTZ) IS NULL": DAY,
    "value.s::timestamp IS NULL": DAY,
    "transform(value.tags, tag -> CAST(tag AS TIMESTAMP))": DAY,
    "date_trunc('DAY', 'now')": DAY,
    "dateadd(DAY, 1, 'now')": DAY,
    "to_timestamp(value.s)": "is called with 1 arguments",
    "unix_timestamp()": "is called with 0 arguments",
    f"aes_encrypt(value.s, {KEY})": "is called with 2 arguments",
    f"aes_encrypt(value.s, {KEY}, 'GCM', 'DEFAULT', '')": "iv of aes_encrypt",
    f"aes_encrypt(value.s, {KEY}, 'GCM', 'DEFAULT', value.s)": "must be a literal",
    f"aes_encrypt(value.s, {KEY}, 'CBC', 'PKCS', X'000102030405060708090a0b')": "16 bytes for CBC",
    # Time and memory.
    "repeat('x', 2000000000)": "a whole number from 0 to 1,000",
    "repeat(value.s, 1000)": "must be a literal",
    "repeat('x', length(value.s))": "must be a literal",
    "repeat(repeat('x', 1000), 1000)": "must be a literal",
    "space(2000000000)": "a whole number from 0 to 1,000",
    "lpad(value.s, 2000000000, 'x')": "a whole number from 0 to 1,000",
    "sequence(1, 1000000000)": "a whole number from 0 to 1,000",
    "sequence(1, value.id)": "must be a literal",
    "transform(sequence(1, 1000), n -> repeat('x', 100))": SIZE,
    "aggregate(value.tags, value.s, (acc, tag) -> concat(acc, acc))": NO_FUNCTION,
    "transform(value.tags, tag -> concat(tag, value.long))": "no variable of its lambda",
    "transform(value.tags, tag -> transform(array(tag), one -> one))": "none within another",
    "transform(value.tags, tag -> repeat('x', 1000))": SIZE,
    "filter(value.tags, value.ok)": "a lambda such as",
    "transform(value.tags, value -> upper(other))": "no variable of its lambda",
    "replace(replace(value.s, 'a', '01234567890123456789'), '0', '01234567890123456789')": SIZE,
    "regexp_replace(regexp_replace(value.s, '', '0123456789'), '', '0123456789')": SIZE,
    "concat_ws('0123456789', concat_ws('0123456789', value.tags), value.tags)": SIZE,
    "concat_ws(value.s, value.tags)": "must be a literal",
    "array_join(value.tags, value.s)": "must be a literal",
    "hex(hex(hex(hex(hex(hex(hex(value.s)))))))": SIZE,
    "concat(" + ", ".join(["value.long"] * 101) + ")": SIZE,
    "||".join(["value.long"] * 98 + ["(value.long || value.long || value.long)"]): SIZE,
    "concat(" + ", ".join(["repeat('0123456789', 1000)"] * 7) + ")": SIZE,
    "from_json(value.s, regexp_replace(repeat('a', 3000), '.*.*.*.*=', 'x'))": "a whole number",
    "value.s RLIKE value.s": "must be a literal",
    "value.s RLIKE '(?=a)'": "looks ahead",
    "value.s RLIKE '(a)\\\\1'": "refers back",
    "value.s RLIKE '((a{1000}){1000}){1000}'": "RE2 reads",
    "value.s RLIKE 'a{900}b{900}c{900}'": "a smaller regex",
    "value.s RLIKE '[[:alpha:]]'": "by name",
    "regexp_replace(value.s, '(a)', '$2')": "names the group 2",
    "regexp_replace(value.s, 'a', '${x}')": "names a group",
    "regexp_extract(value.s, '(a)', 2)": "takes the group 2",
    "value.s LIKE value.s": "must be a literal",
    "value.s LIKE ANY ('a%', 'b%')": NO_FUNCTION,
    "value.s LIKE 'a#b' ESCAPE '#'": "has # before another sign",
    "value.__corrupt IS NULL": "no field __corrupt",
    "value['__Corrupt'] IS NULL": "no field __corrupt",
    "from_json(value.s, '" + "a STRUCT<" * 200 + "b: INT" + ">" * 200 + "')": "brackets within one another",
    "to_date('today') = value.day": "is called with 1 arguments",
    "last_day('today') = value.day": DAY,
    "trunc('now', 'MONTH') = value.day": DAY,
    "date_format('now', 'yyyy') = ''": DAY,
    "date_part('HOUR', 'now') = 1": DAY,
    "unix_date('today') = 1": "DATATYPE_MISMATCH",
    "unix_millis('now') = 1": "DATATYPE_MISMATCH",
    "date_add('today', 1) = value.day": DAY,
    "array(value.day, 'today')[1] = value.day": DAY,
    "if(value.ok, value.day, 'today') = value.day": DAY,
    "nvl2(value.none, value.day, 'today') = value.day": DAY,
    "greatest(value.at, 'now') = value.at": "DATATYPE_MISMATCH",
    "array_contains(array(value.day), 'today')": "DATATYPE_MISMATCH",
    "(value.day, 1) = ('today', 1)": "DATATYPE_MISMATCH",
    "nullif(value.day, 'today') IS NULL": DAY,
    "between(value.day, 'yesterday', 'tomorrow')": DAY,
    "split(value.long, '(a|a)+b')": "a plain text",
    "split(value.s, '\\\\d')": "a plain text",
    "parse_url(value.s, 'QUERY', '(a|a)+b')": "a word of letters",
    "(" * 2_000 + "1" + ")" * 2_000: "brackets within one another",
    "NOT " * 300 + "true": "100 parts",
    "- " * 300 + "1": "100 parts",
    "+".join(["1"] * 200): "100 parts",
    # Where the parser's stack does not overflow, the walk refuses the depth.
    "NOT " * 2_000 + "true": "",
    "+".join(["1"] * 4_000): "",
    "value" + ".a" * 4_000: "",
    "CASE WHEN true THEN " * 110 + "1" + " END" * 110: "100 parts",
    " AND ".join(["1=1"] * 900): "2,000 parts",
    "value.id = 1 " + " " * 10_000: "longer than 10,000 characters",
    "1e999999999BD > 1": "overflow",
    # What one record can't have, or a transform does not need.
    "count(*) > 1": NO_FUNCTION,
    "max(value.id) FILTER (WHERE value.ok) > 1": NO_FUNCTION,
    "sum(value.id) OVER (ORDER BY value.id) > 1": NO_FUNCTION,
    "upper(DISTINCT value.s)": "takes arguments alone",
    "mask(value.s, upperChar => 'X')": NO_FUNCTION,
    "value.s COLLATE UTF8_LCASE = 'x'": NO_FUNCTION,
    "CAST(value.json AS VARIANT)": "a cast to this type",
    "CAST(value.tags AS ARRAY<TIMESTAMP>)": "a cast to this type",
    "parse_json(value.json):a": NO_FUNCTION,
    "value.id AS name": NO_FUNCTION,
    "true; SELECT 1": "PARSE_SYNTAX_ERROR",
    "true) UNION (SELECT 1": "PARSE_SYNTAX_ERROR",
    "true ORDER BY 1": "PARSE_SYNTAX_ERROR",
    "": "PARSE",
}

ACCEPTED: dict[str, object] = {  # honest SQL, with its value
    "value.s <> 'DE' AND headers['test'] IS NULL": True,
    "100 DIV value.id > 0 AND topic <> 'x' AND partition BETWEEN 0 AND 5": True,
    "value.id % 3 <> 0 OR NOT value.ok": True,
    "value.s IN ('x', 'Ann@example.com')": True,
    "CASE WHEN value.n >= 300 THEN 'many' WHEN value.n IS NULL THEN 'none' ELSE 'few' END": "many",
    "CASE value.id WHEN 7 THEN 'seven' END": "seven",
    "TRIM(BOTH 'A' FROM value.s) || SUBSTRING(topic FROM 1 FOR 3)": "nn@example.comord",
    "POSITION('@' IN value.s) + EXTRACT(YEAR FROM value.day)": 2030,
    "timestamp - INTERVAL 1 DAY > '2026-01-01' AND value.day = DATE '2026-01-31'": True,
    "timestamp > TIMESTAMP '2026-01-31T10:20:30.499Z' AND value.day < TIMESTAMP'2026-02-01'": True,
    "CAST('2026-01-31' AS DATE) = value.day AND CAST(value.id AS STRING) = '7'": True,
    "CAST(value.amount * 2 AS DECIMAL(9, 2))::string": "25.00",
    "date_add(value.day, 1) = DATE '2026-02-01' AND dateadd(DAY, 1, timestamp) > timestamp": True,
    "value.tags[0] || value.m['k']": "bv",
    "to_json(value) LIKE '{\"id\":7,%'": True,
    "'${env:PATH}'": "${env:PATH}",
    "value.none <=> NULL": True,
    "'a%b' LIKE 'a#%_' ESCAPE '#' AND value.s NOT LIKE 'A/%%' ESCAPE '/'": True,
    "value.id << 2 = 28 AND value.id >> 1 = 3 AND value.id >>> 1 = 3": True,
    "date(timestamp) = value.day AND date_trunc('MILLISECOND', timestamp) = timestamp": True,
    "from_json('[1, 2]', 'ARRAY<INT>')[1]": 2,
    "regexp_replace(value.s, '(?:n+x)?n|@.*', '-')": "A---",
    "transform(filter(value.tags, tag -> tag <> 'a'), tag -> upper(tag))": "['B', 'C']",
    "value.s LIKE 'Ann%' AND value.s LIKE '%.com' AND value.s LIKE '%@%' AND value.s LIKE 'A%m'": True,
    "value.s LIKE '_nn%@%.com' AND value.s NOT LIKE 'a%' AND value.s ILIKE 'a%'": True,
    "'100%' LIKE '100\\\\%' AND value.n NOT LIKE '3\\\\%0' AND value.n LIKE '3%0'": True,
    " AND ".join(["value.id = 7"] * 300): True,
    "value.id IN (" + ", ".join(map(str, range(1_500))) + ")": True,
    "/* a comment */ value.id -- and another\n = 7": True,
}

# Java's engine needs exponential or high polynomial time for these, or overflows its stack.
LINEAR: dict[str, object] = {
    "value.long RLIKE '(a|a)+b'": False,
    "value.long RLIKE '(a*)*b'": False,
    "regexp_like(value.long, '^(([a-z])+.)+[A-Z]([a-z])+$')": False,
    "regexp_replace(value.long, '.*.*.*.*=', 'x') = value.long": True,
    "regexp_extract(value.long, '(a+)+(a+)+b', 1)": "",
    "length(regexp_replace(value.long, '(a|b)*', '')) = 0": True,
    "value.long LIKE '%a%a%a%a%a%a%a%b%'": False,
    "value.long ILIKE '%A%A%A%A%A%b'": False,
    "length(regexp_extract(value.long, '(?:a|b)*', 0))": 60_000,
}

QUADRATIC = f"{ALONE}regexp_replace(value.long, 'a.*b|a', 'x')"  # RE2 needs quadratic time for all matches

# What RE2 reads, it reads as Java does.
REGEXES = {
    r"(\\w+)@(\\w+)\\.com": "$2.$1",
    "^[A-Z]": "-",
    "n*": "-",
    "(?i)EXAMPLE": "[$0]",
    "e|ex|example": "<$0>",
    "n{1,2}?": "",
    "(x)|(n)": "[$1$2]",
    r"\\.": "\\\\$",
    "[^a-z@]": "_",
    r"\\bcom$": "org",
}


def _of_regex(pattern: str, replacement: str) -> list[str]:
    group = 1 if "$1" in replacement else 0
    return [
        f"value.s RLIKE '{pattern}'",
        f"regexp_replace(value.s, '{pattern}', '{replacement}')",
        f"regexp_extract(value.s, '{pattern}', {group})",
    ]


OF_REGEXES = [text for one in REGEXES.items() for text in _of_regex(*one)]


TIMES = {  # of a JSON value, by their text
    "2026-01-31T10:20:30.123456+02:00": "2026-01-31 08:20:30.123456+00:00",
    "2026-01-31 10:20:30.5": "2026-01-31 10:20:30.500000+00:00",
    "2026-1-3 1:2": "2026-01-03 01:02:00+00:00",
    "2026-01-31": "2026-01-31 00:00:00+00:00",
    "10:20": None,
    "T10:20:30Z": None,
    "now": None,
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    texts = [*ACCEPTED, *LINEAR, QUADRATIC, *OF_REGEXES, *(f"{JAVA}{text}" for text in OF_REGEXES)]
    texts += [f"{TIME}{text}" for text in TIMES]
    texts += (text for text, _ in EXAMPLES.values())
    answers = judged(tmp_path_factory.mktemp("gate"), texts, hostile=tuple(REFUSED))
    accepted = [text for text in REFUSED if "refused" not in answers[text]]
    assert not accepted
    return answers


def test_hostile_expressions_are_refused_by_one_error_each(outcome: dict[str, dict[str, Any]]) -> None:
    unlike = {
        text: outcome[text]["refused"] for text, why in REFUSED.items() if why not in outcome[text]["refused"]
    }
    assert not unlike
    assert max(outcome[text]["seconds"] for text in REFUSED) < 30  # on a busy machine; each is none, or hangs


def test_honest_expressions_are_evaluated(outcome: dict[str, dict[str, Any]]) -> None:
    assert {text: outcome[text].get("value", outcome[text]) for text in ACCEPTED} == ACCEPTED


def test_each_function_of_the_table_does_what_it_says(outcome: dict[str, dict[str, Any]]) -> None:
    assert EXAMPLES.keys() == functions().keys()
    found = {name: outcome[text].get("value", outcome[text]) for name, (text, _) in EXAMPLES.items()}
    assert found == {name: value for name, (_, value) in EXAMPLES.items()}


def test_no_text_of_a_record_makes_a_regex_slow(outcome: dict[str, dict[str, Any]]) -> None:
    """The fixture would end at its deadline: each text is 60,000 characters long."""
    assert {text: outcome[text].get("value", outcome[text]) for text in LINEAR} == LINEAR


def test_a_regex_that_may_be_quadratic_fails_on_a_long_text(outcome: dict[str, dict[str, Any]]) -> None:
    assert "the text is too long for this regex" in outcome[QUADRATIC]["value"]


def test_regexes_mean_what_they_mean_to_java(outcome: dict[str, dict[str, Any]]) -> None:
    ours = {text: outcome[text].get("value", outcome[text]) for text in OF_REGEXES}
    assert ours == {text: outcome[f"{JAVA}{text}"].get("value") for text in OF_REGEXES}


def test_a_time_of_day_in_a_json_value_is_not_one_of_the_present_day(
    outcome: dict[str, dict[str, Any]],
) -> None:
    assert {text: outcome[f"{TIME}{text}"]["value"] for text in TIMES} == TIMES


def test_an_error_names_the_place(outcome: dict[str, dict[str, Any]]) -> None:
    assert outcome["timestamp > now()"]["place"] == [1, 13]
    assert outcome["DATE 'today' = value.day"]["place"] == [1, 1]
