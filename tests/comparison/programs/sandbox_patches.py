"""Sandbox agents that change files with `apply_patch` and look at images."""

import base64
import json
from typing import Any

from comparison.program import Probe
from comparison.sandboxes import (
    box,
    files,
    patch,
    patches,
    run,
    run_and_look,
    sandbox_program,
    session_with,
    worker,
    workspace,
)

POEM = "one\ntwo\nthree\nfour\nfive\nsix\n"


async def with_poem(sdk: Any, probe: Probe, **more: str) -> Any:
    return await run_and_look(sdk, probe, entries=files(sdk, poem_dot_txt=POEM, **more))


@sandbox_program(patches(patch("*** Add File: notes/a.md", "+# A", "+", "+text")))
async def sandbox_patch_adds(sdk: Any, probe: Probe) -> Any:
    return await run_and_look(sdk, probe)


@sandbox_program(
    patches(patch("*** Update File: poem.txt", "@@", " two", "-three", "+THREE", " four"))
)
async def sandbox_patch_updates(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe)


@sandbox_program(patches(patch("*** Delete File: poem.txt")))
async def sandbox_patch_deletes(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe)


@sandbox_program(
    patches(
        patch(
            "*** Update File: poem.txt", "*** Move to: verse/new.txt", "@@", "-one", "+ONE", " two"
        )
    )
)
async def sandbox_patch_moves(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe)


@sandbox_program(
    patches(
        patch(
            "*** Add File: new.txt",
            "+new",
            "*** Update File: poem.txt",
            "@@",
            "-six",
            "+6",
            "*** Delete File: old.txt",
        )
    )
)
async def sandbox_patch_of_several_files(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe, old_dot_txt="old")


@sandbox_program(
    patches(
        patch("*** Add File: new.txt", "+new", "*** Update File: poem.txt", "@@", "-seven", "+7")
    )
)
async def sandbox_patch_fails_half_way(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe)


CODE = (
    "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"
)


@sandbox_program(
    patches(
        patch(
            "*** Update File: code.py",
            "@@ class B:",
            "@@     def f(self):",
            "-        return 1",
            "+        return 2",
        ),
        patch("*** Update File: code.py", "@@ class C:", "-        return 1", "+        return 3"),
    )
)
async def sandbox_patch_with_anchors(sdk: Any, probe: Probe) -> Any:
    return await run_and_look(sdk, probe, entries=files(sdk, code_dot_py=CODE))


@sandbox_program(
    patches(
        patch("*** Update File: poem.txt", "@@", " five", "-six", "+SIX", "*** End of File"),
        patch("*** Update File: poem.txt", "@@", "-one", "+ONE", "@@", "-four", "+FOUR", " five"),
        patch("*** Update File: poem.txt", "@@", "+zero", " ONE"),
        patch("*** Update File: poem.txt", "@@", " SIX", "+seven"),
    )
)
async def sandbox_patch_places(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe)


@sandbox_program(
    patches(
        patch("*** Update File: loose.txt", "@@", "-a", "+A"),
        patch("*** Update File: loose.txt", "@@", "-b", "+B"),
        patch("*** Update File: crlf.txt", "@@", " x", "-y", "+Y"),
        patch("*** Update File: bare.txt", "@@", "-end", "+END"),
    )
)
async def sandbox_patch_of_untidy_files(sdk: Any, probe: Probe) -> Any:
    texts = {
        "loose_dot_txt": "a   \n\t b\nc\n",
        "crlf_dot_txt": "x\r\ny\r\n",
        "bare_dot_txt": "end",
    }
    return await run_and_look(sdk, probe, entries=files(sdk, **texts))


@sandbox_program(
    patches(
        patch("*** Update File: missing.txt", "@@", "-a", "+b"),
        patch("*** Delete File: missing.txt"),
        patch("*** Add File: poem.txt", "+again"),
        patch("*** Add File: ../out.txt", "+x"),
        patch("*** Add File: /etc/out.txt", "+x"),
        patch("*** Update File: poem.txt", "@@", "-not in it", "+x"),
        patch("*** Update File: folder", "@@", "-a", "+b"),
        patch("*** Delete File: folder"),
        patch("*** Update File: poem.txt", "*** Move to: ../out.txt", "@@", "-one", "+1"),
    )
)
async def sandbox_patch_failures(sdk: Any, probe: Probe) -> Any:
    entries = {**files(sdk, poem_dot_txt=POEM), "folder": box(sdk).Dir()}
    return await run_and_look(sdk, probe, entries=entries)


@sandbox_program(
    patches(
        "",
        "no patch at all",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch\n*** Add File: a.txt\n+x",
        patch("*** Add File: a.txt", "x"),
        patch("*** Rename File: a.txt"),
        patch("*** Update File: poem.txt"),
        patch("*** Add File: ", "+x"),
        patch("*** Update File: poem.txt", "@@", "garbage"),
    )
)
async def sandbox_patch_that_is_none(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe)


