// Makes elements. Text becomes a text node and nothing else, so nothing that a model writes is ever HTML.

const SVG = new Set(['svg', 'g', 'line', 'path', 'rect', 'text', 'circle']);

/** Makes an element: `h('li.dim', { title: 'x', onclick: f }, child, 'text')`. */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = SVG.has(name) ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  if (classes.length) element.setAttribute('class', classes.join(' '));
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Makes the children of an element those of the items. What did not change stays, with what is typed into it. */
export function keep(parent, items, key, make) {
  const isNew = !parent.isKept;
  parent.isKept = true;
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    let child = known.get(id);
    known.delete(id);
    const text = child?.item === item ? child.shown : JSON.stringify(item);
    if (!child || child.shown !== text) {
      const made = make(item);
      [made.dataset.key, made.shown, made.item] = [id, text, item];
      // What came or changed while it was looked at is seen to.
      if (!isNew) made.classList.add('fresh');
      if (child) {
        if (child === at) at = at.nextElementSibling;
        child.remove();
      }
      child = made;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  for (const child of known.values()) child.remove();
}

function ageOf(since) {
  const seconds = Math.max(0, Math.floor(Date.now() / 1000 - since));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86400)}d`;
}

/** How long an age stays as it is shown, in milliseconds. */
function staysFor(since) {
  const seconds = Math.max(0, Date.now() / 1000 - since);
  const unit = [60, 3600, 86400].find((limit) => seconds < limit);
  const step = { 60: 1, 3600: 60, 86400: 3600 }[unit] ?? 86400;
  return 1000 * (step - seconds % step) + 20;
}

let [due, timer] = [Infinity, 0];

/** Makes a text that says how long ago a time is; it stays right. */
export function age(since) {
  wake(staysFor(since));
  return h('time', { 'data-since': since }, ageOf(since));
}

/** Wakes when the next age is another one, and not before. */
function wake(time) {
  if (document.hidden || Date.now() + time >= due) return;
  clearTimeout(timer);
  due = Date.now() + time;
  timer = setTimeout(refreshAges, time);
}

function refreshAges() {
  due = Infinity;
  if (document.hidden) return;
  let youngest = -Infinity;
  for (const element of document.querySelectorAll('[data-since]')) {
    const [since, shown] = [Number(element.dataset.since), element.textContent];
    if (ageOf(since) !== shown) element.textContent = ageOf(since);
    youngest = Math.max(youngest, since);
  }
  // The older ones change less often, and may be shown as late.
  if (youngest > -Infinity) wake(staysFor(youngest));
}
document.addEventListener('visibilitychange', refreshAges);

/** Says a time of today by its hour and minute. */
export const minute = (at) => clock(at).replace(/^(\d\d:\d\d):\d\d$/, '$1');

/** Says on which day a time was, such as `Nov 25`. */
export const day = (at) => new Date(at * 1000).toDateString().slice(4, 10);

/** Says when something was, as `teamctl` does: of another day the date and the minute, of half a year ago the date with its year. */
export function clock(at) {
  const [time, now] = [new Date(at * 1000), new Date()];
  const [date, text] = [time.toDateString(), time.toTimeString()];
  if (date === now.toDateString()) return text.slice(0, 8);
  return Math.abs(now - time) < 180 * 86_400_000 ? `${day(at)} ${text.slice(0, 5)}` : date.slice(4);
}

function link(text, address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  // A link leaves the page only over http(s), and says where it goes.
  if (!/^https?:$/.test(url?.protocol)) return [`[${text}](${address})`];
  return [h('a', { href: url.href, rel: 'noopener noreferrer', target: '_blank' }, text), h('span.dim', {}, ` (${url.host})`)];
}

function inline(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(/`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)/g)) {
    parts.push(text.slice(at, found.index));
    at = found.index + found[0].length;
    const [, code, bold, label, address] = found;
    if (code) parts.push(h('code', {}, code));
    else if (bold) parts.push(h('strong', {}, bold));
    else parts.push(link(label, address));
  }
  return [...parts, text.slice(at)];
}

/** Makes elements of the part of Markdown that plans use. There is no HTML in between. */
export function markdown(text) {
  const out = h('div.md');
  let [list, code] = [null, null];
  for (const line of text.split('\n')) {
    const heading = /^#{1,6}\s+(.*)/.exec(line);
    const item = /^\s*(\d+\.|[-*])\s+(.*)/.exec(line);
    if (/^\s*```/.test(line)) {
      code = code ? null : h('code');
      if (code) out.append(h('pre', { tabindex: 0 }, code));
      list = null;
    } else if (code) {
      code.append(`${line}\n`);
    } else if (item) {
      const tag = /\d/.test(item[1]) ? 'ol' : 'ul';
      if (list?.localName !== tag) out.append(list = h(tag, tag === 'ol' ? { start: parseInt(item[1], 10) } : {}));
      list.append(h('li', {}, inline(item[2])));
    } else {
      list = null;
      if (heading) out.append(h('h3', {}, inline(heading[1])));
      else if (line.trim()) out.append(h('p', {}, inline(line)));
    }
  }
  return out;
}
