"""tour.html: a script's own text, and beside each line what it has just computed in a real step.

    python studies/tours/tour.py grpo.py                    # any script, or your edited copy
    python studies/tours/tour.py fade.py --variant power    # with any of its flags
    python studies/tours/tour.py --make                     # docs/tours/: those of the five scripts

It runs the script for one step of 2 prompts with 4 completions each, in two minibatches and two
iterations, and writes the page into the run folder. Shape comments, such as `# [B, G]`, are checked
against the real shapes: a wrong one is red on the page, and printed.

Python's line events tell when a line has run, in `main` and in the functions of the script and of
common.py that it calls. rlvr is left out. Beside a line stands what has changed while it ran.
"""

import ast
import html
import json
import runpy
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, SCRIPTS, STUDIES

import rlvr.training.run
from rlvr.errors import fail
from rlvr.flags import Config
from rlvr.tasks import Sample

import torch

from studies.tours.source import Source, bound_by, last_line
from studies.tours.values import fields_of, fingerprints, flat, number, policy_text, rounded

# At this seed both groups are mixed, and in the second iteration some tokens are clipped.
FLAGS = (
    "seed=16 max_steps=1 prompts_per_step=2 num_generations=4 minibatch_size=4 num_iterations=2 "
    "eval_problems=2 eval_samples=2 log_tokens=0 num_threads=1 "
    f"output_dir=runs/tours/{time.strftime('%m%d-%H%M%S')}"  # where "latest" finds no run
)
UNSHOWN = ("output_dir", "num_threads", "log_tokens", "typed")  # what depends on the machine
UNSETTLED = ("began", "seconds")  # values whose names begin so are those of a clock
MOST_PASSES = 4  # of a loop, and calls of a function by one line, that are kept
MOST_ROWS, MOST_COLUMNS = 16, 64  # of a table
HANDED_ON = ("G", "N", "T", "V", "H")  # letters that mean the same in the functions that are called


class Call:
    """What a function did when it was called once."""

    def __init__(self, frame, source: Source, parent):
        self.frame, self.source, self.parent = frame, source, parent
        self.first, self.name = frame.f_code.co_firstlineno, frame.f_code.co_qualname
        self.known = {}  # name -> its fingerprint after the last statement
        self.visits = []  # of statements: [line, passes of its loops, names and values, calls]
        self.statement = None  # that runs
        self.passes = {}  # first line of a loop -> the pass that it is in
        self.counts = {}  # first line of a loop -> the passes that it had
        self.further = 0  # calls by the same line, after it, that are not kept
        self.silent = False  # in a pass that is not kept
        self.letters = {}  # of shapes -> sizes
        if parent:
            is_inner = self.name.startswith(f"{parent.name}.<locals>")
            kept = parent.letters if is_inner else HANDED_ON
            self.letters = {key: parent.letters[key] for key in kept if key in parent.letters}

    def remember(self) -> None:
        """All values, to tell later which of them have been changed."""
        self.known = {name: fingerprints(value) for name, value in self.frame.f_locals.items()}

    def nearest(self, name: str):
        """The value of a name here or in the nearest call above that has it."""
        if name in self.frame.f_locals or not self.parent:
            return self.frame.f_locals.get(name)
        return self.parent.nearest(name)