@sandbox_program(
    patches(
        json.dumps({"operation": {"type": "create_file", "path": "a.txt", "diff": "+a\n+b"}}),
        json.dumps(
            {
                "operations": [
                    {"type": "update_file", "path": "a.txt", "diff": "@@\n a\n-b\n+B"},
                    {"type": "delete_file", "path": "poem.txt"},
                ]
            }
        ),
        json.dumps({"operations": []}),
        json.dumps({"operation": {"type": "paint_file", "path": "a.txt"}}),
    )
)
async def sandbox_patch_as_json(sdk: Any, probe: Probe) -> Any:
    return await with_poem(sdk, probe)


@sandbox_program(
    patches("\n" + patch("*** Add File: a.txt", "+x") + "\n\n", patch("*** Add File: empty.txt"))
)
async def sandbox_patch_with_space_around(sdk: Any, probe: Probe) -> Any:
    return await run_and_look(sdk, probe)


@sandbox_program(patches(patch("*** Update File: run.sh", "@@", "-echo 1", "+echo 2")))
async def sandbox_patch_keeps_the_mode(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    script = b.File(content=b"#!/bin/sh\necho 1\n", permissions=b.Permissions(owner=7, group=5))
    return await run_and_look(sdk, probe, entries={"run.sh": script})


@sandbox_program(patches(patch("*** Update File: link.txt", "@@", "-one", "+ONE")))
async def sandbox_patch_of_a_link(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk, entries=files(sdk, poem_dot_txt=POEM)) as session:
        await session.exec("ln -s poem.txt link.txt")
        result = await run(sdk, probe, session=session)
        probe.note(await workspace(session))
    return result


@sandbox_program(
    patches(
        patch("*** Update File: escape/x.txt", "@@", "-a", "+b"),
        patch("*** Add File: escape/new.txt", "+x"),
    )
)
async def sandbox_patch_through_a_link_out(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        await session.exec("ln -s /usr escape")
        result = await run(sdk, probe, session=session)
        probe.note(await workspace(session))
    return result


@sandbox_program(patches(patch("*** Update File: binary.dat", "@@", "-a", "+b")))
async def sandbox_patch_of_bytes(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        await session.exec("printf 'a\\377\\376' > binary.dat")
        return await run(sdk, probe, session=session)


@sandbox_program(
    lambda m: [
        m.tool_calls(
            m.custom_tool_call("apply_patch", patch("*** Add File: a.txt", "+1")),
            m.custom_tool_call("apply_patch", patch("*** Update File: a.txt", "@@", "-1", "+2")),
        ),
        m.text("Done."),
    ]
)
async def sandbox_patches_one_after_the_other(sdk: Any, probe: Probe) -> Any:
    return await run_and_look(sdk, probe)


@sandbox_program(patches(patch("*** Add File: a.txt", "+1")))
async def sandbox_patch_streamed(sdk: Any, probe: Probe) -> Any:
    client = box(sdk).UnixLocalSandboxClient()
    settings = sdk.RunConfig(sandbox=box(sdk).SandboxRunConfig(client=client))
    return sdk.Runner.run_streamed(worker(sdk), probe.input, run_config=settings)


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def looks(*paths: Any) -> Any:
    return lambda m: [*(m.tool_call("view_image", {"path": one}) for one in paths), m.text("Done.")]


@sandbox_program(looks("pic.png", "img/deep.gif", "drawing.svg"))
async def sandbox_images(sdk: Any, probe: Probe) -> Any:
    (probe.folder / "pic.png").write_bytes(PNG)
    (probe.folder / "deep.gif").write_bytes(b"GIF89a rest")
    b = box(sdk)
    entries = {
        "pic.png": b.LocalFile(src=probe.folder / "pic.png"),
        "img": b.Dir(children={"deep.gif": b.LocalFile(src=probe.folder / "deep.gif")}),
        **files(sdk, drawing_dot_svg="<svg xmlns='http://www.w3.org/2000/svg'/>"),
    }
    return await run(sdk, probe, manifest=b.Manifest(entries=entries))


@sandbox_program(looks("none.png", "text.png", "folder", "../pic.png", "/etc/passwd", "", 5))
async def sandbox_images_that_are_none(sdk: Any, probe: Probe) -> Any:
    entries = {**files(sdk, text_dot_png="only text"), "folder": box(sdk).Dir()}
    return await run(sdk, probe, manifest=box(sdk).Manifest(entries=entries))


@sandbox_program(looks("big.png"))
async def sandbox_image_that_is_too_big(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        await session.exec("head -c 11000000 /dev/zero > big.png")
        return await run(sdk, probe, session=session)


@sandbox_program(looks("pic.png"))
async def sandbox_image_ends_the_run(sdk: Any, probe: Probe) -> Any:
    (probe.folder / "pic.png").write_bytes(PNG)
    b = box(sdk)
    manifest = b.Manifest(entries={"pic.png": b.LocalFile(src=probe.folder / "pic.png")})
    agent = worker(sdk, tool_use_behavior="stop_on_first_tool")
    return await run(sdk, probe, agent, manifest=manifest)
