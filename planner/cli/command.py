"""Makes a command of a function: the annotated fields of its requests are the options and arguments.

    @command
    def verify(request: VerifyFlowRequest, output: Output) -> int:
        '''Compare both sides of FLOW record by record, on Spark.'''

A parameter that is a struct is made of its annotated fields; `Output` is one, and adds --json. Any other
parameter is an option or an argument itself. The docstring is the help.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource
from msgspec import NODEFAULT, Struct

from planner.cli.output import emit
from planner.workflows.options import Argument, Option, TextFormat, TopologyArgument

if TYPE_CHECKING:
    from rich.text import Text

    from planner.cli.view import TerminalView
    from planner.workflows.interaction import Interaction

FORMAT_VERSION = 1


class Output(Struct, frozen=True):
    """Where a command shows what happens, and its result: as lines for people, or as JSON."""

    as_json: Annotated[bool, Option("--json", "Machine-readable output, stable and versioned.")] = False

    def progress(self) -> "TerminalView":
        from planner.cli.view import TerminalView

        return TerminalView(as_json=self.as_json)

    def show(
        self,
        document: Callable[[], Mapping[str, Any]],
        lines: Callable[[int | None], "Iterable[Text]"],
    ) -> None:
        """Prints a result as a JSON document, or as lines as wide as the terminal (None: there is none)."""
        if self.as_json:
            self.emit(document())
            return
        from planner.cli.console import print_lines

        print_lines(lines)

    def emit(self, document: Mapping[str, Any]) -> None:
        """Prints a JSON document with its version."""
        emit({"format_version": FORMAT_VERSION, **document})


class ApprovedOutput(Output, frozen=True):
    """The output of a command that asks before it changes anything."""

    auto_approve: Annotated[bool, Option("--auto-approve", "Do not ask before changing anything.")] = False

    def interaction(self) -> "Interaction":
        from planner.cli.view import interaction

        return interaction(self.progress(), auto_approve=self.auto_approve)


class Parameter(NamedTuple):
    """A field of a request, or a parameter of a command's function, that the command line has."""

    name: str
    type: Any
    mark: Option | Argument | TopologyArgument
    default: Any  # NODEFAULT where it must be given

    @property
    def repeated(self) -> bool:
        return get_origin(self.type) is tuple

    def argument(self) -> click.Argument:
        mark = self.mark
        assert isinstance(mark, Argument)
        default: dict[str, Any] = {} if self.default is NODEFAULT else {"default": self.default}
        return click.Argument(
            [self.name],
            type=self._type(),
            nargs=-1 if self.repeated else 1,
            required=self.default is NODEFAULT and not self.repeated,
            metavar=mark.metavar,
            **default,
        )

    def option(self, mark: Option) -> click.Option:
        names = [self.name, *mark.flag.split("/")]
        if self.type is bool:
            return click.Option(names, is_flag=True, hidden=mark.hidden, help=mark.help)
        default = None if self.default in (NODEFAULT, None, ()) else self.default
        if default is not None and mark.kind is not None:
            default = mark.kind.text(default)
        # For click, None is a default too: an option that must be given has none at all.
        optional: dict[str, Any] = {} if self.default is NODEFAULT else {"default": default}
        return click.Option(
            names,
            type=self._type(),
            multiple=self.repeated,
            required=self.default is NODEFAULT,
            **optional,
            show_default=default is not None,
            metavar=mark.metavar,
            envvar=mark.variable,
            show_envvar=mark.variable is not None,
            hidden=mark.hidden,
            help=mark.help,
        )

    def _type(self) -> click.ParamType[Any]:
        """Returns how click reads one value of the parameter."""
        mark = self.mark
        assert not isinstance(mark, TopologyArgument)
        if mark.kind is not None:
            return _TextParam(mark.kind, mark.least)
        base = next(
            option_type for option_type in (*get_args(self.type), self.type) if option_type is not type(None)
        )
        if base is Path:
            return click.Path(
                path_type=Path,
                file_okay=mark.path != "folder",
                dir_okay=mark.path != "file",
                exists=mark.exists,
            )
        if mark.choices:
            return click.Choice(mark.choices)
        if base is int:
            return click.IntRange(mark.least, mark.most)
        if base is float:
            return click.FloatRange(mark.least, mark.most)
        return click.STRING


def command(
    function: Callable[..., int],
    *,
    name: str | None = None,
    without: tuple[str, ...] = (),
    settings: Mapping[str, Any] | None = None,
) -> click.Command:
    """Returns the command of a function. `without` names fields of its requests that it does not offer.
    `settings` are click's, of the command's context.

    Requests with the same field get the same value. The options of a command's own come first, then those
    that its request inherits.
    """
    structs, offered = _offered(function)
    by_name: dict[str, Parameter] = {}
    flags: set[str] = set()
    for field in offered:
        flag = field.mark.flag if isinstance(field.mark, Option) else field.name
        if field.name not in (*by_name, *without) and flag not in flags:
            by_name[field.name] = field
            flags.add(flag)
    parameters = inspect.signature(function).parameters
    arguments = [field for field in by_name.values() if isinstance(field.mark, Argument)]

    def run(**values: Any) -> int:
        if "path_option" in values:
            values["path"] = _topology_path(values, arguments[-1] if arguments else None)
        given = dict(_field_values(by_name, values))
        requests = {
            name: struct(
                **{
                    field_name: given[field_name]
                    for field_name in struct.__struct_fields__
                    if field_name in given
                }
            )
            for name, struct in structs.items()
        }
        return function(**requests, **{name: value for name, value in given.items() if name in parameters})

    return click.Command(
        name or function.__name__.rstrip("_"),
        params=_parameters(by_name.values(), arguments),
        callback=run,
        context_settings=dict(settings or {}),
        help=function.__doc__,
    )


