"""The style sheet. No selector is universal: those cost time on every new block."""

STYLE = """
Screen { background: $background; }
ToastRack { dock: top; align: right top; margin: 1 0 0 0; }
#list-title, #session-title { height: 1; padding: 0 1; background: $panel; }
#list-state, #state-line { height: 1; padding: 0 1; background: $panel; }
#list-body { height: 1fr; }
#entries { width: 1fr; height: 1fr; border: none; padding: 0; background: $background; }
#entries > .option-list--option-highlighted { background: $primary 25%; text-style: none; }
#entries:focus > .option-list--option-highlighted { background: $primary 35%; text-style: none; }
#entries > .option-list--option-disabled { color: $primary; }
#filter, #search { height: 1; border: none; padding: 0 1; background: $surface; }
#peek { width: 46%; min-width: 36; border-left: solid $panel; padding: 0 1; }
.-narrow #list-body { layout: vertical; }
.-narrow #peek { width: 100%; height: 60%; border-left: none; border-top: solid $panel; }
#peek-body { height: 1fr; }
#reply { height: 1; border: none; background: $surface; padding: 0 1; }

#transcript { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
#edge { height: 1; text-align: center; }
.block { height: auto; width: 1fr; }
.turnhead { margin: 1 0 0 0; }
.usertext { margin: 1 0; background: $surface; padding: 0 1; }
.agenttext { height: auto; margin: 1 0 0 0; }
.callstep { text-wrap: nowrap; text-overflow: ellipsis; }
.callstep.-unfolded { text-wrap: wrap; }
.note { margin: 0; }
.agenttext Vertical { height: auto; }
.agenttext Markdown { margin: 0; padding: 0; background: transparent; height: auto; }
.agenttext MarkdownH1 { content-align: left middle; margin: 0 0 1 0; padding: 0; }
.agenttext MarkdownH2 { margin: 0 0 1 0; padding: 0; }
.agenttext.-live { border-left: thick $secondary; padding-left: 1; }
.block.-selected { background: $primary 20%; }
#behind { height: 1; text-align: center; background: $surface; }
#questions { height: auto; max-height: 50%; border: round $warning; padding: 0 1; margin: 0 1; }
#questions:focus { border: heavy $warning; background: $surface; }
#waiting { height: auto; padding: 0 2; }
#completion {
    height: auto;
    max-height: 10;
    border: none;
    padding: 0 1;
    margin: 0 1;
    background: $surface;
}
#input-box { height: auto; max-height: 12; padding: 0 1; }
#prompt {
    height: auto;
    min-height: 3;
    max-height: 10;
    border: round $primary 60%;
    background: $background;
}
#prompt:focus { border: round $primary; }
ModalScreen { align: center middle; background: $background 60%; }
.dialog {
    width: 72;
    max-width: 95%;
    height: auto;
    max-height: 90%;
    padding: 1 2;
    background: $surface;
    border: round $primary;
}
.dialog OptionList {
    height: auto;
    max-height: 12;
    border: none;
    background: $surface;
    margin: 1 0;
}
.dialog .note { height: auto; max-height: 10; margin: 1 0; }
.dialog Input { margin: 1 0 0 0; }
.sheet {
    width: 100%;
    max-width: 120;
    height: auto;
    max-height: 90%;
    padding: 0 1;
    background: $surface;
    border: round $primary;
}
.sheet-title { height: 1; }
.sheet OptionList {
    height: auto;
    max-height: 60vh;
    border: none;
    background: $surface;
    text-wrap: nowrap;
    text-overflow: ellipsis;
}
#sheet-body { height: auto; }
.sheet #inbox-list { max-height: 30vh; }
#inbox-question { height: auto; max-height: 40vh; border-top: solid $panel; }
"""
