// The work of a task, or of a teammate: its files and each changed line, in one column or side by side, with comments on lines. The server
// sends pieces of rows; a piece becomes elements when it is near the screen, or when the browser has nothing else to do.

import { h } from './element.js';
import { facts } from './parts.js';
import { ask } from './server.js';

const SIDES = 'teamd-sides';
/** How long elements are made at a time, in milliseconds. */
const SLICE = 6;
/** The height of a row that is not made yet, in pixels. */
const ROW = 20;
/** How far below and above the screen pieces are made, in pixels. */
const NEAR = 1200;
/** How many pieces a block has: what a browser does for each frame, it does for the blocks, and for the pieces of those in sight. */
const BLOCK = 25;
const KIND = ['same', 'ins', 'del'];
const SIGN = [' ', '+', '-'];

/** What is to be made, the nearest first, and what makes it. */
class Builder {
  constructor() {
    [this.near, this.rest, this.planned] = [new Set(), new Set(), new Set()];
    const near = { rootMargin: `${NEAR}px 0px` };
    this.pieces = new IntersectionObserver((seen) => {
      for (const { isIntersecting, target } of seen) this.near[isIntersecting ? 'add' : 'delete'](target.piece);
      this.wake();
    }, near);
    this.blocks = new IntersectionObserver((seen) => {
      for (const { isIntersecting, target } of seen) for (const piece of target.pieces) this.watch(piece, isIntersecting);
    }, near);
  }

  watch(piece, isNear) {
    if (isNear) this.pieces.observe(piece.element);
    else this.pieces.unobserve(piece.element);
    if (!isNear) this.near.delete(piece);
  }

  /** What is in sight does not wait for the browser to have nothing else to do. */
  wake() {
    this.plan('near', requestAnimationFrame);
    this.plan('rest', globalThis.requestIdleCallback ?? setTimeout);
  }

  plan(which, later) {
    if (this.planned.has(which) || !this.hasSome(this[which])) return;
    this.planned.add(which);
    later(() => {
      this.planned.delete(which);
      this.make(this[which]);
      this.plan(which, later);
    });
  }

  hasSome(pieces) {
    for (const piece of pieces) if (piece.isShown()) return true;
    return false;
  }

  make(pieces) {
    const end = performance.now() + SLICE;
    for (const piece of pieces) {
      if (!piece.text || !piece.isShown()) continue;
      piece.making ??= piece.rows();
      do {
        if (!piece.making.next().done) continue;
        this.done(piece);
        break;
      } while (performance.now() < end);
      if (performance.now() >= end) return;
    }
  }

  done(piece) {
    piece.text = piece.making = null;
    this.rest.delete(piece);
  }
}

const texts = (all) => all.map((text) => (Array.isArray(text) ? h(`span.k${text[0]}`, {}, text[1]) : text));

/** Rows of a file that are sent together. */
class Piece {
  constructor(file, number, count) {
    [this.file, this.side, this.count] = [file, file.side, count];
    this.element = h('div.rows-of', { 'aria-busy': 'true' });
    this.element.piece = this;
    this.element.style.setProperty('--rows', `${count * ROW}px`);
    this.text = null;
  }

  isShown() {
    return Boolean(this.text) && !this.file.body.hidden && this.side.element.isConnected && !this.side.element.hidden;
  }

  /** Begins anew, in the other layout. */
  again() {
    this.element.replaceChildren();
    this.element.setAttribute('aria-busy', 'true');
    [this.text, this.making] = [this.kept, null];
  }

  place(hunk, line) {
    return { since: this.side.isSince, file: this.file.number, hunk, line };
  }

