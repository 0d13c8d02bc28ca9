// The timeline: what each teammate and each task did when, on one axis.

import { open } from './dialog.js';
import { clock, day, h } from './element.js';

const [ROW, HEAD, SHORTEST, LONGEST, DAY] = [26, 26, 10, 30 * 86400, 86400];
/** Distances between two times on the axis, in seconds. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
/** What is drawn, with the height of its bar; what stands later is drawn above what stands before. */
const BARS = { pending: 2, idle: 4, starting: 8, working: 14, checking: 10, awaiting: 14, leaving: 6 };
const LEGEND = { starting: 'starting', idle: 'idle', working: 'working', awaiting: 'waits for an answer', leaving: 'shutting down', checking: 'check runs' };
const GOOD = new Set(['shutdown', 'completed']);

/** All that a teammate did, as [what, from, to]; the end is null where it goes on. */
function spansOf(member) {
  const of = (what) => member[what].map(([from, to]) => [what, from, to]);
  const lives = member.lives.flatMap(([, decided, began, ended]) => [['starting', decided, began ?? ended?.[0] ?? null], began && ['idle', began, ended?.[0] ?? null]]);
  return [...lives.filter(Boolean), ...of('working'), ...of('awaiting'), ...of('leaving')];
}

const rowsOf = (state) => [
  ...state.members.map((member) => ({
    name: member.name, title: member.name, spans: spansOf(member), isTask: false,
    marks: member.lives.flatMap(([incarnation, , , ended]) => (ended ? [[...ended, `incarnation ${incarnation}`]] : [])),
  })),
  ...state.tasks.map((task) => ({ name: String(task.id), title: `task ${task.id}: ${task.subject}`, label: `${task.id} ${task.subject}`, spans: task.spans, marks: task.marks, isTask: true })),
];

/** Says a row in words. */
function inWords({ spans, marks }) {
  const lines = [...spans.map(([what, from, to, by]) => [from, `${clock(from)} – ${to ? clock(to) : 'now'}  ${LEGEND[what] ?? what}${by ? ` (${by})` : ''}`]),
    ...marks.map(([at, what, of]) => [at, `${clock(at)}  ${[of, what].filter(Boolean).join(': ')}`])];
  return lines.sort(([a], [b]) => a - b).map(([, line]) => line).join('\n');
}

function label(at, step) {
  if (step >= 86400) return day(at);
  return new Date(at * 1000).toTimeString().slice(0, step < 60 ? 8 : 5);
}

