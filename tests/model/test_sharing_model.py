"""Accounts that share in any way, against a model of who gets what under which subject."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from client_frames import frames
from tradewind.broker.accounts import AccountLimits
from tradewind.options import AccountOptions, ServerOptions
from tradewind.route.sharing import (
    Export,
    Import,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from tradewind.route.sharing_rules import Shares, check_sharing
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate

NAMES = ["A", "B", "C"]
Delivery = tuple[str, int, str]  # member, sid, subject


def matches(subject: str, pattern: str) -> bool:
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        if len(words) < len(wanted):
            return False
        wanted, words = wanted[:-1], words[: len(wanted) - 1]
    return len(wanted) == len(words) and all(
        one in ("*", word) for one, word in zip(wanted, words, strict=True)
    )


def renamed(subject: str, source: str, target: str) -> str:
    """A subject that matches `source`, with its wildcards put where `target` says: `*` is the next
    one, `$n` the nth.
    """
    words, values, rest = subject.split("."), [], []
    for index, word in enumerate(source.split(".")):
        if word == "*":
            values.append(words[index])
        elif word == ">":
            rest = words[index:]
    result = []
    following = iter(values)
    for word in target.split("."):
        if word == ">":
            result += rest
        elif word == "*":
            result.append(next(following))
        elif word.startswith("$"):
            result.append(values[int(word[1:]) - 1])
        else:
            result.append(word)
    return ".".join(result)


def pattern_of(target: str) -> str:
    return ".".join("*" if word.startswith("$") else word for word in target.split("."))


class Model:
    """Everything by looking at everything."""

    def __init__(
        self, shares: dict[str, Shares], subscriptions: dict[str, list[tuple[str, int, str]]]
    ) -> None:
        self.shares = shares
        self.subscriptions = subscriptions  # account -> (member, sid, pattern)

    def published(
        self, account: str, subject: str, crossed: tuple[int, ...] = ()
    ) -> list[Delivery]:
        found = [
            (member, sid, subject)
            for member, sid, pattern in self.subscriptions[account]
            if matches(subject, pattern)
        ]
        if not crossed:
            found += self._by_streams(account, subject)
        for wanted in self.shares[account].imports:
            if isinstance(wanted, ServiceImport) and id(wanted) not in crossed:
                found += self._by_service(wanted, subject, crossed)
        return found

    def _by_streams(self, account: str, subject: str) -> list[Delivery]:
        found = []
        for name, shares in self.shares.items():
            for wanted in shares.imports:
                if not isinstance(wanted, StreamImport) or wanted.account != account:
                    continue
                if not matches(subject, wanted.subject):
                    continue
                local = renamed(subject, wanted.subject, local_of(wanted))
                found += [
                    (member, sid, local)
                    for member, sid, pattern in self.subscriptions[name]
                    if matches(local, pattern)
                ]
        return found

    def _by_service(
        self, wanted: ServiceImport, subject: str, crossed: tuple[int, ...]
    ) -> list[Delivery]:
        local = wanted.to or wanted.subject
        if not matches(subject, pattern_of(local)):
            return []
        remote = wanted.subject
        if "*" in remote or ">" in remote:
            remote = self._back(subject, wanted.subject, local)
        return self.published(wanted.account, remote, (*crossed, id(wanted)))

    def _back(self, subject: str, remote: str, local: str) -> str:
        """The remote subject that becomes this one: found by trying all."""
        words = subject.split(".")
        numbered = [w for w in local.split(".") if w.startswith("$") or w == "*"]
        places = [i for i, w in enumerate(local.split(".")) if w.startswith("$") or w == "*"]
        values: dict[int, str] = {}
        for order, (word, place) in enumerate(zip(numbered, places, strict=True), 1):
            values[int(word[1:]) if word != "*" else order] = words[place]
        rest = words[len(local.split(".")) - 1 :] if local.endswith(">") else []
        numbers = iter(sorted(values))
        result = [values[next(numbers)] if w == "*" else w for w in remote.split(".") if w != ">"]
        return ".".join(result + rest)


def local_of(wanted: StreamImport) -> str:
    return f"{wanted.prefix}.{wanted.subject}" if wanted.prefix else wanted.to or wanted.subject


# Few words, so that most of them meet. Each target has the wildcards of its source.
TARGETS = {
    "a": ["", "b", "c.d"],
    "b": ["", "a"],
    "a.*": ["", "b.$1", "$1.a", "*.b"],
    "a.b": ["", "b.a", "a"],
    "*.*": ["", "$2.$1", "c.$1.$2", "*.c.*"],
    "a.>": ["", "b.>", "c.a.>"],
    "b.*.>": ["", "a.$1.>", "$1.>"],
    ">": [""],
}
SUBJECTS = ["a", "b", "a.a", "a.b", "b.a", "b.b", "c.a", "a.b.c", "b.a.b", "c.a.b", "c.d", "a.c.b"]
PATTERNS = [">", "*", "a", "b", "a.*", "*.a", "a.>", "c.>", "*.*.*", "p.>", "p.a.*", "*.b", "c.d"]
names = st.sampled_from(NAMES)
sources = st.sampled_from(list(TARGETS))


@st.composite
def imports(draw: st.DrawFn) -> Import:
    subject = draw(sources)
    target = draw(st.sampled_from(TARGETS[subject]))
    if draw(st.booleans()):
        return ServiceImport(draw(names), subject, target)
    if not target and draw(st.booleans()):
        return StreamImport(draw(names), subject, prefix="p")
    return StreamImport(draw(names), subject, to=target)


exports: st.SearchStrategy[Export] = st.one_of(
    st.builds(StreamExport, sources), st.builds(ServiceExport, sources)
)
accounts = st.fixed_dictionaries(
    {
        name: st.builds(
            Shares,
            st.lists(exports, max_size=5).map(tuple),
            st.lists(imports(), max_size=5).map(tuple),
        )
        for name in NAMES
    }
)


def usable(shares: dict[str, Shares]) -> dict[str, Shares]:
    """Without what is refused: that it is refused rightly is tested elsewhere."""
    wrong = {id(problem.item) for problem in check_sharing(shares)}
    return {
        name: Shares(one.exports, tuple(i for i in one.imports if id(i) not in wrong))
        for name, one in shares.items()
    }


class Scene:
    """A server with these accounts and one member each, who subscribes to some patterns."""

    def __init__(self, shares: dict[str, Shares], patterns: dict[str, list[str]]) -> None:
        self.shares = usable(shares)
        self.server = InProcessServer(
            options_of(self.shares),
            gate=UserGate([User(name, "pw", name) for name in NAMES]),
            accounts=NAMES,
        )
        self.members: dict[str, FakeConnection] = {}
        self.patterns = patterns
        for name in NAMES:
            greeting = f'CONNECT {{"user":"{name}","pass":"pw","verbose":false,"headers":true}}\r\n'
            member = self.server.connect(greeting.encode())
            for sid, pattern in enumerate(patterns[name]):
                member.send(f"SUB {pattern} {sid}\r\n".encode())
            self.members[name] = member

    def check(self, account: str, subject: str) -> None:
        model = Model(
            self.shares,
            {n: [(n, sid, p) for sid, p in enumerate(self.patterns[n])] for n in NAMES},
        )
        self.members[account].send(f"PUB {subject} 1\r\nx\r\n".encode())
        got: Counter[Delivery] = Counter()
        for name, member in self.members.items():
            for frame in frames(member.take()):
                words = frame.split(b"\r\n", 1)[0].decode().split()
                assert words[0] in ("MSG", "HMSG"), frame
                got[name, int(words[2]), words[1]] += 1
        assert got == Counter(model.published(account, subject))


def options_of(shares: dict[str, Shares]) -> ServerOptions:
    return ServerOptions(
        ping_interval_ns=10**18,
        accounts={
            name: AccountOptions(name, exports=one.exports, imports=one.imports)
            for name, one in shares.items()
        },
    )


subscriptions = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from(PATTERNS), max_size=4) for name in NAMES}
)


@given(accounts, subscriptions, accounts)
@settings(max_examples=50, deadline=None)
def test_everybody_gets_what_the_model_says_also_after_a_change(
    shares: dict[str, Shares], patterns: dict[str, list[str]], later: dict[str, Shares]
) -> None:
    scene = Scene(shares, patterns)
    for account in NAMES:
        for subject in SUBJECTS:
            scene.check(account, subject)
    scene.shares = usable(later)
    scene.server.broker.reload(
        options_of(scene.shares),
        scene.server.broker.admission.gates,
        {name: AccountLimits() for name in NAMES},
        identities_changed=False,
    )
    for subject in SUBJECTS:
        for account in NAMES:
            scene.check(account, subject)
    for member in scene.members.values():
        member.close()
    for account in scene.server.broker.accounts.values():
        assert account.shadow_count == 0
        assert account.subscription_count == 0