  * rows() {
    const { isSplit } = this.side.view;
    const [[from, first], all] = JSON.parse(this.kept);
    let [hunk, line, run] = [from, first, []];
    this.element.replaceChildren();
    for (const row of all) {
      if (typeof row === 'string') {
        hunk += 1;
        line = 0;
        if (run.length) yield* this.pairs(run);
        run = [];
        this.element.append(h('div.hunk', {}, row));
      } else {
        if (row[4] !== 1) line += 1;
        const one = { row, place: this.place(hunk, line - 1) };
        if (!isSplit) this.put(h(`div.line.${KIND[row[0]]}`, {}, this.number(one, row[1], row[2]), this.code(row)), one);
        else if (row[0]) run.push(one);
        else {
          if (run.length) yield* this.pairs(run);
          run = [];
          this.put(h('div.line.two', {}, this.half(one, 1), this.half(one, 2)), one);
        }
      }
      yield;
    }
    if (run.length) yield* this.pairs(run);
    this.element.removeAttribute('aria-busy');
  }

  /** Puts lines that went beside those that came. */
  * pairs(run) {
    const [went, came] = [2, 1].map((kind) => run.filter(({ row }) => row[0] === kind));
    for (let at = 0; at < Math.max(went.length, came.length); at += 1) {
      const both = [went[at], came[at]];
      this.put(h('div.line.two', {}, this.half(both[0], 1), this.half(both[1], 2)), ...both.filter(Boolean));
      yield;
    }
  }

  half(one, side) {
    if (!one) return [h('span.none')];
    const { row } = one;
    return [h(`div.half.${KIND[row[0]]}`, {}, this.number(one, row[side]), this.code(row))];
  }

  /** The numbers of a line and its sign; where comments are possible, they open the form of one. */
  number({ row, place }, ...numbers) {
    const isMore = row[4] === 1;
    const shown = numbers.map((number) => String(isMore ? '' : number ?? '').padStart(this.file.columns));
    const text = `${shown.join('')} ${isMore ? '↳' : SIGN[row[0]]} `;
    const { comments } = this.side.view;
    if (!comments || isMore) return h('span.n', {}, text);
    const button = h('button.n', { type: 'button', tabindex: this.file.hasFirst ? -1 : 0, 'data-at': `${place.hunk} ${place.line}` }, text);
    this.file.hasFirst = true;
    return button;
  }

  code([, , , all, mark]) {
    return h('span.code', {}, texts(all), mark === 2 && h('span.unended', { title: 'the file ends here, without an end of the line' }, ' ⏎̸'));
  }

  put(element, ...lines) {
    this.element.append(element);
    const { comments } = this.side.view;
    if (!comments) return;
    const seen = [];
    for (const { place, row } of lines) {
      if (row[4] === 1 || seen.includes(place.line)) continue;
      seen.push(place.line);
      if (comments.on(place)) this.element.append(this.side.view.said(place, row[0]));
    }
  }
}

/** A file: its heading, which folds it, and its rows. */
class File {
  constructor(side, number, { title, letter, added, removed, remark, generated, digits, rows }) {
    [this.side, this.number, this.title] = [side, number, title];
    this.body = h('div.body', { hidden: generated });
    // A number has a blank before it.
    this.columns = Math.max(digits, 3) + 1;
    this.body.style.setProperty('--number', `${this.columns}ch`);
    const folded = h('span.dim', { hidden: !generated }, 'folded: show it');
    this.head = h('button.file-head', { type: 'button', 'aria-expanded': String(!generated), onclick: () => this.fold() }, h(`b.letter.${letter}`, {}, letter), h('code', {}, title), remark && h('span.dim', {}, remark), h('span.counts', {}, counts(added, removed)), folded);
    this.fold = () => {
      this.body.hidden = !this.body.hidden;
      folded.hidden = !this.body.hidden;
      this.head.setAttribute('aria-expanded', String(!this.body.hidden));
      side.view.builder.wake();
    };
    this.pieces = rows.map((count, at) => new Piece(this, at, count));
    for (let at = 0; at < rows.length; at += BLOCK) this.body.append(this.block(this.pieces.slice(at, at + BLOCK)));
    if (!rows.length) this.body.append(h('p.dim.none', {}, remark.includes('binary') ? 'git shows no lines of it' : 'no line of it has changed'));
    this.element = h('article.change', { 'aria-label': title }, this.head, this.body);
  }

