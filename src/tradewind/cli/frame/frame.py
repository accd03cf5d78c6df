"""The frame of all commands: apps, aliases, shared flags, lazy loading.

How to add a command

1. One line in `commands.py`: name, "module:app", help, aliases. The module is imported only when
   the command is called (and the line is all that `tradewind --help` needs).

2. The module, `tradewind/cli/NOUN.py`:

       app = CommandApp("What the noun is about")

       @app.command("ls", aliases=("list", "l"))
       def list_things(
           json: JsonFlag = False,
           subject: Annotated[str, Option("--subject", help="Only of this subject")] = "",
       ) -> None:
           \"\"\"Shown by --help.\"\"\"
           with connect() as connection:              # settings.connect
               infos = manager(connection).streams.list(subject).all()
           if json:
               print_json(infos)                      # output.print_json
               return
           table = Table("Streams", "Name", "Messages")
           for info in infos:
               table.row(info.config.name, info.state.messages)
           table.print()

   Many flags, or flags of several commands, are a dataclass: `with_flags`. A noun in several
   modules: `include`, or `include_later` if it is large. `@app.command()` without a name makes the
   app that command itself (`tradewind rtt`); `app.add` nests apps.
   `Option` and `Argument` are typer's. Heavy imports go into functions.

3. Failing: raise `failures.CommandError("what happened", "what to type", ...)`, or let errors of
   the client pass; `main` prints them and chooses the exit code. A command that has a result for
   scripts returns its exit code as an int.

4. Before something is lost: `prompts.confirm_or_stop("Really delete ...", force=force)`. Missing
   arguments: `prompts.ask(..., flag="--subjects")`, which fails if there is no terminal.

5. The shared flags (`--server`, `--context`, `--timeout`, ...) may stand anywhere on the line; a
   command must not have flags of these names. `settings.current()` has their values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer
from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from tradewind.cli.frame.failures import near
from tradewind.cli.frame.output import set_wide
from tradewind.cli.frame.settings import FLAGS, Flag, current

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

__all__ = ["Argument", "AskFlag", "CommandApp", "ForceFlag", "JsonFlag", "Option", "SharedGroup"]

Function = TypeVar("Function", bound=Callable[..., Any])
HELP_NAMES = {"help_option_names": ["-h", "--help"]}
# Longer texts continue in the next line.
HELP_CHARACTERS = 100
EPILOG = "Shared flags such as --server and --context: tradewind --help"

JsonFlag = Annotated[bool, Option("--json", "-j", help="Print JSON")]
AskFlag = Annotated[bool, Option("--ask", help="Prompt for all settings")]
ForceFlag = Annotated[bool, Option("--force", "-f", help="Do not ask for confirmation")]


class CommandApp:
    """A noun with its commands, or a single command; the module's docstring shows how to use it."""

    def __init__(self, help_text: str) -> None:
        self.aliases: dict[str, str] = {}
        self.parts: dict[str, typer.Typer] = {}
        self.later: list[str] = []
        names = {"aliases": self.aliases, "parts": self.parts, "later": self.later}
        self.typer = _new_typer(
            cls=type("AliasedGroup", (SharedGroup,), names),
            help=help_text,
            epilog=EPILOG,
            no_args_is_help=True,
            context_settings=HELP_NAMES,
        )

    def command(
        self, name: str = "", *, aliases: tuple[str, ...] = (), hidden: bool = False
    ) -> Callable[[Function], Function]:
        """Adds a function as a command; its docstring is the help."""
        owner = self._part(name, _new_typer(), aliases) if name else self.typer
        return owner.command(
            name or None,
            cls=SharedCommand,
            hidden=hidden,
            epilog=EPILOG,
            context_settings=HELP_NAMES,
        )

    def add(self, name: str, app: CommandApp, *, aliases: tuple[str, ...] = ()) -> None:
        """Nests another app as a command with commands of its own."""
        self._part(name, app.typer, aliases)

    def _part(self, name: str, part: typer.Typer, aliases: tuple[str, ...]) -> typer.Typer:
        """Adds an app or command; the callback makes this app a noun, even with one part."""
        self.typer.callback()(_noun)
        self.parts[name] = part
        self.aliases.update(dict.fromkeys(aliases, name))
        return part

    def include(self, *parts: CommandApp) -> None:
        """Takes over the commands of other apps: a noun in several modules."""
        for part in parts:
            self.typer.callback()(_noun)
            self.parts.update(part.parts)
            self.aliases.update(part.aliases)

    def include_later(self, *places: str) -> None:
        """Takes over the commands of other apps, each "module:name of its CommandApp", when a
        command is called or listed that is in none of the parts.
        """
        self.typer.callback()(_noun)
        self.later.extend(places)

    def make(self, name: str) -> Command:
        """The command as typer runs it."""
        made = get_command(self.typer)
        made.name = name
        return made


def load_app(place: str) -> CommandApp:
    """The app at "module:name"."""
    module, name = place.split(":")
    app = getattr(import_module(module), name)
    assert isinstance(app, CommandApp), f"{place} is not a CommandApp"
    return app


def _new_typer(**settings: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, **settings)


def _noun() -> None:
    """A noun itself does nothing."""


