// Comments on lines of a review. They stay in this tab, over a reload too, until the review is answered.

const KEY = (id) => `teamd-comments-${id}`;

/** The comments of a review of some work: of other work none count. */
export class Comments {
  constructor(id) {
    [this.id, this.work, this.all, this.told] = [id, null, [], []];
  }

  /** Says which work is shown, and takes the comments on it that were written before. */
  of(work) {
    if (this.work === work) return;
    this.work = work;
    let kept = null;
    try { kept = JSON.parse(sessionStorage.getItem(KEY(this.id))); } catch { /* of another version of the page */ }
    this.all = kept?.work === work && Array.isArray(kept.all) ? kept.all : [];
    this.tell();
  }

  /** Returns the comment on a line. */
  on(place) {
    return this.all.find((one) => ['since', 'file', 'hunk', 'line'].every((part) => one[part] === place[part]));
  }

  /** Sets the comment on a line; an empty one goes. */
  set(place, text) {
    this.all = this.all.filter((one) => one !== this.on(place));
    if (text.trim()) this.all.push({ ...place, text: text.trim() });
    this.all.sort((a, b) => a.since - b.since || a.file - b.file || a.hunk - b.hunk || a.line - b.line);
    sessionStorage.setItem(KEY(this.id), JSON.stringify({ work: this.work, all: this.all }));
    this.tell();
  }

  forget() {
    sessionStorage.removeItem(KEY(this.id));
  }

  tell() {
    for (const told of this.told) told(this.all.length);
  }
}