  block(pieces) {
    const element = h('div.block', {}, pieces.map((piece) => piece.element));
    element.style.setProperty('--rows', `${pieces.reduce((sum, piece) => sum + piece.count, 0) * ROW}px`);
    element.pieces = pieces;
    this.side.view.builder.blocks.observe(element);
    return element;
  }

  go() {
    if (this.body.hidden) this.fold();
    this.head.focus({ preventScroll: true });
    stay(this.element);
  }
}

/** Scrolls to an element, and stays there while rows above it get their true height, until the person scrolls. */
function stay(element) {
  let frames = 40;
  const leave = () => { frames = 0; };
  for (const kind of ['wheel', 'touchstart', 'pointerdown', 'keydown']) addEventListener(kind, leave, { once: true, passive: true });
  const step = () => {
    if (frames <= 0) return;
    element.scrollIntoView({ block: 'start' });
    frames -= 1;
    requestAnimationFrame(step);
  };
  step();
}

const counts = (added, removed) => [h('span.work', {}, `+${added}`), ' ', h('span.bad', {}, `−${removed}`)];

/** All of the work, or what is new of it since the last submission. */
class Side {
  constructor(view, isSince) {
    [this.view, this.isSince, this.files] = [view, isSince, []];
    this.element = h('div.side', { 'aria-busy': 'true' }, h('p.dim', {}, 'reading the changes…'));
  }

  /** Reads it; returns its head once all has come. */
  async read() {
    const answer = await ask(`diff?of=${this.view.of}${this.isSince ? '&since=1' : ''}`);
    if (!answer.ok) throw new Error((await answer.json()).error);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let [text, pieces] = ['', null];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (text + value).split('\n');
      text = lines.pop();
      for (const line of lines) {
        if (pieces) this.take(pieces.shift(), line);
        else pieces = this.begin(JSON.parse(line));
      }
      this.view.builder.wake();
      if (!this.view.element.isConnected && this.view.wasShown) return void reader.cancel();
    }
    if (!pieces || pieces.length) throw new Error('the diff has not come whole: load the page again');
    this.element.removeAttribute('aria-busy');
  }

  begin(head) {
    if (head.error) throw new Error(head.error);
    this.view.begin(head, this.isSince);
    this.files = head.files.map((file, number) => new File(this, number, file));
    const list = this.files.map((file, at) => {
      const { letter, added, removed, remark } = head.files[at];
      return h('li', {}, h(`b.letter.${letter}`, {}, letter), h('a', { href: location.hash, 'data-item': '', onclick: (event) => { event.preventDefault(); file.go(); } }, file.title), h('span.dim', {}, remark), h('span.counts', {}, counts(added, removed)));
    });
    const notes = head.notes.map((note) => h('p.bad', {}, note));
    this.element.replaceChildren(...notes, list.length > 1 ? h('ul.files', { 'aria-label': 'Files' }, list) : '', ...this.files.map((file) => file.element));
    return this.files.flatMap((file) => file.pieces);
  }

  take(piece, line) {
    piece.text = piece.kept = line;
    this.view.builder.rest.add(piece);
  }
}

/** The number of a line: of two, the new one. */
const nameOf = (number) => /\d+(?=\D*$)/.exec(number.textContent)[0];
const rowOf = (number) => number.closest('.line');
const kindOf = (number) => KIND.findIndex((kind) => number.parentElement.classList.contains(kind));
/** The place of a line. It is made when it is asked for: 20,000 of them would be kept for one. */
const placeOf = (number) => number.closest('.rows-of').piece.place(...number.dataset.at.split(' ').map(Number));

/** The first or last row of the piece beside one, which may be in another block. */
function rowBeside(piece, step, end) {
  const beside = piece[step] ?? piece.parentElement[step]?.[end];
  return beside?.[end];
}

