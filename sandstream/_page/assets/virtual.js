// A list of rows of one height of which only those in sight exist.
class VirtualRows {
  constructor(host, height, make) {
    this.host = host;
    this.height = height;
    this.make = make;
    this.count = 0;
    this.shown = new Map();
    this.sizer = el("div", { class: "sizer", role: "rowgroup" });
    host.append(this.sizer);
    host.addEventListener("scroll", () => this.soon());
    new ResizeObserver(() => this.soon()).observe(host);
    this.isDue = false;
    this.isWhole = false;
  }

  reset(count) {
    this.count = count;
    this.sizer.style.height = `${count * this.height}px`;
    this.redraw();
  }

  redraw() {
    for (const row of this.shown.values()) row.remove();
    this.shown.clear();
    this.draw();
  }

  soon() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
    });
  }

  draw() {
    const spare = 8;
    const top = this.host.scrollTop;
    let first = Math.max(0, Math.floor(top / this.height) - spare);
    let last = Math.min(this.count, Math.ceil((top + this.host.clientHeight) / this.height) + spare);
    if (this.isWhole) [first, last] = [0, Math.min(this.count, 1000)];
    for (const [at, row] of this.shown) {
      if (at < first || at >= last) {
        row.remove();
        this.shown.delete(at);
      }
    }
    for (let at = first; at < last; at++) {
      if (this.shown.has(at)) continue;
      const row = this.make(at);
      row.style.transform = `translateY(${at * this.height}px)`;
      this.shown.set(at, row);
      this.sizer.append(row);
    }
  }

  // Scrolls no further than needed.
  reveal(at) {
    const [top, bottom] = [at * this.height, (at + 1) * this.height];
    const room = this.host.clientHeight;
    if (top < this.host.scrollTop) this.host.scrollTop = top;
    else if (bottom > this.host.scrollTop + room) this.host.scrollTop = bottom - room;
    this.draw();
  }

  center(at) {
    this.host.scrollTop = (at + 0.5) * this.height - this.host.clientHeight / 2;
    this.draw();
  }

  get page() {
    return Math.max(1, Math.floor(this.host.clientHeight / this.height) - 1);
  }

  // For printing: all rows, up to a bound.
  whole(isWhole) {
    this.isWhole = isWhole;
    this.sizer.style.height = `${(isWhole ? Math.min(this.count, 1000) : this.count) * this.height}px`;
    this.draw();
  }
}
