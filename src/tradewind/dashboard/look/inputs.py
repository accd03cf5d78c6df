"""Inputs of forms with what was entered, hints, and the error beside each.

Owns their accessibility: an error is announced, the input names it, and the summary on top links to
each input that is not valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tradewind.dashboard.look.elements import Child, Markup, tag


class Inputs:
    """The inputs of one form: `entered` has precedence over the default of an input.

    `entered` is None for a form that was not sent before.
    """

    def __init__(
        self, entered: Mapping[str, str] | None = None, errors: Mapping[str, str] | None = None
    ) -> None:
        self._entered = entered
        self._errors = errors or {}

    def value(self, name: str, default: str = "") -> str:
        """The text of an input."""
        return default if self._entered is None else self._entered.get(name, default)

    def is_bad(self, name: str) -> bool:
        """Whether the value of an input was refused."""
        return name in self._errors

    def text(
        self,
        label: str,
        name: str,
        default: str = "",
        *,
        hint: str = "",
        required: bool = False,
        disabled: bool = False,
        numeric: bool = False,
        placeholder: str = "",
    ) -> Markup:
        """A line of text. `numeric` shows the keyboard of numbers on a phone."""
        control = tag(
            "input",
            type="text",
            name=name,
            id=input_id(name),
            value=self.value(name, default),
            required=required,
            disabled=disabled,
            placeholder=placeholder or None,
            inputmode="numeric" if numeric else None,
            autocomplete="off",
            **self._marks(name, hint),
        )
        return self._row(label, name, control, hint)

    def area(self, label: str, name: str, default: str = "", *, hint: str = "") -> Markup:
        """Several lines of text."""
        control = tag(
            "textarea",
            self.value(name, default),
            name=name,
            id=input_id(name),
            class_="low",
            spellcheck="false",
            **self._marks(name, hint),
        )
        return self._row(label, name, control, hint)

    def choice(
        self,
        label: str,
        name: str,
        options: Sequence[tuple[str, str]],
        default: str = "",
        *,
        hint: str = "",
        disabled: bool = False,
    ) -> Markup:
        """One of several values; one that is none of them is offered, too."""
        chosen = self.value(name, default)
        known = list(options)
        if chosen and chosen not in dict(options):
            known.append((chosen, chosen))
        made = [tag("option", text, value=value, selected=value == chosen) for value, text in known]
        control = tag(
            "select",
            made,
            name=name,
            id=input_id(name),
            disabled=disabled,
            **self._marks(name, hint),
        )
        return self._row(label, name, control, hint)

    def switch(
        self,
        label: str,
        name: str,
        *,
        default: bool = False,
        hint: str = "",
        disabled: bool = False,
    ) -> Markup:
        """A checkbox; the hidden input says that it was shown and not ticked."""
        is_on = self.value(name, "1" if default else "0") == "1"
        off = None if disabled else tag("input", type="hidden", name=name, value="0")
        box = tag(
            "input",
            type="checkbox",
            name=name,
            id=input_id(name),
            value="1",
            checked=is_on,
            disabled=disabled,
            **self._marks(name, hint),
        )
        label_tag = tag("label", box, tag("span", label), class_="tick", for_=input_id(name))
        return tag("div", off, label_tag, *self._below(name, hint), class_="entry")

    def _marks(self, name: str, hint: str) -> dict[str, str | None]:
        is_bad = name in self._errors
        described = [f"{input_id(name)}-error"] if is_bad else []
        described += [f"{input_id(name)}-hint"] if hint else []
        return {
            "aria_invalid": "true" if is_bad else None,
            "aria_describedby": " ".join(described) or None,
        }

    def _row(self, label: str, name: str, control: Markup, hint: str) -> Markup:
        label_tag = tag("label", label, for_=input_id(name))
        return tag("div", label_tag, control, *self._below(name, hint), class_="entry")

    def _below(self, name: str, hint: str) -> list[Child]:
        error = self._errors.get(name)
        return [
            tag("p", error, class_="entry-error", id=f"{input_id(name)}-error") if error else None,
            tag("small", hint, id=f"{input_id(name)}-hint") if hint else None,
        ]


def input_id(name: str) -> str:
    """The id of an input."""
    return f"in-{name.replace('.', '-')}"


def refusal_note(text: str, errors: Mapping[str, str], labels: Mapping[str, str]) -> Markup:
    """The summary above a form that was not accepted, with links to its inputs."""
    links = [
        tag("li", tag("a", labels.get(name, name), href=f"#{input_id(name)}"), ": ", error)
        for name, error in errors.items()
    ]
    return tag(
        "div",
        tag("p", tag("strong", "Nothing was changed."), " ", text if not links else None),
        tag("ul", links) if links else None,
        class_="notice bad refusal",
        role="alert",
        id="refusal",
    )


def action_link(label: str, href: str, refusal: str = "", *, class_: str = "button") -> Markup:
    """A link that looks like a button; with a refusal it leads nowhere and says why."""
    if not refusal:
        return tag("a", label, href=href, class_=class_)
    return tag(
        "span",
        label,
        class_=f"{class_} off",
        role="link",
        tabindex=0,
        aria_disabled="true",
        title=refusal,
    )


def submit(label: str, refusal: str = "", *, class_: str | None = None, **more: str) -> Markup:
    """The button of a form; with a refusal it is off and says why."""
    if not refusal:
        return tag("button", label, class_=class_, **more)
    return tag("button", label, class_=class_, disabled=True, title=refusal, **more)


def why_off(refusals: Sequence[str]) -> Markup | None:
    """The reasons why some actions of a page are off, each once."""
    texts = list(dict.fromkeys(text for text in refusals if text))
    if not texts:
        return None
    return tag("div", [tag("p", text, class_="faint") for text in texts], class_="why-off")


def danger_zone(rows: Sequence[tuple[Child, Child]]) -> Markup:
    """Actions that cannot be undone, apart from all others: (what it does, its button)."""
    made = [
        tag("div", tag("div", text, class_="danger-text"), action, class_="danger-row")
        for text, action in rows
    ]
    return tag(
        "section", tag("h2", "Danger zone"), made, class_="card danger-zone", id="danger-zone"
    )


def comparison(rows: Sequence[tuple[str, str, str]], before: str, after: str) -> Markup:
    """Fields with their values before and after a change."""
    head = tag("tr", *(tag("th", name, scope="col") for name in ("Field", before, after)))
    body = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            tag("td", tag("del", old), data_label=before),
            tag("td", tag("ins", new), data_label=after),
        )
        for label, old, new in rows
    ]
    inner = tag("table", tag("thead", head), tag("tbody", body), class_="comparison")
    return tag("div", inner, class_="scroll")