class View {
  constructor(of, { comments, hasFacts }) {
    Object.assign(this, { of, comments, hasFacts, builder: new Builder(), isSplit: sessionStorage.getItem(SIDES) === 'two' && innerWidth > 800 });
    [this.facts, this.tools, this.now] = [h('div'), h('div.tools'), h('span.aside', { role: 'status' })];
    this.all = new Side(this, false);
    this.since = null;
    this.element = h('section.changes', { 'aria-label': 'Changes', onclick: (event) => this.click(event), onkeydown: (event) => this.key(event), onfocusin: (event) => this.focus(event) }, this.facts, this.tools, this.now, this.all.element);
  }

  /** Shows what stands above the changes. */
  begin(head, isSince) {
    this.wasShown = this.element.isConnected;
    if (isSince) return void (this.summaryOfSince = head.summary, this.drawTools());
    [this.head, this.summary] = [head, head.summary];
    this.comments?.of(head.work);
    if (this.hasFacts && head.facts) {
      const fold = (title, text, isOpen) => text && h('details', { open: isOpen }, h('summary', {}, title), h('pre', { tabindex: 0 }, text));
      this.facts.replaceChildren(facts(head.facts), ...[fold('to do', head.to_do, false), fold(head.which, head.output, true)].filter(Boolean));
    }
    this.drawTools();
  }

  drawTools() {
    const toggle = (text, isOn, then) => h('button', { type: 'button', 'aria-pressed': String(isOn), onclick: then }, text);
    const isSince = Boolean(this.since && !this.since.element.hidden);
    this.tools.replaceChildren(h('strong', {}, isSince ? `${this.summaryOfSince ?? '…'} since the last submission` : this.summary),
      h('span.switches', {}, this.head.since && h('span.pair', {}, toggle('All', !isSince, () => this.turn(false)), toggle('New since the last submission', isSince, () => this.turn(true))),
        this.all.files.length || this.head.files.length ? h('span.pair.sides', {}, toggle('Unified', !this.isSplit, () => this.split(false)), toggle('Side by side', this.isSplit, () => this.split(true))) : ''));
  }

  split(isSplit) {
    if (this.isSplit === isSplit) return;
    this.isSplit = isSplit;
    sessionStorage.setItem(SIDES, isSplit ? 'two' : 'one');
    for (const piece of [this.all, this.since].flatMap((side) => side?.files ?? []).flatMap((file) => { file.hasFirst = false; return file.pieces; })) {
      if (!piece.kept) continue;
      piece.again();
      this.builder.rest.add(piece);
    }
    this.drawTools();
    this.builder.wake();
  }

  turn(isSince) {
    if (isSince && !this.since) {
      this.since = new Side(this, true);
      this.element.append(this.since.element);
      this.since.read().catch((error) => this.since.element.replaceChildren(h('p.bad.pre', {}, error.message)));
    }
    if (this.since) this.since.element.hidden = !isSince;
    this.all.element.hidden = isSince;
    this.drawTools();
    this.builder.wake();
  }

  click(event) {
    const number = event.target.closest?.('button.n');
    if (number) this.write(number);
  }

  /** Only now is the text of a line part of the name of its number: it would be there twice for each line. */
  focus(event) {
    const number = event.target.closest?.('button.n');
    if (!number) return;
    const code = number.nextElementSibling;
    const word = ['line', 'added', 'removed'][kindOf(number)];
    number.setAttribute('aria-label', `${word} ${nameOf(number)}: ${code.textContent.slice(0, 400)}. Comment`);
  }