class Tour:
    """The calls of a run of a script, from main on."""

    def __init__(self, script: Path):
        self.script = script
        own = script.resolve().with_name("common.py")
        paths = [script.resolve(), own if own.exists() else ROOT / "common.py"]
        self.sources = {str(path): Source(path) for path in paths}
        self.sources |= {str(script): self.sources[str(paths[0])]}  # as runpy names it
        self.open = {}  # frame -> Call; None for one that is not kept
        self.calls, self.entered = [], {}
        self.tables, self.values = {}, {}  # as JSON -> a number; the same one is kept once
        self.before = {}  # where a value was shown -> its table then
        self.checked, self.wrong = set(), []
        self.tokenizer, self.samples, self.folder = None, [], None

    def on_call(self, frame, event, arg):
        """A function begins: whether its lines are to be seen."""
        code, source = frame.f_code, self.sources.get(frame.f_code.co_filename)
        if source is None or code.co_firstlineno not in source.functions:
            return None
        above = frame.f_back
        while above and above not in self.open:
            above = above.f_back
        parent = self.open.get(above)
        if parent is None and (above or code.co_name != "main"):
            return None
        if parent and not self.is_kept(parent, code):
            frame.f_trace_lines = False
            self.open[frame] = None  # so that what it calls is not taken for its caller's
            return self.on_line
        call = self.open[frame] = Call(frame, source, parent)
        self.calls.append(call)
        for argument in ast.walk(source.functions[call.first].args):
            if isinstance(argument, ast.arg):
                call.visits.append([argument.lineno, [], [], []])
                self.keep_changes(call, argument, [argument.arg])
        call.remember()
        return self.on_line

    def is_kept(self, parent: Call, code) -> bool:
        """Whether a call is kept: not too many, and main enters common.evaluate once."""
        if parent.silent or parent.statement is None:
            return False
        line, _, _, made = parent.visits[-1]
        is_first = parent.parent or self.entered.setdefault(code, line) == line
        is_own = self.sources[code.co_filename].name == self.script.name
        alike = [index for index in made if self.calls[index].first == code.co_firstlineno]
        if len(alike) == MOST_PASSES:
            self.calls[alike[0]].further += 1
        if len(alike) == MOST_PASSES or not (is_first or is_own):
            return False
        made.append(len(self.calls))
        return True

    def on_line(self, frame, event, arg):
        """A line of a call begins, or the call returns."""
        call = self.open[frame]
        if call and event == "line":
            statement = call.source.statements[frame.f_lineno]
            if statement is not call.statement:
                self.end_statement(call)
                self.begin_statement(call, statement)
        if event == "return":
            del self.open[frame]
            if call:
                self.end_statement(call)
                if not call.silent and arg is not None:
                    comment = self.comment(call, call.statement)
                    call.visits[-1][2].append(["returns", self.show(call, "returns", arg, comment)])
                call.frame, call.known = None, {}
        return self.on_line

    def begin_statement(self, call: Call, statement) -> None:
        loops = call.source.loops[statement.lineno]
        for loop in loops:
            first, before = loop.lineno, call.statement
            if not before or not first <= before.lineno <= loop.end_lineno:
                call.passes[first] = 1
            elif loop is statement:
                call.passes[first] += 1
                for letter in "mbn":  # may have another size in the next pass
                    call.letters.pop(letter, None)
            call.counts[first] = call.passes[first] - (loop is statement)
        passes = [call.passes[loop.lineno] for loop in loops]
        was_silent, call.silent = call.silent, any(number > MOST_PASSES for number in passes)
        if was_silent and not call.silent:
            call.remember()
        call.statement = statement
        if not call.silent:
            call.visits.append([statement.lineno, passes, [], []])

    def end_statement(self, call: Call) -> None:
        """Keep what the statement that ends has bound or changed."""
        if call.statement and not call.silent:
            self.keep_changes(call, call.statement, [*call.frame.f_locals])

    def keep_changes(self, call: Call, node, names: list[str]) -> None:
        """Show those of the names that a statement binds, or whose values are others now."""
        values, changed = call.frame.f_locals, call.visits[-1][2]
        bound = bound_by(node)
        if call.parent is None:
            self.learn(call, values)
        for name in names:
            if name not in values or name == "_" or name.startswith(UNSETTLED):
                continue
            now, was = fingerprints(values[name]), call.known.get(name)
            call.known[name] = now
            # the same object, some of whose fields may be others
            if was and now[0] == was[0] and name not in bound:
                for field, value in fields_of(values[name]).items():
                    full = f"{name}.{field}"
                    has_changed = now[1][field] != was[1].get(field) or full in bound
                    if has_changed and not field.startswith(UNSETTLED):
                        comment = self.field_comment(values[name], field)
                        changed.append([full, self.show(call, full, value, comment)])
            else:
                comment = self.comment(call, node)
                changed.append([name, self.show(call, name, values[name], comment)])

    def learn(self, main: Call, values: dict) -> None:
        """The sizes of main's letters, which common.py's docstring explains, and its samples."""
        configs = [value for value in values.values() if isinstance(value, Config)]
        config, letters = configs[0], main.letters
        letters |= dict(B=config.prompts_per_step, G=config.num_generations)
        letters["N"] = letters["B"] * letters["G"]
        self.tokenizer = values.get("tokenizer")
        self.folder = getattr(values.get("run"), "folder", None)
        if "policy" in values:
            sizes = values["policy"].config.get_text_config()
            letters |= dict(V=sizes.vocab_size, H=sizes.hidden_size)
        if "batch" in values:
            self.samples = values["batch"].samples
            letters["T"] = max(len(sample.completion_ids) for sample in self.samples)

    def comment(self, call: Call, node):
        """(source, line) of the shape comment on what a statement binds, or None."""
        for line in range(node.lineno, last_line(node) + 1):
            if line in call.source.comments:
                return call.source, line
        return None

    def field_comment(self, owner, field: str):
        """The same for a field of a class, whose comment stands beside its annotation."""
        for source in self.sources.values():
            line = source.fields.get((type(owner).__name__, field))
            if line in source.comments:
                return source, line
        return None

    def check(self, call: Call, name: str, value, comment) -> dict:
        """The words of a tensor's shape: true, or wrong. A letter has one size in a call."""
        source, line = comment
        choices = source.comments[line]
        self.checked.add((source.name, line))
        sizes = [*value.shape]
        for words in choices:
            letters = dict(call.letters)
            pairs = [*zip(words.split(", "), sizes, strict=False)]
            fits = [self.fits(call, letters, word, size) for word, size in pairs]
            if len(sizes) == len(words.split(", ")) and all(fits):
                call.letters = letters
                return dict(words=f"[{words}]")
        words = " or ".join(f"[{words}]" for words in choices)
        if (source.name, line, name, words, sizes) not in self.wrong:
            self.wrong.append((source.name, line, name, words, sizes))
        return dict(wrong=words)

    def fits(self, call: Call, letters: dict, word: str, size: int) -> bool:
        """Whether a number or letter can have a size. A new letter is learned.

        After the rollout a function has the prompts of the batch, or those of its rows.
        """
        if word.isdigit():
            return int(word) == size
        rows, minibatch = call.nearest("rows"), call.nearest("minibatch")
        known = [len([*flat(part)]) for part in (rows, minibatch) if part is not None]
        groups = [count // letters["G"] for count in known]
        if word == "m" and (rows is None or size != len(rows)):
            return False
        if word == "n" and minibatch is not None and size != known[-1]:
            return False
        if word == "B" and "T" in letters and size not in (*groups, self.calls[0].letters["B"]):
            return False
        return letters.setdefault(word, size) == size

    def show(self, call: Call, name: str, value, comment=None, depth: int = 0):
        """A value as the page reads it: text, or the number of a dict in self.values."""
        parts = [*flat(value)] if isinstance(value, list | tuple) else []
        fields = value if isinstance(value, dict) else fields_of(value)
        if isinstance(value, torch.Tensor):
            shown = self.show_tensor(call, name, value.detach(), comment)
        elif isinstance(value, bool | int | float | str | None):
            return json.dumps(value) if isinstance(value, str) else str(number(value))
        elif isinstance(value, Config):
            given = [
                key
                for key in value.__dataclass_fields__
                if getattr(value, key) != getattr(type(value), key)
            ]
            shown = {f"--{key}": str(getattr(value, key)) for key in given if key not in UNSHOWN}
        elif isinstance(value, torch.nn.Module):
            return policy_text(value)
        elif parts and all(isinstance(part, Sample) for part in parts):
            rows = [self.show_sample(sample) for sample in parts[:MOST_ROWS]]
            shown = dict(kind="samples", rows=rows)
        elif parts and all(isinstance(part, bool | int | float | str) for part in parts):
            text = json.dumps(rounded(value))
            return text if len(text) < 300 else f"{len(value)} of them: {text[:300]} ..."
        elif parts:
            kinds = sorted({type(part).__name__ for part in parts})
            return f"{len(value)} of {', '.join(kinds)}"
        elif (fields or value == {}) and depth < 3:
            shown = {}
            for key, part in fields.items():
                beside = self.field_comment(value, key)
                if not str(key).startswith(UNSETTLED):
                    shown[str(key)] = self.show(call, f"{name}.{key}", part, beside, depth + 1)
        else:
            return getattr(value, "__name__", type(value).__name__)
        return self.values.setdefault(json.dumps(shown), len(self.values))

    def show_sample(self, sample) -> list:
        prompt = self.tokenizer.decode(sample.prompt_ids)
        return [prompt, sample.text, sample.reward]

    def show_tensor(self, call: Call, name: str, value, comment) -> dict:
        shown = dict(kind="tensor", shape=[*value.shape], dtype=str(value.dtype)[6:])
        if comment:
            shown |= self.check(call, name, value, comment)
        if value.dim() == 0:
            return shown | dict(number=number(value.item()))
        table = value.reshape(-1, value.shape[-1])
        G, T = call.letters.get("G"), call.letters.get("T")
        labels = "cells" if value.dim() == 1 or value.shape[-1] == G else "rows"
        ids = None
        if value.dtype != torch.int64:  # which are rows themselves
            ids = self.row_ids(call, value.numel() if labels == "cells" else len(table))
        if not ids and len(self.samples) == len(value) * G and value.numel() == len(value):
            ids, labels = [*range(len(value))], "prompts"
        if ids:
            shown |= dict(labels=labels, ids=ids[: MOST_ROWS * MOST_COLUMNS])
        if labels == "rows" and ids and value.shape[-1] == T:
            shown |= dict(text=1)
        rows = table[:MOST_ROWS, :MOST_COLUMNS].tolist()
        shown["table"] = self.tables.setdefault(json.dumps(rounded(rows)), len(self.tables))
        place = (call.name, call.visits[-1][0], name, *(ids or [-1]))
        former = self.before.get(place, shown["table"])
        if ids and former != shown["table"]:
            shown |= dict(before=former)
        self.before[place] = shown["table"]
        return shown

    def row_ids(self, call: Call, count: int) -> list[int] | None:
        """Which completions so many rows are of."""
        while call and self.samples:
            values = call.frame.f_locals
            for name in ("rows", "minibatch", "later"):
                ids = [int(row) for row in flat(values.get(name, ()))]
                # between two loops over rows, those of the loop before are still there
                if len(ids) == count and {*ids} <= {*map(int, flat(values.get("minibatch", ids)))}:
                    return ids
            call = call.parent
        return [*range(count)] if count and count == len(self.samples) else None

    def page(self, command: str) -> str:
        """The whole page, which needs no network."""
        places, calls = {}, []
        for call in self.calls:
            of = places.setdefault((call.source, call.first, call.name), len(places))
            calls.append(dict(of=of, visits=call.visits, counts=call.counts, further=call.further))
        ids = [sample.completion_ids for sample in self.samples]
        rows = {}  # as JSON -> a number: tables that differ in one row share the others
        tables = [
            [rows.setdefault(json.dumps(row), len(rows)) for row in json.loads(table)]
            for table in self.tables
        ]
        data = dict(
            script=self.script.name,
            command=command,
            about=ast.get_docstring(self.sources[str(self.script)].tree) or "",
            letters=self.calls[0].letters,
            samples=[self.show_sample(sample) for sample in self.samples],
            right=[sample.success for sample in self.samples],
            tokens=[self.tokenizer.batch_decode([[token] for token in row]) for row in ids],
            functions=[source.describe(first, name) for source, first, name in places],
            calls=calls,
            values=[json.loads(value) for value in self.values],
            rows=[json.loads(row) for row in rows],
            tables=tables,
            wrong=self.wrong,
        )
        text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        page = (STUDIES / "tours" / "tour.html").read_text()
        page = page.replace("NAME", html.escape(self.script.name))
        return page.replace("DATA_OF_THE_TOUR", text)


def run(tour: Tour, flags: list[str]) -> Tour:
    """Run the tour's script with these flags, and with those of a tour where they say nothing."""
    given = {flag.partition("=")[0].lstrip("-").replace("-", "_") for flag in flags}
    added = [f"--{flag}" for flag in FLAGS.split() if flag.partition("=")[0] not in given]
    sys.argv = [str(tour.script), *added, *flags]
    sys.path.insert(0, str(tour.script.resolve().parent))
    finish = rlvr.training.run.Run.finish
    rlvr.training.run.Run.finish = lambda run: None  # its figures are of no use after one step
    sys.settrace(tour.on_call)
    try:
        runpy.run_path(str(tour.script), run_name="__main__")
    finally:
        sys.settrace(None)
        rlvr.training.run.Run.finish = finish
        sys.path.pop(0)
    return tour


def main(script: str, *flags: str) -> None:
    tour = Tour(Path(script))
    try:
        run(tour, [*flags])
    finally:  # where the script has failed, up to there
        if tour.folder and tour.folder.exists():  # it goes if no step was made
            command = " ".join(["studies/tours/tour.py", tour.script.name, *flags])
            (tour.folder / "tour.html").write_text(tour.page(command))
            for file, line, name, words, shape in tour.wrong:
                print(f"{file}:{line}: {name} is {shape}, but its comment says {words}")
            print(f"wrote {tour.folder}/tour.html")


def make() -> None:
    """Write the pages of the five scripts, docs/tours/."""
    for script in SCRIPTS:
        with tempfile.TemporaryDirectory() as place:
            tour = run(Tour(ROOT / f"{script}.py"), ["--output_dir", f"{place}/run"])
        page = tour.page(f"studies/tours/tour.py {script}.py")
        (ROOT / "docs" / "tours" / f"{script}.html").write_text(page)


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["-h"], ["--help"]):
        raise SystemExit(__doc__)
    if sys.argv[1:] == ["--make"]:
        make()
    elif Path(sys.argv[1]).is_file():
        main(*sys.argv[1:])
    else:
        fail(f"{sys.argv[1]} is no script: give one such as grpo.py, and then its flags")
