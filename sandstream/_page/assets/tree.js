// The rows of the waterfall as a tree: which are in sight, given what is folded and looked for.
const tree = {
  rows: data.rows,
  byId: new Map(),
  folded: new Set(),
  visible: [],
  places: new Map(),
  matches: null,
  words: [],
  onlyErrors: false,

  build() {
    const above = [];
    this.rows.forEach((row, index) => {
      row.index = index;
      row.depth = row.depth || 0;
      above.length = row.depth;
      row.parent = row.depth ? above[row.depth - 1] : undefined;
      row.below = 0;
      row.failures = 0;
      if (row.parent) row.parent.below += 1;
      above[row.depth] = row;
      this.byId.set(row.id, row);
    });
    for (let index = this.rows.length - 1; index >= 0; index--) {
      const row = this.rows[index];
      if (row.parent) row.parent.failures += row.failures + (row.error ? 1 : 0);
    }
    this.refresh();
  },

  get failed() {
    return this.rows.filter((row) => row.error).length;
  },

  search(text, onlyErrors) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.onlyErrors = onlyErrors;
    this.refresh();
  },

  isMatch(row) {
    if (this.onlyErrors && !row.error) return false;
    if (row.haystack === undefined) {
      const said = [row.label, row.name, row.op, OPERATIONS[row.op], row.agent, row.run, row.error];
      const more = [row.message, row.detail, row.model, row.id, row.status, row.decision];
      const values = Object.entries(row.attributes || {}).flat();
      row.haystack = [...said, ...more, ...values].filter(Boolean).join("\n").toLowerCase();
    }
    return this.words.every((word) => row.haystack.includes(word));
  },

  refresh() {
    this.matches = this.words.length || this.onlyErrors ? new Set() : null;
    this.visible = this.matches ? this.filtered() : this.unfolded();
    this.places = new Map(this.visible.map((index, place) => [index, place]));
  },

  unfolded() {
    const visible = [];
    let hiddenBelow = Infinity;
    for (const row of this.rows) {
      if (row.depth > hiddenBelow) continue;
      hiddenBelow = this.folded.has(row.index) ? row.depth : Infinity;
      visible.push(row.index);
    }
    return visible;
  },

  filtered() {
    const kept = new Set();
    for (const row of this.rows) {
      if (!this.isMatch(row)) continue;
      this.matches.add(row.index);
      for (let it = row; it && !kept.has(it.index); it = it.parent) kept.add(it.index);
    }
    return this.rows.filter((row) => kept.has(row.index)).map((row) => row.index);
  },

  toggle(row, isFolded = !this.folded.has(row.index)) {
    if (!row.below) return;
    if (isFolded) this.folded.add(row.index);
    else this.folded.delete(row.index);
    this.refresh();
  },

  // Everything below the top, or nothing.
  foldAll(isFolded) {
    this.folded.clear();
    if (isFolded) for (const row of this.rows) if (row.depth && row.below) this.folded.add(row.index);
    this.refresh();
  },

  unfoldTo(row) {
    for (let it = row.parent; it; it = it.parent) this.folded.delete(it.index);
    this.refresh();
  },
};
tree.build();
