"""The program that runs inside a sandbox. It is sent there as one file (see ``box.package``).

Rules for this folder only: the standard library alone, nothing newer than Python 3.8, few imports
(each costs start-up time), bytes for paths (names need not be text), and nothing from outside this
folder. One thread runs the loop: sockets, commands, timers. File work that may be long is done by
a few workers, which hand their results back to the loop. What not every box needs is imported only
where it is needed, before the first command: a command may change the file of the agent.
"""