def with_flags(kind: type[Any]) -> Callable[[Function], Function]:
    """Gives a command the fields of a dataclass as flags; it takes them as the argument `flags`.

    Put it below `@app.command(...)`. So several commands can share many flags.
    """
    hints = get_type_hints(kind, include_extras=True)
    flags = [
        Parameter(
            item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=hints[item.name]
        )
        for item in fields(kind)
    ]

    def decorate(function: Function) -> Function:
        own = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in signature(function, eval_str=True).parameters.values()
            if parameter.name != "flags"
        ]

        @wraps(function)
        def call(**values: Any) -> Any:
            picked = {flag.name: values.pop(flag.name) for flag in flags}
            return function(**values, flags=kind(**picked))

        call.__signature__ = Signature([*own, *flags])  # type: ignore[attr-defined]
        return cast(Function, call)

    return decorate


def _write_examples(ctx: Context, formatter: HelpFormatter) -> None:
    """The examples of a command, at the end of its help."""
    from tradewind.cli.frame.examples import examples_of

    if shown := examples_of(ctx.command_path.split()[1:]):
        with formatter.section("Examples"):
            for each in shown:
                # Never broken: it is copied.
                formatter.write(f"{' ' * formatter.current_indent}{each}\n")


class SharedCommand(TyperCommand):
    """A command that takes the shared flags too."""

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Examples, and where the shared flags are described."""
        _write_examples(ctx, formatter)
        super().format_epilog(ctx, formatter)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        add_shared_flags(self, hidden=True)


class SharedGroup(TyperGroup):
    """Commands with aliases, and the shared flags in front of them.

    A command is made of its part when it is called or described: to make all those of a noun takes
    longer than most of them take.
    """

    aliases: dict[str, str] = {}
    parts: dict[str, typer.Typer] = {}
    later: list[str] = []

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Examples, and where the shared flags are described."""
        _write_examples(ctx, formatter)
        super().format_epilog(ctx, formatter)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.suggest_commands = False
        add_shared_flags(self, hidden=True)

    def list_commands(self, _ctx: Context) -> list[str]:
        """The names of all commands, in order."""
        self._include_rest()
        return sorted(self.parts)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """The command of a name or alias."""
        if cmd_name not in self.parts and cmd_name not in self.aliases:
            self._include_rest()
        name = self.aliases.get(cmd_name, cmd_name)
        if name in self.parts and name not in self.commands:
            self.commands[name] = get_command(self.parts[name])
            self.commands[name].name = name
        return super().get_command(ctx, name)

    def _include_rest(self) -> None:
        """Import the parts that only some commands need."""
        while self.later:
            app = load_app(self.later.pop())
            self.parts.update(app.parts)
            self.aliases.update(app.aliases)

    def _knows(self, name: str) -> bool:
        """Whether a command of this name or alias is among the parts so far."""
        return name in self.parts or name in self.aliases

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """The command that is called; an unknown name is an error with a hint."""
        name = args[0]
        is_option = name.startswith("-") or ctx.resilient_parsing
        if not is_option and not self._knows(name):
            # The list includes parts that are imported later, and their aliases.
            names = self.list_commands(ctx)
            if name not in names and not self._knows(name):
                ctx.fail(f"command {name!r} does not exist{near(name, [*names, *self.aliases])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The list of commands in a help text, with their aliases."""
        rows = [
            (name, text + self.also_text(name))
            for name, text in self.described_commands(ctx)
            if text
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def described_commands(self, ctx: Context) -> list[tuple[str, str]]:
        """Names with one line of help each."""
        made = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [
            (name, command.get_short_help_str(HELP_CHARACTERS))
            for name, command in made
            if command is not None and not command.hidden
        ]

    def also_text(self, name: str) -> str:
        """The other names of a command: ` (also: con, c)`."""
        also = [alias for alias, target in self.aliases.items() if target == name]
        return f" (also: {', '.join(also)})" if also else ""


def add_shared_flags(command: TyperCommand | TyperGroup, *, hidden: bool) -> None:
    """Lets a command or group take the shared flags, except those that it has itself."""
    taken = {name for parameter in command.params for name in parameter.opts}
    for flag in FLAGS:
        if f"--{flag.name}" not in taken:
            command.params.append(_option(flag, hidden=hidden, take_short=flag.short not in taken))


def _option(flag: Flag, *, hidden: bool, take_short: bool) -> TyperOption:
    names = [f"--{flag.name}"]
    if flag.short and take_short:
        names.append(flag.short)
    is_switch = not flag.metavar
    return TyperOption(
        param_decls=[*names, f"shared_{flag.key}"],
        metavar=flag.metavar or None,
        is_flag=is_switch,
        default=None,
        expose_value=False,
        callback=_remember,
        help=f"{flag.help} [{flag.env}]" if flag.env else flag.help,
        hidden=hidden,
    )


def _remember(_context: Any, parameter: Any, value: str | bool | None) -> None:
    """Keeps the value of a shared flag, wherever on the line it stood."""
    if value is not None and value is not False:
        key = parameter.name.removeprefix("shared_")
        current().given[key] = value
        if key == "wide":
            set_wide(True)
