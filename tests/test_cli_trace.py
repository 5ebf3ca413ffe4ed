"""`weft trace`, `diff`, `case` and `test` as people run them."""

import asyncio
import json
import zipfile
from pathlib import Path

from tests.captures import HERE
from tests.clients.drivers import CHAT, RESPONSES
from tests.recorded_world import RecordedWorld
from tests.test_rerun import WHOLE, chunk
from tests.weft_command import Done, run

CAPTURE = HERE / "openai_chat" / "arguments-cut-reported-as-length.sse"


def stored(folder: Path, policy: str = "all", pieces: list[bytes] | None = None) -> str:
    """The id of a response in the store of a folder with settings."""
    (folder / "weft.toml").write_text('[store]\nurl = "sqlite:///weft.db"\n')
    with asyncio.Runner() as runner:
        world = RecordedWorld(runner, folder, policy)  # type: ignore[arg-type]
        sent = world.send_pieces(pieces or WHOLE, CHAT, RESPONSES, stream=True)
        _, id = runner.run(sent)
        runner.run(world.save())
        runner.run(world.store.close())
    assert id is not None
    return id


def last(done: Done) -> dict[str, object]:
    row: dict[str, object] = json.loads(done.lines[-1])
    return row


def test_a_stored_response_is_traced_from_the_store(tmp_path: Path) -> None:
    id = stored(tmp_path)
    done = run("trace", id, folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert last(done)["differ"] == 0
    assert run("diff", id, "--sent", folder=tmp_path) == Done(0, "", "")
    for wrong in ((id,), (id, id, "--sent"), (CAPTURE, "--sent")):
        assert run("diff", *wrong, folder=tmp_path).code == 2
    other = run("trace", id, "--as", "gemini", folder=tmp_path)
    assert other.code == 0
    assert last(other)["response"] == last(done)["response"]


def test_a_response_that_was_sent_otherwise_is_exit_1(tmp_path: Path) -> None:
    # A key in an error was not stored as it came; the client got it redacted as well, so a text
    # that is a known secret of this world is needed.
    text = "planted-secret-of-the-upstream"
    id = stored(tmp_path, pieces=[chunk({"content": text}), *WHOLE[2:]])
    done = run("trace", id, folder=tmp_path)
    assert done.code == 1
    changed = run("diff", id, "--sent", folder=tmp_path)
    assert (changed.code, len(changed.lines)) == (1, last(done)["differ"])
    for line in map(json.loads, changed.lines):
        assert (line["op"], line["kind"], line["a"]["name"]) == (
            "changed",
            "event",
            line["b"]["name"],
        )
        assert (text in line["a"]["value"], text in line["b"]["value"]) == (True, False)


def test_what_is_not_there_is_exit_2(tmp_path: Path) -> None:
    stored(tmp_path)
    for command in (("trace", "resp_1"), ("case", "resp_1"), ("diff", "resp_1", CAPTURE)):
        done = run(*command, folder=tmp_path)
        assert (done.code, done.out) == (2, "")
        assert "resp_1" in done.err
    for command in (("trace", "no.sse"), ("diff", "no.sse", CAPTURE), ("test", "nowhere")):
        assert run(*command, folder=tmp_path).code == 2
    (tmp_path / "empty").mkdir()
    assert run("test", "empty", folder=tmp_path).code == 2


def test_a_capture_comes_through_a_pipe(tmp_path: Path) -> None:
    piped = run("trace", "-", given=CAPTURE.read_bytes())
    assert piped == run("trace", CAPTURE)


def test_diff_prints_differences_and_with_all_the_rest() -> None:
    same = run("diff", CAPTURE, CAPTURE)
    assert (same.code, same.out) == (0, "")
    whole = run("diff", CAPTURE, CAPTURE, "--all")
    assert {json.loads(line)["op"] for line in whole.lines} == {"same"}


def test_diff_takes_ids_too(tmp_path: Path) -> None:
    id = stored(tmp_path)
    (tmp_path / "same.sse").write_bytes(b"".join(WHOLE))
    assert run("diff", id, "same.sse", folder=tmp_path).code == 0
    (tmp_path / "other.sse").write_bytes(b"".join(WHOLE).replace(b"War", b"War and "))
    done = run("diff", id, "other.sse", folder=tmp_path)
    assert (done.code, len(done.lines)) == (1, 1)


def test_a_case_is_a_zip_that_weft_test_passes(tmp_path: Path) -> None:
    id = stored(tmp_path)
    done = run("case", id, "--name", "odd", "--out", "odd.zip", folder=tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "")
    with zipfile.ZipFile(tmp_path / "odd.zip") as archive:
        archive.extractall(tmp_path / "cases")
    assert sorted(path.name for path in (tmp_path / "cases").iterdir()) == [
        "odd.parts.jsonl",
        "odd.sse",
    ]
    assert run("test", "cases", folder=tmp_path).code == 0
    assert run("case", id, "--name", "../odd", folder=tmp_path).code == 2


def test_a_response_without_a_recording_has_no_case(tmp_path: Path) -> None:
    done = run("case", stored(tmp_path, "none"), folder=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "store.upstream" in done.err


def test_a_golden_that_is_missing_or_different_is_exit_1(tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_bytes(CAPTURE.read_bytes())
    done = run("test", tmp_path)
    assert done.code == 1
    assert "a.parts.jsonl" in done.out
    assert run("test", tmp_path, "--update").code == 0
    assert run("test", tmp_path).code == 0
    golden = tmp_path / "a.parts.jsonl"
    golden.write_bytes(golden.read_bytes().replace(b"wind", b"wound"))
    done = run("test", tmp_path)
    assert done.code == 1
    assert "-" in done.out
    assert done.err == "0 passed, 1 failed\n"


def test_a_folder_may_name_the_dialect(tmp_path: Path) -> None:
    """An error body of a shape that two dialects share."""
    folder = tmp_path / "openai_chat"
    folder.mkdir()
    error = {"error": {"message": "no", "type": "server_error", "param": None, "code": None}}
    (folder / "shared.sse").write_text(json.dumps(error))
    assert run("test", tmp_path, "--update").code == 0
    assert run("test", tmp_path).code == 0
