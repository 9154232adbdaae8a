"""Words that this project's prose does not use, as data: what to write instead, and why."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Term:
    """A regular expression (case is ignored), what to write instead, and the reason."""

    pattern: str
    instead: str
    reason: str


_TERM: Final = "BookKeeper has a term for it"
_NAME: Final = "name the thing: a reader skims, and must not look back for what a word stands for"
_PLAIN: Final = "a plain verb is understood at the first reading"
_METAPHOR: Final = "a metaphor costs a reader whose first language is another one a second reading"

_STORED = (
    r"(?:entr(?:y|ies)|ledgers?|files?|journals?|groups?|replicas?|cop(?:y|ies)|records?|logs?)"
)

GLOSSARY: Final = (
    Term(r"\bmend(?:s|ed|ing)?\b", "repair, fix", _PLAIN),
    Term(
        rf"\b(?:{_STORED}|how|is|are|it|them|comes?|show(?:s|n)?) whole\b",
        "complete, intact",
        _TERM,
    ),
    Term(rf"\bwhole (?:{_STORED})\b", "complete, intact", _TERM),
    Term(r"\bwho(?:so)?ever\b", "the client, the caller, each process that", _NAME),
    Term(r"\b(?:is|are|was|be) let in\b|\blets? \w+ in\b", "authenticated, allowed", _METAPHOR),
    Term(r"\b(?:gives?|gave|given|giving) up (?:a|the|its|that) connection", "close", _PLAIN),
    Term(r"\bsomebody(?: else)?(?:'s)?\b", "another client's, another bookie's, a process", _NAME),
    Term(r"\bnobody(?:'s)?\b", "no client, no process, no other bookie; unknown", _NAME),
    Term(r"\b(?:is|are|was) dead\b", "has failed, has stopped, has gone", _METAPHOR),
    Term(r"\bheal(?:s|ed|ing)?\b", "repair", _TERM),
    Term(r"\bunder way\b", "in progress, in flight", _PLAIN),
    Term(r"\b(?:no|free|has|have|the|is|much|without|more|any|some|takes?) room\b", "space", _TERM),
    Term(r"\bbe it for\b", "even if only for", _PLAIN),
    Term(r"(?<!\bthere\s)\b(?:is|are|was) (?-i:none)\b", "fails; is not a valid …", _PLAIN),
    Term(
        r"(?<!there\s)\b(?:is|are|was|were) no "
        r"(?!answer|damage|error|failure|filter|further|harm|limit|longer|matter|more|need\b|problem"
        r"|reason|restart|slower|such|time|way|loss\b|one\b|other|space|trace|use\b)\w",
        "is not a …; give …",
        "a reader looks for the verb's `not`, and then for what to do",
    ),
    Term(r"\bat the most\b", "at most", _PLAIN),
    Term(r"\bsuch an?\b", "the name of the thing", _NAME),
    Term(
        r"\bwhat (?:is|was) there\b|\bwhat there (?:is|are|was)\b"
        r"|\bthat there (?:is|are)(?=\s*[.,;:)\]])",
        "existing …",
        _NAME,
    ),
    Term(r"\bhow-many\w*", "the index, the number", _PLAIN),
    Term(r"\b(?:hands?|handed) out\b", "return", _PLAIN),
    Term(r"\bnot be told\b|\b(?:is|are) told apart\b", "cannot be determined; distinguish", _PLAIN),
    Term(
        r"\b(?:bookies?|clients?|ledgers?|server|metadata|kernel) tells?\b", "reports, says", _PLAIN
    ),
    Term(r"\bpassed over in silence\b", "ignored without a message", _METAPHOR),
    Term(
        r"\bstand(?:s|ing)? in the way\b|\bstood still\b|\bstands? still\b",
        "hang, pause",
        _METAPHOR,
    ),
    Term(r"\bstands? longest\b|\bhelds? off\b", "say what happens", _METAPHOR),
    Term(r"\blet go(?: of)?\b", "release, drop", _METAPHOR),
    Term(r"\bin turns?\b a \b|\bas good as\b", "say it plainly", _PLAIN),
    Term(r"\bis at work (?:on|here)\b|\bwho is at\b", "repairs, uses", _METAPHOR),
    Term(r"\bends the life of\b|\bend the life of\b", "fence; delete", _METAPHOR),
    Term(r"\bputs? \w+ in(?:to)? the place of\b", "replace", _PLAIN),
    Term(r"\btaken? (?:it |them )?for none\b|: not known\b", "unknown", _PLAIN),
    Term(r"\ball is well\b", "no problem found", _METAPHOR),
    Term(r"\bthere (?:is|are|was|were) one of (?:this|that|the same) name\b", "exists", _NAME),
    Term(r"\b(?:that|as|what) cannot be(?=[.,;:)]|$)", "invalid", _PLAIN),
    Term(r"\bas safe as it gets\b|\bwho is there\b", "say what it is", _METAPHOR),
    Term(r"\band (?:it is gone for good|away with (?:it|them))\b", "delete", _METAPHOR),
    Term(r"\bwhat (?:goes|would go)(?=[.,;:)]|$| and asks)", "what would be deleted", _NAME),
    Term(r"\b(?:bytes and nothing else|bytes for people)\b", "name the format", _PLAIN),
    Term(r"\btold (?:metrics|figures|latencies)\b", "reported", _PLAIN),
    Term(r"\b(?:it|this|that) takes \d+ to\b", "needs", _PLAIN),
    Term(r"\b(?:readable|read) as a whole\b", "completely", _TERM),
    Term(r"\bgo(?:es)? astray\b", "say where it is stored", _METAPHOR),
    Term(
        r"\b(?:worker|writer|client|bookie) is at (?:work|it|them)\b",
        "runs, repairs, adds",
        _METAPHOR,
    ),
    Term(r"\bhanded back\b(?! as)", "released, returned", _METAPHOR),
    Term(r"\bgoes with (?:neither|no|none)\b", "cannot be combined with", _PLAIN),
    Term(r"\btakes? back the\b", "remove, undo", _METAPHOR),
    Term(r"\b(?:is|are|was) not through\b", "has not ended", _METAPHOR),
    Term(r"\b(?:which|what) lies before\b", "the records before", _PLAIN),
    Term(r"\bshown who (?:it is|they are)\b", "authenticated", _TERM),
    Term(r"\b(?:can|could) be told\b", "report, distinguish; the settings of", _PLAIN),
    Term(r"\ball the same\b", "nevertheless, still", _PLAIN),
    Term(r"\bnot above 0\b", "0 or less", _PLAIN),
    Term(r"\bwins? over\b", "overrides", _PLAIN),
    Term(r"\bcomes? to nothing\b", "fails", _METAPHOR),
    Term(r"\bwhere \S+ (?:is|are) not set\b", "if … is not set", _PLAIN),
    Term(r"\bfor (?:as|so) long as said\b|\bas often as said\b", "name the option", _NAME),
)