class CommandWithWords(click.Group):
    """A command, some of whose first words are commands of their own: `repl offsets translate`.

    The command may have an argument that is called like such a word. It is one where the arguments that
    follow are too few for the word's own command.
    """

    def __init__(self, group_command: click.Command, *words: click.Command) -> None:
        super().__init__(
            group_command.name,
            commands=words,
            params=group_command.params,
            callback=group_command.callback,
            help=group_command.help,
        )
        self._own = group_command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        word = self.commands.get(args[0]) if args else None
        if word is not None:
            # A context without parameters: the word's usage does not show those of the command itself.
            context = click.Context(click.Group(self.name), parent=parent, info_name=info_name)
            if len(args) == 1 or _complete(word, context, args[1:]):
                return word.make_context(args[0], args[1:], context, **extra)
        return self._own.make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return ctx.command.invoke(ctx)  # of the command itself, or of a word

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return self._own.collect_usage_pieces(ctx)


def _complete(command: click.Command, parent: click.Context, args: list[str]) -> bool:
    """Returns whether a command has every argument that it needs, or its help is wanted."""
    context = command.make_context(command.name, list(args), parent, resilient_parsing=True)
    needed = [param for param in command.params if isinstance(param, click.Argument) and param.required]
    wants_help = not set(args).isdisjoint(context.help_option_names)
    return wants_help or all(context.params.get(str(param.name)) is not None for param in needed)


def given(name: str) -> bool:
    """Returns whether the command line, or its environment, has the option of this field."""
    source = click.get_current_context().get_parameter_source(name)
    return source not in (None, ParameterSource.DEFAULT)


def _offered(function: Callable[..., int]) -> tuple[dict[str, type[Struct]], list[Parameter]]:
    """Returns the requests of a function, and every field that may be offered, in order of the help."""
    structs: dict[str, type[Struct]] = {}
    declared: list[Parameter] = []
    inherited: list[Parameter] = []
    outputs: list[Parameter] = []
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if get_origin(hint) is Annotated:
            default = NODEFAULT if parameter.default is parameter.empty else parameter.default
            base, mark = get_args(hint)
            declared.append(Parameter(name, base, mark, default))
            continue
        structs[name] = hint
        annotations = {
            name: annotation
            for base in reversed(hint.__mro__)
            for name, annotation in vars(base).get("__annotations__", {}).items()
        }
        defaults = dict(
            zip(reversed(hint.__struct_fields__), reversed(hint.__struct_defaults__), strict=False)
        )
        for field in hint.__struct_fields__:
            if get_origin(annotations[field]) is Annotated:
                inherits = field not in hint.__annotations__
                group = outputs if issubclass(hint, Output) else inherited if inherits else declared
                base, mark = get_args(annotations[field])
                group.append(Parameter(field, base, mark, defaults.get(field, NODEFAULT)))
    return structs, [*declared, *inherited, *reversed(outputs)]


def _field_values(offered: Mapping[str, Parameter], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, field in offered.items():
        value = values[name]
        if field.type is bool and field.default is True:  # the option turns it off
            yield name, not value
        elif isinstance(field.mark, Option | Argument) and field.mark.fills:
            yield from zip(field.mark.fills, value, strict=True) if value is not None else ()
        else:
            yield name, value


def _parameters(offered: Iterable[Parameter], arguments: Sequence[Parameter]) -> list[click.Parameter]:
    parameters: list[click.Parameter] = [field.argument() for field in arguments]
    for field in offered:
        match field.mark:
            case Option():
                parameters.append(field.option(field.mark))
            case TopologyArgument():
                if not (arguments and arguments[-1].repeated):
                    parameters.insert(
                        len(arguments),
                        click.Argument(["path_word"], type=_PATH, required=False, metavar="[PATH]"),
                    )
                parameters.append(
                    click.Option(
                        ["--path", "path_option"],
                        type=_PATH,
                        metavar="PATH",
                        help="The topology's file or folder, as the argument PATH."
                        "  [default: the current folder]",
                    )
                )
    return parameters


class _TextParam(click.ParamType[Any]):
    """A kind of text, as click calls it. A value that was read before stays."""

    def __init__(self, kind: TextFormat, least: Any) -> None:
        self.name = kind.name
        self._kind = kind
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            read = self._kind.read(value)
        except ValueError as wrong:
            self.fail(f'"{value}" {wrong}', param, ctx)
        if self._least is not None and read < self._least:
            self.fail(f'"{value}" is less than {self._kind.text(self._least)}', param, ctx)
        return read


_PATH = click.Path(path_type=Path)


def _topology_path(values: dict[str, Any], before: Parameter | None) -> Path:
    """Returns the topology that is named as the last word or by --path; both must be the same.

    `before` is the argument before PATH. Where it may be left out, the last word is PATH if it can't be the
    name of a cluster or a topic: it contains a slash, is `.` or `..`, or names an existing YAML file.
    """
    word: Path | None = values.pop("path_word", None)
    option: Path | None = values.pop("path_option")
    if word is None and before is not None and (before.repeated or before.default is not NODEFAULT):
        last = values[before.name]
        words = last if isinstance(last, tuple) else (last,) if last is not None else ()
        if words and _is_path(words[-1]):
            word = Path(words[-1])
            values[before.name] = words[:-1] if isinstance(last, tuple) else None
    if word is not None and option is not None and word != option:
        raise click.UsageError(f"the topology is given twice: {word} and --path {option}")
    return word or option or Path()


def _is_path(word: str) -> bool:
    return "/" in word or word in (".", "..") or (word.endswith((".yaml", ".yml")) and Path(word).is_file())