export const timeline = {
  make(element, _, state) {
    const shown = { seconds: 3600, until: null };
    const [axis, body] = [h('svg', { height: HEAD, 'aria-hidden': 'true' }), h('svg', { role: 'group', 'aria-label': 'Timeline' })];
    const box = h('div.scroll.timeline', { tabindex: 0, role: 'region', 'aria-label': 'Timeline: plus and minus zoom, left and right move' }, h('div.head', {}, axis), body);
    const [empty, more] = [h('p.empty', {}, 'No teammate ran in this time.'), h('p.dim')];
    const now = () => Date.now() / 1000;
    const end = () => shown.until ?? now();
    let [later, isNew] = [0, true];
    const set = (seconds, until) => {
      shown.seconds = Math.round(Math.min(LONGEST, Math.max(SHORTEST, seconds)));
      shown.until = until === null || until >= now() ? null : Math.round(until);
      paint();
      clearTimeout(later);
      later = setTimeout(() => view.begin(), 200);
    };
    const move = (seconds) => set(shown.seconds, end() + seconds);
    const zoom = (factor) => set(shown.seconds * factor, shown.until === null ? null : shown.until + shown.seconds * (factor - 1) / 2);
    const button = (text, title, onclick) => h('button', { title, 'aria-label': text.length === 1 && title, onclick }, text);
    const bar = h('div.bar', {}, button('−', 'Zoom out', () => zoom(2)), button('+', 'Zoom in', () => zoom(.5)), button('◂', 'Earlier', () => move(-shown.seconds / 2)),
      button('▸', 'Later', () => move(shown.seconds / 2)), button('Now', 'Up to now', () => set(shown.seconds, null)), button('All', 'From the beginning to now', () => set(now() - state.began + 2, null)),
      Object.entries(LEGEND).map(([name, text]) => h('span.dim.key', {}, h('svg', { width: 18, height: 14, 'aria-hidden': 'true' }, h(`path.bar-${name}`, { d: 'M0 7H18', 'stroke-width': BARS[name] })), text)));
    element.append(bar, box, empty, more);
    const place = (left, width) => (at) => left + (at - end() + shown.seconds) / shown.seconds * (width - left);
    const row = (one, at, x, left, width) => {
      const y = at * ROW + ROW / 2;
      const inWindow = (from, to) => from <= end() && (to ?? end()) >= end() - shown.seconds;
      const paths = Object.entries(BARS).map(([name, height]) => {
        const d = one.spans.filter(([what, from, to]) => what === name && inWindow(from, to)).map(([, from, to]) => {
          const start = Math.max(left, x(from));
          return `M${start.toFixed(1)} ${y}H${Math.min(width, Math.max(start + 2, x(Math.min(to ?? end(), end())))).toFixed(1)}`;
        }).join('');
        return d && h(`path.bar-${name}`, { d, 'stroke-width': height });
      });
      const marks = one.marks.filter(([time]) => inWindow(time, time)).map(([time, what]) =>
        h(`text.mark${GOOD.has(what) ? '' : '.bad'}`, { x: x(time), y: y + 5, 'text-anchor': 'middle' }, GOOD.has(what) ? (one.isTask ? '✓' : '■') : '✕'));
      const show = () => open(one.title, inWords(one));
      const name = one.label ?? one.name;
      return [h('g', { tabindex: 0, role: 'button', 'aria-label': name, onclick: show, onkeydown: (key) => { if (key.key === 'Enter') show(); } },
        h('rect.hit', { x: 0, y: at * ROW, width, height: ROW }), h('svg', { y: at * ROW, width: left - 4, height: ROW }, h('text', { x: 8, y: ROW / 2 + 4 }, name)), paths), h('g', { 'aria-hidden': 'true' }, marks)];
    };
    const paint = () => {
      if (!state.members || !box.clientWidth) return;
      const [rows, width] = [rowsOf(state), box.clientWidth - 2];
      const left = width < 600 ? 92 : 190;
      const [x, height] = [place(left, width), Math.max(1, rows.length) * ROW];
      const step = STEPS.find((one) => one / shown.seconds * (width - left) > 74) ?? STEPS.at(-1);
      const zone = new Date().getTimezoneOffset() * 60;
      const first = Math.ceil((end() - shown.seconds - zone) / step) * step + zone;
      const times = Array.from({ length: Math.max(0, Math.floor((end() - first) / step) + 1) }, (_one, at) => first + at * step);
      axis.setAttribute('width', width);
      body.setAttribute('width', width);
      body.setAttribute('height', height);
      axis.replaceChildren(...times.filter((at) => x(at) < width - 20).map((at) => h('text.clock', { x: x(at), y: 17, 'text-anchor': x(at) < left + 24 ? 'start' : 'middle' }, label(at, step))));
      const split = state.members.length * ROW;
      body.replaceChildren(...times.map((at) => h('line.lane', { x1: x(at), x2: x(at), y1: 0, y2: height })), h('line.split', { x1: 0, x2: width, y1: split, y2: split }),
        ...rows.flatMap((one, at) => row(one, at, x, left, width)));
    };
    const keys = { '+': () => zoom(.5), '-': () => zoom(2), ArrowLeft: () => move(-shown.seconds / 4), ArrowRight: () => move(shown.seconds / 4) };
    box.addEventListener('keydown', (key) => {
      if (!keys[key.key] || key.ctrlKey || key.metaKey || key.altKey) return;
      key.preventDefault();
      keys[key.key]();
    });
    box.addEventListener('wheel', (wheel) => {
      if (!wheel.ctrlKey && Math.abs(wheel.deltaX) <= Math.abs(wheel.deltaY)) return;
      wheel.preventDefault();
      if (wheel.ctrlKey) zoom(wheel.deltaY > 0 ? 1.25 : .8);
      else move(shown.seconds * wheel.deltaX / 1000);
    }, { passive: false });
    new ResizeObserver(() => requestAnimationFrame(paint)).observe(box);
    // What goes on grows by a pixel at a time, while the page is in sight.
    const grow = () => {
      if (!element.isConnected) return;
      if (!document.hidden && shown.until === null) paint();
      setTimeout(grow, Math.max(1000, shown.seconds / box.clientWidth * 1000));
    };
    const draw = () => {
      const [members, tasks] = state.counts;
      // It begins when the team did; of a team that is older than a day, a day ago.
      if (isNew && state.began) set(Math.min(DAY, (now() - state.began) * 1.02 + 2), null);
      if (isNew) setTimeout(grow, 1000);
      isNew = false;
      empty.hidden = members + tasks > 0;
      box.hidden = !empty.hidden;
      const rest = [[members - state.members.length, 'teammates'], [tasks - state.tasks.length, 'tasks']].filter(([count]) => count > 0).map(([count, what]) => `${count} more ${what}`);
      more.textContent = [rest.length && `not shown: ${rest.join(', ')}`, state.reading && `still reading ${state.reading} files`].filter(Boolean).join(' · ');
      paint();
    };
    const view = { query: () => `view=timeline&seconds=${shown.seconds}${shown.until === null ? '' : `&until=${shown.until}`}`, draw };
    return view;
  },
};
