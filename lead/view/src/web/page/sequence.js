// The sequence diagram: a lifeline for each agent, an arrow for each message, a bar for each incarnation. Only rows in sight are drawn.

import { open } from './dialog.js';
import { clock, h } from './element.js';

const [LEFT, HUES, LETTER] = [80, 6, 6.8];
/** The spans of time that can be chosen, in seconds. */
const TIMES = { 'all times': '', 'the last minute': 60, 'the last 10 minutes': 600, 'the last hour': 3600, 'the last day': 86400 };
/** How many events there are at first, and how many more each time. */
const PAGE = 200;

/** The part of the line between two ends that is in sight: its label stands there. */
function inSight([a, b], [left, right]) {
  const keep = (x) => Math.min(Math.max(x, left), right);
  return [keep(a), keep(b)];
}

/** Cuts a text to the letters for which there is room. */
function fit(text, room) {
  const letters = Math.max(3, Math.floor(room / LETTER));
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}

function note(event, x, y, sight) {
  const glyph = { began: '●', ended: '■' };
  const text = `${event.bad ? '✕' : glyph[event.turning] ?? '·'} ${event.label}`;
  // Where there is more room, unless there is enough on the right.
  const [before, behind] = [x - Math.max(sight[0], LEFT) - 10, sight[1] - x - 14];
  const isLeft = before > behind && LETTER * text.length > behind;
  return h(`text.label${event.bad ? '.bad' : ''}`, { x: isLeft ? x - 10 : x + 10, y: y + 4, 'text-anchor': isLeft ? 'end' : 'start' }, fit(text, isLeft ? before : behind));
}

function arrow(event, from, to, y, sight) {
  const request = event.request ? `.r${event.request.number % HUES}` : '';
  const hue = event.bad ? '.bad' : request;
  const way = to > from ? 1 : -1;
  const tip = to - way * 5;
  const [start, end] = inSight([from, to], sight);
  // From the beginning of the arrow on, and beyond its tip where it is long, unless that would leave the screen.
  const [first, last] = [Math.max(sight[0], LEFT) + 4, sight[1] - 6];
  const text = fit(event.label, last - first);
  const long = LETTER * text.length;
  const label = way > 0 ? Math.min(start + 9, Math.max(first, last - long)) : Math.max(start - 9, Math.min(last, first + long));
  return [h(`path.arrow${hue}${event.request?.answer ? '.answer' : ''}`, { d: `M${from} ${y}H${tip - way * 5}` }),
    h(`path.tip${hue}`, { d: `M${tip} ${y}l${-way * 8} -4v8z` }),
    h(`text.label${hue}`, { x: label, y: y - 6, 'text-anchor': way > 0 ? 'start' : 'end' }, text)];
}

export const sequence = {
  make(element, _, state) {
    let [last, scale, ROW] = [PAGE, 1, 30];
    const [names, body, box] = [h('svg', { height: 34 }), h('svg', { role: 'group', 'aria-label': 'Sequence diagram' }), h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': 'Sequence diagram' })];
    const earlier = h('button', { onclick: () => { last += PAGE; view.begin(); } });
    box.append(h('div.head', {}, names), body);
    const empty = h('p.empty', {}, 'Nothing has happened yet.');
    const zoom = (factor) => {
      const middle = (box.scrollTop + box.clientHeight / 2) / ROW;
      scale = Math.min(2.5, Math.max(.5, scale * factor));
      ROW = Math.round(30 * Math.max(.6, scale));
      paint();
      box.scrollTop = middle * ROW - box.clientHeight / 2;
    };
    const times = h('select', { 'aria-label': 'Time shown', onchange: () => view.begin() }, Object.entries(TIMES).map(([text, value]) => h('option', { value }, text)));
    const button = (text, title, factor) => h('button', { title, 'aria-label': title, onclick: () => zoom(factor) }, text);
    element.append(h('div.bar', {}, button('−', 'Zoom out', .8), button('+', 'Zoom in', 1.25), times, h('span.dim', {}, 'one colour: one request, dashed its answer · bars: incarnations · click: the text'), earlier), box, empty);
    const geometry = () => {
      const fits = Math.min(150, Math.max(66, Math.floor((box.clientWidth - LEFT - 20) / Math.max(1, state.lifelines.length))));
      const column = Math.round(fits * scale);
      return { x: (lifeline) => LEFT + column * (lifeline + .5), width: Math.max(box.clientWidth - 2, LEFT + column * state.lifelines.length) };
    };
    const y = (row) => 24 + row * ROW;
    const row = (event, at, x, width, sight) => {
      const show = () => open(`${clock(event.at)}  ${event.label}`, event.text || event.label);
      const time = clock(event.at);
      const isSame = at > 0 && clock(state.events[at - 1].at) === time;
      return h('g', { tabindex: 0, role: 'button', onclick: show, onkeydown: (key) => { if (key.key === 'Enter') show(); } },
        h('rect.hit', { x: 0, y: y(at) - 19, width, height: ROW }), !isSame && h('text.clock', { x: 8, y: y(at) + 4 }, time),
        event.from === event.to ? note(event, x(event.from), y(at), sight) : arrow(event, x(event.from), x(event.to), y(at), sight));
    };
    const paint = () => {
      if (!state.events || !box.clientWidth) return;
      const [{ x, width }, height] = [geometry(), y(state.events.length)];
      const [first, end] = [Math.max(0, Math.floor(box.scrollTop / ROW) - 5), Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 5];
      const sight = [box.scrollLeft, box.scrollLeft + box.clientWidth];
      for (const [svg, tall] of [[names, 34], [body, height]]) {
        svg.setAttribute('width', width);
        svg.setAttribute('height', tall);
      }
      names.replaceChildren(...state.lifelines.map((name, at) => h('text.name', { x: x(at), y: 22, 'text-anchor': 'middle' }, name.length > 11 ? `${name.slice(0, 10)}…` : name)));
      const lanes = state.lifelines.map((_name, at) => h('line.lane', { x1: x(at), x2: x(at), y1: 0, y2: height }));
      const bars = state.incarnations.map(([at, from, to]) => {
        const [top, bottom] = [from === null ? 0 : y(from), y(to ?? state.events.length)];
        return h('rect.incarnation', { x: x(at) - 5, width: 10, rx: 3, y: top, height: Math.max(4, bottom - top) });
      });
      body.replaceChildren(...lanes, ...bars, ...state.events.slice(first, end).map((event, at) => row(event, first + at, x, width, sight)));
    };
    let isNew = true;
    const draw = () => {
      const isAtEnd = isNew || box.scrollTop + box.clientHeight > box.scrollHeight - 60;
      [empty.hidden, box.hidden, earlier.hidden] = [state.events.length > 0, !state.events.length, !state.earlier];
      earlier.textContent = `${state.earlier} earlier events`;
      paint();
      if (isAtEnd) box.scrollTop = box.scrollHeight;
      isNew = false;
    };
    box.addEventListener('scroll', () => requestAnimationFrame(paint));
    new ResizeObserver(() => requestAnimationFrame(paint)).observe(box);
    const lifelines = () => Math.max(3, Math.floor((element.clientWidth - LEFT - 20) / 66) - 1);
    const view = { query: () => `view=sequence&last=${last}&lifelines=${lifelines()}${times.value && `&seconds=${times.value}`}`, draw };
    return view;
  },
};
