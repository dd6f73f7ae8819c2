"""Looking at a run: its trace as a timeline, for the terminal and for the page. Pure: no bus."""
