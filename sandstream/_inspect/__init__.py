"""Reads runs for people, and gives typed rows without any layout.

Terminal, page and every other view of runs read through this room:

- ``reader.py``: one run, event by event: what happened, who did it, which call it belongs to
- ``trees.py``, ``tree_follower.py``: a run with the runs below it, stored or as they go on
- ``timeline.py``, ``traces.py``: what took how long, where, in how many attempts
- ``summaries.py``, ``run_lists.py``, ``run_search.py``: runs in lists, and which of them are wanted
- ``texts.py``, ``visible_text.py``: calls, outputs and numbers as plain text

It must not know terminals, HTML or the command line.
"""
