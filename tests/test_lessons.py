"""docs/lessons/: each runs unsolved, and its check tells a right solution from a wrong one."""

import importlib.util
import math
import re
import sys

import pytest
from matplotlib.figure import Figure
from runs import ROOT, first_fast, left_as_it_was

FOLDER = ROOT / "docs" / "lessons"
PLACE = re.compile(r"^    \w+ = .*  # replace this with your formula\n", re.MULTILINE)
FOLDED = re.compile(r'lesson\.solutions\(\s*"""(.*?)"""', re.DOTALL)
MEANS = "logprobs - logprobs.mean()", "advantages - advantages.mean()", "c.var(correction=0)"
WEIGHTS = "c = ({}) * ({}); k = (-(c**2) / (2 * {})).exp(); weights = k * len(c) / k.sum()"
# Of each lesson: the values of the cell that takes its time, and wrong solutions.
LESSONS = {
    "5_two_axes": ("", "alpha = 1 / (2 * success_rate)"),
    "1_advantage": (
        "begun drawn chosen batch advantages before logprobs change",
        "advantages = rewards - rewards.mean(1, keepdim=True)",
        "advantages = 4 / 3 * (rewards - rewards.mean(1, keepdim=True))",
    ),
    "2_ratio": (
        "begun batch advantages logprobs marks clipped",
        "found = torch.where((ratio - 1).abs() > epsilon, 0, ratio * advantage)",
        "found = torch.where((ratio > 1 + epsilon) & (advantage > 0), 0, ratio * advantage)",
        "found = torch.where((ratio - 1) * advantage.sign() > 0.2, 0, ratio * advantage)",
        "found = torch.where((ratio - 1) * advantage.sign() > epsilon, 0, advantage)",
    ),
    "3_entropy": ("results", "factor = success_rate", "factor = success_rate + kept / 2"),
    "4_odds": ("begun batch kappa", "beta_pos = worth / ((1 - p) / p)"),
    "6_tokens": (
        "begun batch grouped logprobs mask advantages weights mixed",
        "weights = torch.ones_like(logprobs)",
        WEIGHTS.format(MEANS[0], "advantages", MEANS[2]),
        WEIGHTS.format("logprobs", *MEANS[1:]),
        WEIGHTS.format(*MEANS[:2], "(c**2).mean()"),
    ),
    "7_verifier": (
        "",
        "reward = not unreadable and is_right(answer, gold)",
        "reward = unreadable != is_right(answer, gold)",
        "reward = is_right(answer, gold) or answer.isdecimal()",
    ),
}


def load(path):
    """The module of a lesson, which finds `lesson` beside it as Python's own start of it does."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("a_lesson", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def run_solved(name, solution, folder, values):
    """The lesson with a solution in its place. What takes time is taken from the unsolved run."""
    source = (FOLDER / f"{name}.py").read_text()
    assert len(PLACE.findall(source)) == 1
    indented = "".join(f"    {line.strip()}\n" for line in solution.strip().splitlines())
    path = folder / f"{name}.py"
    path.write_text(PLACE.sub(lambda _: indented, source))
    with left_as_it_was():
        load(path).app.run(defs={slow: values[slow] for slow in LESSONS[name][0].split()})


@pytest.mark.parametrize("name", first_fast(LESSONS))
def test_a_lesson_tells_right_from_wrong(name, tmp_path, capsys):
    """What is folded at its end is right."""
    with left_as_it_was():
        outputs, values = load(FOLDER / f"{name}.py").app.run()
    assert capsys.readouterr().out.startswith("Not yet: ")
    figures = [value for value in values.values() if isinstance(value, Figure)]
    assert figures
    for figure in figures:  # a script, which has no page, draws none
        figure.canvas.draw()
    if name == "1_advantage":  # a geometric mean
        ratios = [math.exp(nats) for nats in values["change"][values["batch"].rewards[0] == 1]]
        mean = math.prod(ratios) ** (1 / len(ratios))
        assert f"a success is **{mean:.2f}** times" in values["outcome"]
        drawn, _, _ = values["curves"].lines
        p, worth = drawn.get_xydata().T  # its square is the odds against a success
        assert drawn.get_label() == "a success" and worth**2 == pytest.approx((1 - p) / p)
    if name == "2_ratio":  # at 1.4, above the range
        assert values["slopes"] == ["0.00", "-1.40"]
        lengths = values["batch"].loss_mask.sum(1)[values["advantages"][:, 0] != 0]
        assert values["share"] == values["clipped"].sum() / lengths.sum()
        heights = [bar.get_height() for bar in values["denominators"].axes[0].patches]
        shares = [1 / 12, 1 / 24, 1 / 48, 1 / 36, 1 / 24, 1 / 48]  # of tokens of 6, and of 18
        assert heights == pytest.approx(shares)
    if name in ("2_ratio", "6_tokens"):  # what is right has a positive advantage
        shown = "".join(str(getattr(output, "text", "")) for output in outputs)
        assert {*re.findall(r"([✓✗]) ([+-])", shown)} == {("✓", "+"), ("✗", "-")}
    if name == "3_entropy":  # the likely action has four times the probability
        assert f"is {values['results']['GRPO']['pass@1']:.3f} after GRPO" in values["said"]
        assert values["rule"].count("4.0 times") == 2
    if name == "4_odds":  # the strength of the successes is the larger one
        assert values["way"] == ("rises" if values["kappa"] > 0 else "falls")
        size = (values["rates"] * (1 - values["rates"])).sqrt()  # that of a group's advantages
        of_hard = size[values["rates"] < 0.5].sum() / size.sum()
        assert values["share"]["GRPO"] == pytest.approx(of_hard.item(), abs=1e-4)
    if name == "5_two_axes":  # p (1 - p)^2 is largest at 1/3, and a delta of 1/2 doubles failures
        assert "success rate **0.33**" in values["said"] and "**2.00** times" in values["said"]
    if name == "6_tokens":  # a token is redder, the lower its weight
        weights = values["weights"][values["shown"]][values["inside"]]
        shades = [f"{shade:.2f}" for shade in 1 - weights / weights.max()]
        assert re.findall(r"213,94,0,([\d.]+)", shown) == shades
    if name == "7_verifier":  # the advantages of a group add up to 0, and errors make them smaller
        for rate, (right, wrong) in values["worth"].items():
            assert rate * right == pytest.approx((rate - 1) * wrong, abs=1e-5)
            assert 0 < right < math.sqrt((1 - rate) / rate)
        apart = [right - wrong for right, wrong in values["worth"].values()]
        assert apart[0] < apart[-1]  # more FP than FN is worse where few are right
    source = (FOLDER / f"{name}.py").read_text()
    for left, shown in re.findall(r"\$([^$=\n]+) = (\d\.\d+)\b", source):
        python = left.replace("\\", "").translate({ord("^"): "**", ord("{"): "(", ord("}"): ")"})
        assert f"{eval(python, {}, vars(math)):.{len(shown) - 2}f}" == shown, left
    (right,) = FOLDED.findall(source)
    found = PLACE.search(source)[0].split()[0]  # what the solution defines
    in_float64 = f"{right}\n{found} = torch.as_tensor({found}).double().numpy()"
    for solution in (right, in_float64, *LESSONS[name][1:]):
        run_solved(name, solution, tmp_path, values)
        says = "Right. " if solution in (right, in_float64) else "Not yet: "
        assert capsys.readouterr().out.startswith(says), solution
