// A least-recently-used cache of promises by key, limited by their bytes.

export class Cache {
  constructor(most) {
    this.most = most;
    this.bytes = 0;
    this.entries = new Map();
  }

  // `make` returns a promise of `[value, bytes]`.
  get(key, make) {
    const known = this.entries.get(key);
    if (known) {
      this.entries.delete(key);
      this.entries.set(key, known);
      return known.value;
    }
    const entry = { bytes: 0 };
    entry.value = make().then(([value, bytes]) => {
      if (this.entries.get(key) === entry) this.weigh(entry, bytes);
      return value;
    });
    this.entries.set(key, entry);
    entry.value.catch(() => this.entries.delete(key));
    return entry.value;
  }

  weigh(entry, bytes) {
    entry.bytes = bytes;
    this.bytes += bytes;
    for (const [key, old] of this.entries) {
      if (this.bytes <= this.most || old === entry) return;
      this.bytes -= old.bytes;
      this.entries.delete(key);
    }
  }
}
