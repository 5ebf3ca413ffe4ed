"""The tests notice every break of the law that is listed: a mutant that survives is a hole."""

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import KILLERS, MUTANTS, SOURCE, Mutant, listed

ROOT = Path(__file__).parents[1]
CAPTURES = "tests/test_captures.py"
SECONDS = 120
"""After this long a mutant counts as noticed: it made something go on for ever."""


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, one for each worker; each test puts back what it changed."""
    folder = tmp_path_factory.mktemp("mutants")
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        # Compiled once; told stale by their hash, since a mutant may be as old and as long.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder / name, quiet=1, invalidation_mode=mode)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def rounds(files: tuple[str, ...]) -> list[tuple[str, str]]:
    """Which tests to run, in which order: examples before properties, which take their time.
    The properties of the captures say nothing of a call that their examples do not.
    """
    found = [(name, "not hypothesis") for name in files]
    own = [name for name in files if has_properties(name) and name != CAPTURES]
    return found + [(name, "hypothesis") for name in own]


def has_properties(name: str) -> bool:
    return "import given" in (ROOT / name).read_text(encoding="utf-8")


def run_tests(folder: Path, tests: str, mark: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests of a file in a copy, with the package of that copy."""
    plugins = ["no:cacheprovider", "no:xdist", "no:anyio"]
    plugins += [] if has_properties(tests) else ["no:hypothesispytest"]  # a second saved
    options = [word for plugin in plugins for word in ("-p", plugin)]
    options += ["-m", mark] if has_properties(tests) else []
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        "PROPERTIES": "mutants",
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", *options, tests],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def survives(folder: Path, tests: str, mark: str) -> bool:
    try:
        done = run_tests(folder, tests, mark)
    except subprocess.TimeoutExpired:
        return False
    assert done.returncode in (0, 1), f"the tests could not run:\n{done.stdout}{done.stderr}"
    return done.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("file", KILLERS)
def test_without_a_mutant_the_tests_pass(file: str, copy: Path) -> None:
    for tests, mark in rounds(KILLERS[file]):
        done = run_tests(copy, tests, mark)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_a_mutant_is_noticed(mutant: Mutant, copy: Path) -> None:
    path = copy / "src" / "weft" / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(text), encoding="utf-8")
    try:
        for tests, mark in rounds(KILLERS[mutant.file]):
            if not survives(copy, tests, mark):
                return
    finally:
        path.write_text(text, encoding="utf-8")
    pytest.fail(f"no test noticed:\n{mutant.old}\nbecoming:\n{mutant.new}"[-2000:])


# The list itself


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_a_mutant_still_fits_its_source_and_is_a_program(mutant: Mutant) -> None:
    text = (SOURCE / mutant.file).read_text(encoding="utf-8")
    mutated = mutant.applied(text)
    assert mutated != text
    compile(mutated, mutant.file, "exec")


def test_no_two_mutants_have_one_name() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)


def test_every_law_every_table_every_predicate_and_every_step_has_mutants() -> None:
    names = "\n".join(mutant.name for mutant in MUTANTS)
    for word in ("TEXT", "REASONING", "TOOL", "RESPONSE", "predicate", "calls.py"):
        assert word in names
    for law in range(1, 10):
        assert f"guard.py: law {law}: " in names


def test_a_list_is_read_as_a_patch() -> None:
    text = "# A remark\n\n== a.py: it breaks\n     same\n-    old\n+    new\n\n# Another\n"
    assert listed(text) == [
        Mutant("a.py: it breaks", "a.py", "    same\n    old\n", "    same\n    new\n")
    ]


def test_text_that_does_not_stand_exactly_once_is_refused() -> None:
    mutant = Mutant("x", "a.py", "a\n", "b\n")
    assert mutant.applied("a\nc\n") == "b\nc\n"
    for text in ("c\n", "a\na\n"):
        with pytest.raises(LookupError):
            mutant.applied(text)
