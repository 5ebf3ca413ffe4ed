"""The table of sizes: each number is what a person counts by hand."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.house import DEFAULT, Measures, Sizes, measure, table

ONE = '''"""Two
lines."""

import os  # behind code


class Same:
    """One line."""

    def public(self) -> int:
        # alone
        return self._once() + _twice() + _twice()

    def _once(self) -> int:
        return 1


def _twice() -> int:
    def _nested() -> int:
        return 2

    return len(os.sep)
'''
TWO = """class Same:
    pass


class Other:
    field: int
    'Below a field.'
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(ONE)
    (tmp_path / "dialects").mkdir()
    (tmp_path / "dialects" / "two.py").write_text(TWO)
    return tmp_path


def test_every_number_is_counted(source: Path) -> None:
    assert measure(source) == Measures(
        files=Sizes(14, 20, 22),
        functions=Sizes(2, 4, 5),
        longest_function="_twice (one.py)",
        function_count=4,
        called_once=1,
        referenced_once=0,
        class_count=2,
        shared_names=1,
        comment_lines=2,
        docstring_lines=4,
        lines=29,
        dialect_lines=7,
    )


def test_a_use_in_another_folder_does_not_count(source: Path) -> None:
    (source / "dialects" / "three.py").write_text("def _once() -> None: ...\n_once()\n_once()\n")
    assert measure(source).called_once == 1


def test_a_handler_in_a_table_is_referenced_and_not_called(source: Path) -> None:
    handlers = "def _start(): ...\ndef _end(): ...\nHANDLERS = {1: _start}\n_end()\n"
    (source / "dialects" / "three.py").write_text(handlers)
    found = measure(source)
    assert (found.called_once, found.referenced_once) == (2, 1)


def test_an_empty_tree_has_no_sizes() -> None:
    assert Sizes.of([]) == Sizes(0, 0, 0)
    assert Sizes.of([7]) == Sizes(7, 7, 7)


def test_the_table_has_a_column_for_each_tree(source: Path) -> None:
    lines = table([source, source / "dialects"]).splitlines()
    assert lines[0] == f"| | {source.name} | dialects |"
    assert "| longest function | _twice (one.py) | none |" in lines
    assert "| private functions called once | 25.0 % | 0.0 % |" in lines
    assert "| private functions referenced once, not called | 0.0 % | 0.0 % |" in lines
    assert "| class names used more than once | 50.0 % | 0.0 % |" in lines
    assert "| source lines in dialects/ | 7 | 0 |" in lines


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).parents[1] / "tools" / "house.py"
    command = [sys.executable, program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_anyone_can_run_it(source: Path, tmp_path: Path) -> None:
    assert run(source).stdout == table([source])
    empty = tmp_path / "nothing"
    empty.mkdir()
    failed = run(empty)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "no Python files in" in failed.stderr


@pytest.mark.long
def test_without_a_folder_it_measures_weft() -> None:
    assert run().stdout == table([DEFAULT])
