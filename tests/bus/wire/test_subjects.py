"""The subject grammar: built, taken apart, and closed to hostile names."""

from __future__ import annotations

import random
import re

import pytest
from sandstream_bus.errors import InvalidSubject
from sandstream_bus.wire.subjects import (
    RunId,
    RunSubject,
    Subjects,
    check_session,
    check_token,
    conversation_of_user,
    run_id_of_key,
    run_of_user,
    sandbox_of,
    session_conversation,
    session_of_run,
    session_run,
    session_sandbox,
    text_of,
    token_of,
)

HOSTILE = [
    "*",
    ">",
    "a.b",
    "a b",
    "a\r\nPUB x 0\r\n\r\n",
    "\0",
    "=",
    "=41",
    "==3D",
    "агент",
    "naïve",
    "🤖",
    "../../etc",
    "$JS.API.>",
    "tab\there",
]


def test_every_subject_of_the_grammar() -> None:
    s = Subjects("acme")
    assert s.task("triage") == "acme.task.triage"
    assert s.agent("my agent") == "acme.agent.my=20agent"
    assert s.run_all("r1") == "acme.run.r1.>"
    assert s.start("r1", "main") == "acme.run.r1.start.main"
    assert s.turn("r1", "main") == "acme.run.r1.turn.main"
    assert s.model("r1") == "acme.run.r1.model"
    assert s.call("r1", "py") == "acme.run.r1.call.py"
    assert s.started("r1", "t1-0") == "acme.run.r1.started.t1-0"
    assert s.result("r1", "main") == "acme.run.r1.result.main"
    assert s.cancel("r1") == "acme.run.r1.cancel"
    assert s.done("r1") == "acme.run.r1.done"
    assert s.timer("r1", "model") == "acme.timer.r1.model"
    assert s.parked("harness-main", 7) == "acme.parked.harness-main.7"
    assert s.live_all("r1") == "acme.live.r1.>"
    assert s.live("done") == "acme.live.*.done"
    assert s.delta("r1") == "acme.live.r1.delta"


def test_a_prefix_may_have_dots_and_stream_names_have_none() -> None:
    subjects = Subjects("acme.prod")
    assert subjects.stream_stem == "ACME-PROD"
    assert subjects.parse_run(subjects.call("r1", "py")) == RunSubject(RunId("r1"), "call", "py")


@pytest.mark.parametrize("prefix", ["", "a..b", ".a", "a.", "a.*", "a.>", "a b", "$JS.API"])
def test_a_bad_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSubject, match="prefix"):
        Subjects(prefix)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_one_harmless_token_and_come_back(name: str) -> None:
    token = token_of(name)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert text_of(token) == name
    assert Subjects().parse_task(Subjects().task(name)) == ("shared", name)
    assert Subjects().parse_task(Subjects().ask_task("alice", name)) == ("alice", name)


def test_escaping_is_injective_for_random_names() -> None:
    rng = random.Random(7)
    alphabet = "ab=3D.*> é語🤖\n_-"
    names = {"".join(rng.choices(alphabet, k=rng.randint(1, 9))) for _ in range(3000)}
    assert len({token_of(name) for name in names}) == len(names)
    assert all(text_of(token_of(name)) == name for name in names)


@pytest.mark.parametrize("name", ["", "x" * 129, "🤖" * 11, "\ud800"])
def test_names_that_cannot_be_a_token_are_refused_by_a_typed_error(name: str) -> None:
    with pytest.raises(InvalidSubject):
        token_of(name)


@pytest.mark.parametrize("token", ["агент", "=ZZ", "=F", "=FF", "x" * 500, "Ā=41"])
def test_a_foreign_task_subject_is_read_without_an_error(token: str) -> None:
    assert isinstance(Subjects().parse_task(f"sandstream.task.{token}").agent, str)


@pytest.mark.parametrize("value", ["", "a.b", "*", ">", "a b", "é", "x" * 129, "a\n"])
def test_check_token_names_what_is_wrong(value: str) -> None:
    with pytest.raises(InvalidSubject, match="the pool"):
        check_token(value, "the pool")


def test_check_token_returns_good_tokens() -> None:
    assert check_token("x" * 128, "the id") == "x" * 128
    assert check_token("a_B-9=", "the id") == "a_B-9="


def test_run_id_of_key() -> None:
    assert run_id_of_key("order-4711") == "order-4711"
    strange = run_id_of_key("order 4711/é")
    assert strange == run_id_of_key("order 4711/é") != run_id_of_key("order 4712/é")
    for key in ("order 4711/é", "a.b", "x" * 65, "", ">"):
        check_token(run_id_of_key(key), "the run")


def test_parse_run_takes_run_and_live_subjects_apart() -> None:
    subjects = Subjects()
    assert subjects.parse_run("sandstream.run.r.model") == RunSubject(RunId("r"), "model", "")
    assert subjects.parse_run("sandstream.live.r.result.main") == RunSubject(
        RunId("r"), "result", "main"
    )


@pytest.mark.parametrize(
    "subject", ["sandstream.task.x", "sandstream.run.r", "other.run.r.model", "", "sandstream"]
)
def test_parse_run_refuses_other_subjects(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        Subjects().parse_run(subject)


def test_no_task_can_take_the_names_of_a_session() -> None:
    for session in ("blog", "alice=blog", "alice=" + "x" * 64):
        run = session_run(check_session(session), 12)
        assert session_of_run(run) == (session, 12)
        check_token(f"{run}-t12-close10-abcdef01", "the operation")
        name = run.removeprefix("alice=")
        assert run_id_of_key(name) != name
        for user in ("shared", "alice"):
            assert run_of_user(user, run) != run
            assert conversation_of_user("alice", f"x/{session}") != session_conversation(session)
        with pytest.raises(InvalidSubject):
            conversation_of_user("shared", session_conversation(session))
        assert sandbox_of("blog", "coder") != session_sandbox(session, 1)
    assert session_of_run("blog_t1-0") is None
    assert session_of_run("blog") is None