  key(event) {
    const number = event.target.closest?.('button.n');
    if (!number || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (event.key === 'c') this.write(number);
    else if (by) this.move(number, by);
    else return;
    event.preventDefault();
  }

  move(number, by) {
    const step = by > 0 ? 'nextElementSibling' : 'previousElementSibling';
    let row = rowOf(number);
    const isSecond = row.querySelectorAll('button.n')[1] === number;
    let next = null;
    while (row && !next) {
      row = row[step] ?? rowBeside(row.parentElement, step, by > 0 ? 'firstElementChild' : 'lastElementChild');
      const all = row?.querySelectorAll('button.n') ?? [];
      next = all[isSecond ? all.length - 1 : 0];
    }
    next?.focus();
    next?.scrollIntoView({ block: 'nearest' });
  }

  /** Side by side, a comment stands under the half that has its line: what is there on both sides is commented on as it is now. */
  half(kind) {
    if (!this.isSplit) return '';
    return KIND[kind] === 'del' ? '.first' : '.second';
  }

  /** Shows a comment under its line. */
  said(place, kind) {
    const one = this.comments.on(place);
    const element = h(`div.remark${this.half(kind)}`, {}, h('p.pre', {}, one.text), h('div.acts', {}, h('button', { type: 'button', onclick: () => this.write(number()) }, 'Edit'),
      h('button.no', { type: 'button', onclick: () => { const back = number(); this.comments.set(place, ''); element.remove(); this.now.textContent = 'the comment is removed'; back?.focus(); } }, 'Remove')));
    const number = () => this.numberOf(element, place);
    element.place = place;
    return element;
  }

  numberOf(below, place) {
    let row = below.previousElementSibling;
    while (row && !row.classList.contains('line')) row = row.previousElementSibling;
    return [...row?.querySelectorAll('button.n') ?? []].findLast((number) => placeOf(number).line === place.line);
  }

  /** Opens the form of a comment under a line. */
  write(number) {
    const [place, row] = [placeOf(number), rowOf(number)];
    const is = (element) => element?.place && element.place.line === place.line && element.place.hunk === place.hunk;
    let at = row;
    while (at.nextElementSibling?.matches('.remark') && !is(at.nextElementSibling)) at = at.nextElementSibling;
    const before = is(at.nextElementSibling) ? at.nextElementSibling : null;
    if (before?.matches('form')) return void before.elements.text.focus();
    const name = nameOf(number);
    const text = h('textarea', { name: 'text', rows: 2, maxlength: 8000, placeholder: 'what is to change', 'aria-label': `Comment on line ${name}` });
    text.value = before ? this.comments.on(place).text : '';
    const close = (said) => {
      const kept = this.comments.on(place);
      form.replaceWith(...kept ? [this.said(place, kindOf(number))] : []);
      this.now.textContent = said;
      number.focus();
    };
    const keep = () => {
      this.comments.set(place, text.value);
      close(text.value.trim() ? `the comment on line ${name} is kept until you answer` : 'the comment is removed');
    };
    const form = h(`form.remark${this.half(kindOf(number))}`, { onsubmit: (event) => { event.preventDefault(); keep(); } }, text, h('div.acts', {}, h('button.yes', {}, 'Keep the comment'), h('button', { type: 'button', onclick: () => close('') }, 'Cancel'), h('span.dim', {}, 'It is sent with your answer.')));
    form.place = place;
    text.addEventListener('keydown', (key) => {
      if (key.key === 'Escape') close('');
      else if (key.key === 'Enter' && (key.ctrlKey || key.metaKey)) keep();
      else return;
      key.preventDefault();
      key.stopPropagation();
    });
    if (before) before.replaceWith(form);
    else at.after(form);
    form.scrollIntoView({ block: 'nearest' });
    text.focus();
  }
}

/**
 * Shows what the submission of a task, or a teammate, has changed. With `comments`, lines take some. `ready` is fulfilled once all has come,
 * and never where it cannot be read; `whole` is the part whose end is the end of the work.
 */
export function changes(of, options = {}) {
  const view = new View(of, options);
  const box = view.element;
  box.whole = view.all.element;
  box.ready = new Promise((done) => {
    view.all.read().then(done, (error) => {
      view.all.element.removeAttribute('aria-busy');
      view.all.element.replaceChildren(h('p.bad.pre', {}, error.message));
    });
  });
  return box;
}
